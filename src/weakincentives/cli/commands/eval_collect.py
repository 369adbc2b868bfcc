"""`wink eval collect`: bring the results of a submitted run from the workers into the run store.

Order of work: store, commit, acknowledge. After an interruption the next `collect` continues, and
a result that is delivered twice is counted once, by its key.
"""

from __future__ import annotations

import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any

from ...clock import SYSTEM_CLOCK
from ...errors import MailboxConnectionError, WinkError
from ...internal.formatting import duration, pluralize
from ..options.execution import add_gates, add_output_options, check_gates
from ..options.parsing import non_negative
from ..options.queues import add_queue, deployment, safe_url
from ..options.runs import add_store, open_existing_store

if TYPE_CHECKING:
    from rich.console import Console

    from ...evals import RunStore
    from ...evals.distributed import Collector, StoreLedger, Submission
    from ...evals.engine.progress import ProgressSnapshot
    from ...evals.store import RunRecord
    from ...evals.store.queue_state import QueueState
    from ..console.summary import RunEnding

EXIT_CODES = """\
exit codes:
  0    all results are stored, and every gate passed
  1    a gate failed: fewer samples passed than --fail-under
  2    usage error, or the queue cannot be reached
  3    results are missing after --timeout, after resubmitting them without success, or
       because the run was cancelled; or more errors than --max-error-rate
  130  interrupted; the same command continues
"""
POLL_SECONDS = 1.0  # longest wait for a batch of results
IDLE_SECONDS = 10.0  # without a result, before the progress mentions it
MAX_ROUNDS = 3  # resubmissions without a new result
CONNECT_TIMEOUT = 60.0  # seconds for the queue to answer for the first time


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = EXIT_CODES
    add = parser.add_argument
    add("run_id", nargs="?", metavar="RUN", help="run id (default: the latest submitted run)")
    add_queue(parser)
    add("--timeout", type=non_negative, metavar="SECONDS",
        help="stop waiting for results after this long (default: never); workers have their own "
        "timeout per sample")  # fmt: skip
    add("--resubmit-after", type=non_negative, default=30.0, metavar="SECONDS",
        help="resubmit missing samples after this long with an empty queue and no new result "
        "(default 30)")  # fmt: skip
    add("--no-resubmit", action="store_true", help="never resubmit missing samples")
    add("--retry-errors", action="store_true", help="first resubmit samples that ended in an error")
    add_store(parser)
    add_gates(add)
    add_output_options(add)


def _submitted(store: RunStore) -> RunRecord:
    """Return the latest run that was submitted; of a store without one, the latest."""
    submitted = (each for each in store.runs() if each.manifest.kind == "submission")
    return next(submitted, None) or store.run("latest")


def run(args: Namespace) -> int:
    """Collect missing results; gates and exit codes are those of `wink eval run`."""
    from ...evals.distributed import StoreLedger, load_submission
    from ...evals.model.redacted_ids import redact_ids
    from ...evals.store.queue_state import save_queue_state
    from ..console.json_output import write_line
    from ..console.progress_bar import console
    from ..console.styled_text import one_line
    from ..runner import check_output

    data, to, began = sys.stdout, console(), SYSTEM_CLOCK.monotonic()
    check_output(args)
    check_gates(args)
    with open_existing_store(args) as store:
        record = _submitted(store) if args.run_id is None else store.run(args.run_id)
        run_id = record.manifest.run_id
        submission = load_submission(store, run_id)
        ledger = StoreLedger(
            submission,
            store,
            on_result=lambda result: (
                write_line(data, redact_ids(result)) if args.format == "jsonl" else None
            ),
            retry_errors=args.retry_errors,
        )
        save = partial(save_queue_state, store, run_id)
        is_complete = record.status == "complete" and not args.retry_errors
        with _open_collector(args, record, submission, ledger, to, save) as collector:
            # A cancelled run stays that: what arrived since then is collected, no more.
            if (ledger.missing() or record.status != "complete") and not collector.cancelled:
                store.begin(record.manifest)
            try:
                interrupted = _collect(args, collector, to)
            except MailboxConnectionError as error:
                if not is_complete:
                    with suppress(WinkError):
                        ledger.finish(interrupted=True)
                    raise
                to.print(one_line(f"warning: {error}"), style="yellow", soft_wrap=True)
                interrupted = False
            except BaseException:  # the run can be continued
                with suppress(WinkError):  # if the run was removed, the first error says so
                    ledger.finish(interrupted=True)
                raise
        missing = ledger.finish(
            interrupted=interrupted, cancelled=collector.cancelled, reason=collector.refused
        )
        if collector.dead_lettered and not args.quiet:
            to.print(_dead_letter_note(args, collector), style="dim", soft_wrap=True)
        outcome = _outcome(args, store, collector, missing, SYSTEM_CLOCK.monotonic() - began)
        return _report(args, outcome, store)


def _report(args: Namespace, outcome: RunEnding, store: RunStore) -> int:
    """Print how the run ended, write its files, and return its exit code."""
    from ..console.json_output import run_data, write_line
    from ..console.progress_bar import console
    from ..runner import finish

    outcome = finish(args, outcome, store, console())
    if args.format == "json":
        write_line(sys.stdout, {"exit_code": outcome.code, "runs": [run_data(outcome)]})
    return outcome.code


