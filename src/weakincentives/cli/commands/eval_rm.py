"""`wink eval rm`: remove stored runs with their rows and labels, and erase their texts."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ...evals.store.labels import run_title
from ..console.text import confirm, one_line, pluralize, print_stderr
from ..options.runs import REFERENCES, add_store, open_store


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=REFERENCES)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0 if the runs are removed, 1 if the answer was no."""
    with open_store(args) as store:
        # All, before the first is removed: `latest~1` counts from the newest that is left.
        found = {record.manifest.run_id: record for record in map(store.run, args.runs)}
        lines = [
            one_line(
                f"{run_id} ({run_title(record.manifest)}, {pluralize(record.stored, 'result')})"
            )
            for run_id, record in found.items()
        ]
        if not args.yes:
            print_stderr(*lines)
            if not confirm(f"Remove {pluralize(len(found), 'run')}?"):
                print_stderr("Nothing was removed.")
                return 1
        erased = True
        for run_id, line in zip(found, lines, strict=True):
            erased = store.delete(run_id)
            print_stderr(f"removed {line}")
        if not erased:
            print_stderr(
                "Another process is reading the store, so texts of the run are still in its log or "
                "search index: the next command with this store erases them."
            )
    return 0
