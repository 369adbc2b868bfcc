"""`wink eval quarantine`: samples that run but do not count, each with a reason and an end date."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import date
from typing import TYPE_CHECKING

from rich.text import Text

from ...errors import UsageError
from ..console.styled_text import one_line, print_stderr
from ..console.text_tables import columns, print_stdout, screen
from ..options.parsing import allow_intermixed_args
from ..options.runs import add_format

if TYPE_CHECKING:
    from ...evals.model import QuarantinedSample

HELP = """\
The quarantine is a file to commit and to review: quarantine.jsonl, in the current folder or the
nearest folder above that has one. A quarantined sample still runs, and its result is stored. It is
left out of headlines, gates and comparisons, which say how many are. After the last day it counts
again, and headlines say so until the line is removed.
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = HELP
    parser.usage = (
        "wink eval quarantine add SUITE SAMPLE --reason TEXT --until DATE\n"
        "       wink eval quarantine list [SUITE]\n"
        "       wink eval quarantine remove SUITE SAMPLE"
    )
    allow_intermixed_args(parser)
    add = parser.add_argument
    add("action", choices=("add", "list", "remove"), help="what to do")
    add("suite", nargs="?", metavar="SUITE", help="name of the suite, or else of its dataset")
    add("sample", nargs="?", metavar="SAMPLE", help="id of the sample")
    add("--reason", metavar="TEXT", help="why the sample does not count")
    add("--until", type=_day, metavar="DATE", help="last day of the quarantine: 2026-12-31")
    add("--file", metavar="FILE", help="file to use instead of quarantine.jsonl")
    add_format(parser)


def run(args: Namespace) -> int:
    """Change or print the quarantine; return exit code 0."""
    from ...evals.model import QuarantinedSample, add_quarantine, load_quarantine, remove_quarantine

    if args.action == "list":
        _refuse(args, "sample", "reason", "until")
        _print(args, load_quarantine(args.suite, args.file))
        return 0
    if args.suite is None or args.sample is None:
        given = "neither" if args.suite is None else f"only {args.suite}"
        raise UsageError(f"expected SUITE SAMPLE to {args.action}, got {given}")
    if args.action == "remove":
        _refuse(args, "reason", "until")
        file = remove_quarantine(args.suite, args.sample, args.file)
        print_stderr(f"{one_line(args.sample)} of {one_line(args.suite)} counts again ({file})")
        return 0
    if args.reason is None or args.until is None:
        raise UsageError("expected both --reason TEXT and --until DATE to add a sample")
    entry = QuarantinedSample(
        suite=args.suite, sample=args.sample, reason=args.reason, until=args.until
    )
    file = add_quarantine(entry, args.file)
    print_stderr(
        f"{one_line(entry.sample)} of {one_line(entry.suite)} does not count until {entry.until} "
        f"({file})"
    )
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a day such as 2026-12-31, got {text!r}") from None


def _refuse(args: Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise UsageError(f"expected no {name} to {args.action}, got {getattr(args, name)}")


def _print(args: Namespace, entries: tuple[QuarantinedSample, ...]) -> None:
    if args.format == "json":
        from ..console.json_output import write_line

        fields = ("suite", "sample", "reason", "until", "expired")
        write_line(sys.stdout, [{name: getattr(e, name) for name in fields} for e in entries])
        return
    if not entries:
        print_stderr("No sample is quarantined.")
        return
    to = screen()
    table = {
        "suite": [Text(one_line(entry.suite)) for entry in entries],
        "sample": [Text(one_line(entry.sample), "bold") for entry in entries],
        "until": [Text(f"{entry.until}") for entry in entries],
        "": [Text("expired" if entry.expired else "", "yellow") for entry in entries],
        "reason": [Text(one_line(entry.reason)) for entry in entries],
    }
    print_stdout(to, columns(table, to.width, shrink=("reason", "sample", "suite")))