def _outcome(
    args: Namespace, store: RunStore, collector: Collector, missing: int, seconds: float
) -> RunEnding:
    """Return how the run ended: interrupted, incomplete, or as the gates decide."""
    from ..runner import outcome_of

    submission = collector.submission
    assert submission is not None
    outcome = outcome_of(args, store, submission.run_id, seconds, submission.epochs, alone=True)
    if collector.stopped:
        stored = f"{outcome.found.record.stored:,} of {len(submission):,} are stored"
        return replace(outcome, code=130, rule=f"interrupted, {stored}")
    if missing and collector.cancelled:
        stored = f"{outcome.found.record.stored:,} of {len(submission):,} are stored"
        return replace(outcome, code=3, rule=f"cancelled, {stored}")
    if missing:
        waited = f"resubmitting them {pluralize(collector.rounds, 'time')}"
        waited = waited if collector.gave_up else f"{args.timeout or 0:g} s"
        rule = collector.refused and f"{missing:,} missing: {collector.refused}"
        return replace(outcome, code=3, rule=rule or f"{missing:,} missing after {waited}")
    return outcome


def _dead_letter_note(args: Namespace, collector: Collector) -> str:
    queue = f" --queue {quote(safe_url(args.queue))}" if args.queue else ""
    count = f"{collector.dead_lettered:,}"
    return f"moved to the dead letters, not results of this run: {count} (wink dlq list{queue})"


@contextmanager
def _open_collector(
    args: Namespace,
    record: RunRecord,
    submission: Submission,
    ledger: StoreLedger,
    to: Console,
    on_poll: Callable[[QueueState], object],
) -> Iterator[Collector]:
    from ...evals import EvalRequest
    from ...evals.distributed import CollectConfig, Collector
    from ..console.styled_text import one_line

    def note(text: str, style: str = "dim") -> None:
        if not args.quiet:
            to.print(one_line(text), style=style, soft_wrap=True)

    manifest = record.manifest
    queue = deployment(args, manifest.queue or None, must_exist=True)
    total = len(submission)
    config = CollectConfig(
        resubmit_after=None if args.no_resubmit else args.resubmit_after,
        max_rounds=MAX_ROUNDS,
        poll=POLL_SECONDS,
        exclusive=True,
        connect_timeout=5.0 if record.status == "complete" else CONNECT_TIMEOUT,
        dead_letters=f"{queue.name}-dlq",
        cancelled=record.status == "cancelled",
    )
    with (
        queue.mailbox(EvalRequest) as requests,
        # As plain data: the classes of the agent need not be importable here.
        queue.mailbox(Any, queue.results(submission.run_id)) as results,
    ):
        name = manifest.suite or manifest.dataset_name or "unnamed"
        note(f"{name}: {total:,} results from {queue.display_url}", "")
        stored = total - len(ledger.missing())
        note(f"run {submission.run_id}, {stored:,} of {total:,} are stored")
        collector = Collector(
            results,
            ledger,
            submission,
            requests=requests,
            config=config,
            on_note=note,
            on_poll=on_poll,
        )
        collector.tally.quarantined = frozenset(manifest.quarantined)
        yield collector


def _collect(args: Namespace, collector: Collector, to: Console) -> bool:
    """Collect until complete, the timeout, or a signal; return whether it was interrupted."""
    import anyio

    from ...internal.concurrency import unwrap_exception_group
    from ..console.progress_bar import run_showing_progress

    snapshot = partial(_snapshot, collector, SYSTEM_CLOCK.monotonic())

    async def collect() -> None:
        async with anyio.create_task_group() as group:
            if threading.current_thread() is threading.main_thread():
                group.start_soon(_stop_on_signal, collector)
            await collector.run(args.timeout)
            group.cancel_scope.cancel()

    try:
        run_showing_progress(collect, snapshot, args, to, sys.stdout)
    except KeyboardInterrupt:
        collector.stop()
    except BaseExceptionGroup as group:
        raise unwrap_exception_group(group) from group
    return collector.stopped


async def _stop_on_signal(collector: Collector) -> None:
    """Stop after the current batch at the first signal, and at once at the second."""
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if collector.stopped:
                raise KeyboardInterrupt
            collector.stop()


def _snapshot(collector: Collector, began: float) -> ProgressSnapshot:
    from ...evals.engine.progress import tally_snapshot

    submission = collector.submission
    assert submission is not None
    now, total = SYSTEM_CLOCK.monotonic(), len(submission)
    return replace(
        tally_snapshot(collector.tally, total, now - began),
        done=total - len(collector.ledger.missing()),
        plain=submission.epochs == 1 and len(submission.experiments) == 1,
        queue=_queue_state(collector.queued, now - collector.last_result),
    )


def _queue_state(queued: int | None, idle: float) -> str:
    if queued is None:
        return "-"
    state = f"{queued:,} queued or in flight"
    if idle < IDLE_SECONDS:
        return state
    hint = " - is a worker running?" if queued else ""
    return f"{state}, no result for {duration(idle)}{hint}"
