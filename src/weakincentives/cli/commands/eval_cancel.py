"""`wink eval cancel`: take the samples of a submitted run back from the workers.

Order of work: cancel it in the queue, store what is finished, store that it is cancelled. After an
interruption the same command continues.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..console.styled_text import pluralize, print_stderr
from ..options.queues import Deployment, add_queue, cancel_queued, deployment
from ..options.runs import REFERENCES, add_store, open_existing_store

if TYPE_CHECKING:
    from ...evals import RunStore

EXIT_CODES = """\
exit codes:
  0  the run is cancelled, or was complete already
  2  usage error, or the queue cannot be reached
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = EXIT_CODES
    parser.add_argument("run_id", metavar="RUN", help=REFERENCES)
    add_queue(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Cancel the run; other runs in the queue are not touched."""
    with open_existing_store(args) as store:
        record = store.run(args.run_id)
        manifest, run_id = record.manifest, record.manifest.run_id
        if manifest.kind != "submission":
            raise UsageError(
                f"expected a run that `wink eval submit` began, got {run_id}, which no worker runs "
                "- a local run is stopped by Ctrl-C where it runs"
            )
        if record.status == "complete":
            print_stderr(f"{run_id} is complete: there is nothing to cancel")
            return 0
        queue = deployment(args, manifest.queue or None, must_exist=True)
        removed = cancel_queued(queue, run_id)
        stored, total = _store_finished(store, queue, run_id)
        already = "was cancelled already" if record.status == "cancelled" else "is cancelled"
        back = (
            f", {pluralize(total - stored, 'sample')} taken back"
            if removed and stored < total
            else ""
        )
        print_stderr(f"{run_id} {already}: {stored:,} of {total:,} are stored{back}")
    return 0


def _store_finished(store: RunStore, queue: Deployment, run_id: str) -> tuple[int, int]:
    """Store the results that have arrived; return how many there are, and how many there might be.

    A result that arrives later is stored by the next `wink eval collect`.
    """
    from ...evals.distributed import CollectConfig, Collector, StoreLedger, load_submission
    from ...internal.event_loop import run_sync
    from .eval_collect import CONNECT_TIMEOUT

    submission = load_submission(store, run_id)
    ledger = StoreLedger(submission, store)
    config = CollectConfig(
        exclusive=True,
        connect_timeout=CONNECT_TIMEOUT,
        dead_letters=f"{queue.name}-dlq",
        cancelled=True,
    )
    with queue.mailbox(Any, queue.results(run_id)) as results:
        run_sync(partial(Collector(results, ledger, submission, config=config).run, None))
    missing = ledger.finish(interrupted=False, cancelled=True)
    return len(submission) - missing, len(submission)
