"""`wink judge sample`: draw outputs of a run for people to label, and write them to a file."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ...evals.review import draw_for_labels, write_label_file
from ...evals.review.label_files import check_label_file
from ..console.styled_text import one_line, pluralize, print_stderr
from ..options.parsing import whole_number
from ..options.runs import add_run, add_store, open_existing_store, same_store

DEFAULT_LABELS = 50
DEFAULT_FILE = "labels.csv"


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add_run(parser)
    add = parser.add_argument
    add("-n", type=whole_number(1), default=DEFAULT_LABELS, metavar="N",
        help=f"outputs to draw (default {DEFAULT_LABELS})")  # fmt: skip
    add("-o", "--output", default=DEFAULT_FILE, metavar="FILE",
        help=f"new file to fill: .csv or .jsonl (default {DEFAULT_FILE})")  # fmt: skip
    add("--criterion", metavar="NAME", help="which judge, if the run has several")
    add("--blind", action="store_true", help="leave out verdict and reason of the judge")
    add("--seed", type=whole_number(0), default=0, metavar="S", help="seed of the draw (default 0)")
    add("--relabel", action="store_true",
        help="also outputs that have a label, for a second person")  # fmt: skip
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0; 4 if there is nothing left to label."""
    check_label_file(args.output)  # before anything is drawn
    with open_existing_store(args) as store:
        sheet = draw_for_labels(
            store,
            args.run_id,
            args.n,
            criterion=args.criterion,
            seed=args.seed,
            relabel=args.relabel,
        )
    known = f", {sheet.labelled:,} more are labelled already" if sheet.labelled else ""
    if not sheet.rows:
        print_stderr(f"wink: nothing selected: all {sheet.labelled:,} drawn outputs have a label")
        return 4
    write_label_file(sheet, args.output, blind=args.blind)
    run_id, store_option = one_line(sheet.run_id), same_store(args)
    print_stderr(
        f"Wrote {pluralize(len(sheet.rows), 'output')} to label to {args.output}{known}",
        "Write pass or fail in the column `label`, by: " + one_line(sheet.criterion),
        f"Then: wink judge calibrate --run {run_id} {args.output}{store_option}",
    )
    return 0
