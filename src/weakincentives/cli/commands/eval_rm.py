"""`wink eval rm`: remove stored runs with their rows and labels; cancel those that workers run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ...errors import MailboxError, StoreError, UsageError
from ...evals.store import RunStore
from ...evals.store.run_record import RunRecord
from ...evals.store.run_titles import run_title
from ..console.styled_text import confirm, one_line, pluralize, print_stderr
from ..options.queues import add_queue, cancel_queued, deployment
from ..options.runs import REFERENCES, add_store, open_existing_store


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=REFERENCES)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-cancel", action="store_true",
        help="do not cancel a submitted run first, if its queue is gone")  # fmt: skip
    add_queue(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0 if the runs are removed, 1 if the answer was no."""
    with open_existing_store(args) as store:
        # All, before the first is removed: `latest~1` counts from the newest that is left.
        found = dict(_find(store, name) for name in args.runs)
        lines = [one_line(f"{run_id} ({_title(record)})") for run_id, record in found.items()]
        if not args.yes:
            print_stderr(*lines)
            if not confirm(f"Remove {pluralize(len(found), 'run')}?"):
                print_stderr("Nothing was removed.")
                return 1
        erased = True
        for (run_id, record), line in zip(found.items(), lines, strict=True):
            if record is not None and not args.no_cancel and _is_queued(record):
                _cancel(args, record)
            erased = store.delete(run_id)
            print_stderr(f"removed {line}")
        if not erased:
            print_stderr(
                "Another process is reading the store, so texts of the run are still in its log or "
                "search index: the next command with this store erases them."
            )
    return 0


def _find(store: RunStore, name: str) -> tuple[str, RunRecord | None]:
    """Return the id of a run and its record; None if that cannot be read: it can be removed."""
    run_id = store.find_run(name)
    try:
        return run_id, store.run(run_id)
    except StoreError:
        return run_id, None


def _title(record: RunRecord | None) -> str:
    if record is None:
        return "its description is damaged; if workers run it, stop them"
    return f"{run_title(record.manifest)}, {pluralize(record.stored, 'result')}"


def _is_queued(record: RunRecord) -> bool:
    submitted = record.manifest.kind == "submission"
    return submitted and record.status not in ("complete", "cancelled")


def _cancel(args: Namespace, record: RunRecord) -> None:
    """Take the samples of a run back, and remove the results that nobody has collected."""
    run_id = record.manifest.run_id
    try:
        queue = deployment(args, record.manifest.queue or None, must_exist=True)
        removed = cancel_queued(queue, run_id)
        with queue.mailbox(name=queue.results(run_id)) as results:
            results.purge()
    except (MailboxError, UsageError) as error:
        raise UsageError(
            f"cannot cancel {run_id}, so it was not removed: {error} - if its queue is gone: "
            "--no-cancel"
        ) from error
    if removed:
        print_stderr(f"cancelled {run_id}: {pluralize(removed, 'sample')} taken back")
