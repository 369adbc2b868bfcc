"""`wink eval collect`: the results of a submitted run, from the workers into the run store.

Order of work: store, commit, acknowledge. Whatever ends it in between, the next `collect` goes on,
and a result that comes twice is counted once, by its key.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ._eval_run import add_gates, add_looks, number
from ._queues import add_queue
from ._views import add_store, open_store

if TYPE_CHECKING:
    from rich.console import Console

    from ..evals import RunManifest, RunStore
    from ._collection import Collection

__all__ = ["configure", "queue_of", "run"]

EXIT_CODES = """\
exit codes:
  0    all results are there, and every gate holds
  1    a gate failed: fewer passed than --fail-under
  2    the command or what it names is wrong, or the queue cannot be reached
  3    results are missing after --timeout, or more errors than --max-error-rate
  130  interrupted; the same command goes on
"""


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXIT_CODES
    add = parser.add_argument
    add("run_id", nargs="?", default="latest", metavar="RUN", help="which run (latest)")
    add_queue(parser)
    add("--timeout", type=number, metavar="SECONDS", help="wait no longer (for ever)")
    add(
        "--resubmit-after", type=number, default=30.0, metavar="SECONDS",
        help="with nothing queued and nothing come for so long, send what is missing again (30)",
    )  # fmt: skip
    add("--no-resubmit", action="store_true", help="send nothing again")
    add("--retry-errors", action="store_true", help="send what ended in an error again, first")
    add_store(parser)
    add_gates(add)
    add_looks(add)


def run(args: Namespace) -> int:
    """Collect what is missing; the verdict and the exit code are those of `wink eval run`."""
    from ..clock import SYSTEM_CLOCK
    from ..evals._overview import overview, worst
    from ._conduct import check_output, conclude, gate, write_line
    from ._display import console
    from ._summary import Outcome, run_data

    data, to = sys.stdout, console()
    check_output(args)
    with open_store(args) as store:
        began = SYSTEM_CLOCK.monotonic()
        collection = _collection(args, store, to)
        try:
            interrupted = _collect(args, collection, to)
        except BaseException:  # such as a server that is away: it can go on
            collection.finish(interrupted=True)
            raise
        run_id = collection.submission.run_id
        missing = collection.finish(interrupted=interrupted)
        found = overview(store, run_id)
        code, rule = gate(args, found.record)
        if interrupted:
            total = len(collection.submission)
            code, rule = 130, f"interrupted, {found.record.total:,} of {total:,} are stored"
        elif missing:
            code, rule = 3, f"{missing:,} missing after {args.timeout:g} s"
        outcome = Outcome(
            found=found,
            worst=worst(store, run_id),
            code=code,
            rule=rule,
            seconds=SYSTEM_CLOCK.monotonic() - began,
            epochs=collection.submission.epochs,
        )
        conclude(args, outcome, store, to)
        if args.format == "json":
            write_line(data, {"exit_code": code, "runs": [run_data(outcome)]})
    return code


def _collection(args: Namespace, store: RunStore, to: Console) -> Collection:
    from ._collection import Collection
    from ._conduct import write_line
    from ._eval_submit import submission_of
    from ._queues import deployment
    from ._summary import harmless

    record = store.run(args.run_id)
    manifest = record.manifest
    submission = submission_of(store, manifest)
    queue = deployment(args, queue_of(manifest), must_exist=True)
    collection = Collection(
        submission,
        store,
        queue,
        on_result=lambda result: write_line(sys.stdout, result) if args.format == "jsonl" else None,
        on_note=lambda note: None if args.quiet else to.print(note, style="dim", soft_wrap=True),
        patience=None if args.no_resubmit else args.resubmit_after,
        retry_errors=args.retry_errors,
    )
    if not args.quiet:
        stored = len(submission) - len(collection.owed)
        name = harmless(manifest.dataset_name or "unnamed")
        to.print(f"{name}: {len(submission):,} results from {harmless(queue.shown)}")
        to.print(
            f"run {submission.run_id}, {stored:,} of {len(submission):,} are stored", style="dim"
        )
    if collection.owed or record.status != "complete":
        store.begin(manifest)
    return collection


def queue_of(manifest: RunManifest) -> str | None:
    """The URL that a run was submitted to, without its password."""
    from . import _eval_submit

    if manifest.command[2:3] != ("submit",):
        return None
    parser = ArgumentParser(prog="wink eval submit")
    _eval_submit.configure(parser)
    found: str = parser.parse_args(manifest.command[3:]).queue
    return found


def _collect(args: Namespace, collection: Collection, to: Console) -> bool:
    """Collect until all is there, or it is time to leave; whether somebody asked for that."""
    from contextlib import nullcontext
    from functools import partial

    import anyio

    from ._conduct import first, shown_meanwhile
    from ._display import moves, watching

    moving = moves() and not (args.format == "jsonl" and sys.stdout.isatty())
    unseen = args.quiet or args.no_progress
    watch = nullcontext(None) if unseen else watching(collection.moment, to=to, moving=moving)

    async def collect() -> None:
        async with anyio.create_task_group() as group:
            if threading.current_thread() is threading.main_thread():
                group.start_soon(_listen, collection)
            await collection.run(args.timeout)
            group.cancel_scope.cancel()

    try:
        with watch as show:
            anyio.run(partial(shown_meanwhile, collect, show))
    except KeyboardInterrupt:
        collection.stop()
    except BaseExceptionGroup as group:
        raise first(group) from group
    return collection.stopped


async def _listen(collection: Collection) -> None:
    """The first signal ends it between two batches; the second at once."""
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if collection.stopped:
                raise KeyboardInterrupt
            collection.stop()
