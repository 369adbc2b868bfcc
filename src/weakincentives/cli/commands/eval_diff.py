"""`wink eval diff`: one sample in two runs, step by step, with the first divergence marked."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from ...errors import UsageError
from ...evals import RunStore
from ...evals.store import StoredRow
from ...evals.store.find_rows import rows_of_sample
from ..console.json_output import write_line
from ..console.text_tables import print_stdout, screen
from ..console.trajectories import trajectories_data, trajectories_text
from ..options.parsing import whole_number
from ..options.runs import REFERENCES, add_format, add_store, open_existing_store


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("before", metavar="RUN_A", help=REFERENCES)
    add("after", metavar="RUN_B", help="the run to compare it with")
    add("sample_id", metavar="SAMPLE", help="sample id")
    add(
        "--epoch",
        type=whole_number(1),
        metavar="N",
        help="epoch of the sample (default: the first)",
    )
    add("--full", action="store_true", help="print long texts in full")
    add_format(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whether the trajectories differ or not."""
    with open_existing_store(args) as store:
        before, after = (_row(store, run_id, args) for run_id in (args.before, args.after))
    if args.format == "json":
        write_line(sys.stdout, trajectories_data(before.result, after.result))
    else:
        print_stdout(screen(), *trajectories_text(before.result, after.result, full=args.full))
    return 0


def _row(store: RunStore, run_id: str, args: Namespace) -> StoredRow:
    rows = rows_of_sample(store, run_id, args.sample_id)
    found = [row for row in rows if args.epoch in (None, row.result.epoch)]
    if not found:
        epochs = ", ".join(str(row.result.epoch) for row in rows)
        raise UsageError(
            f"expected an epoch of sample {args.sample_id!r} in run {run_id}, got {args.epoch} - "
            f"there are {epochs}"
        )
    return found[0]
