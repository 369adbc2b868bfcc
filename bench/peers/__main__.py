"""Compare WINK with other tools, in one run with bare loops: `python -m bench.peers [SIZE]`.

Makes an environment for each tool on first use (`.venv-peers/`, several GB). A full run takes about
an hour on a quiet machine and writes docs/benchmarks.md; a part of it only prints.
"""

from __future__ import annotations

import argparse
import datetime
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .environments import ROOT, TOOLS, SetupError, choose_python, prepare, python_version
from .measure import Outcome, run_all
from .measurements import FULL, SMALLEST, measurements
from .page import Comparison, machine, ratios, reasons, write, write_quote

ALWAYS = ("floor", "floor-sdk", "wink", "wink-sdk")  # what the others are ratios to


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser("python -m bench.peers", description=__doc__)
    parser.add_argument("size", nargs="?", type=int, default=FULL,
        help=f"samples of the largest in-process run (default {FULL}); others follow")  # fmt: skip
    parser.add_argument("--only", action="append", choices=[*TOOLS], metavar="NAME",
        help=f"a tool besides the loops and WINK; repeats. Names: {', '.join(TOOLS)}")  # fmt: skip
    parser.add_argument("--part", action="append", metavar="NAME",
        help="measurements whose name starts so, such as http or resume; repeats")  # fmt: skip
    parser.add_argument("--rounds", type=int, metavar="N",
        help="maximum rounds of each measurement (default 1 to 5)")  # fmt: skip
    parser.add_argument("--limit", type=float, default=300.0,
        help="seconds that one step may take (default 300)")  # fmt: skip
    parser.add_argument("--python", help="Python for all environments (default: 3.13 if found)")
    parser.add_argument("--page", type=Path, help="Markdown file to update "
        "(default: docs/benchmarks.md in a run of all tools and parts)")  # fmt: skip
    args = parser.parse_args(arguments)
    if args.size < SMALLEST:
        parser.error(f"expected a size of at least {SMALLEST}, got {args.size}")
    if args.page and not args.page.is_file():
        parser.error(f"expected a Markdown file to update, got {args.page}")
    return args


def announce(outcome: Outcome) -> None:
    """Print one result as it comes."""
    if outcome.seconds is None:
        text = outcome.missing
    else:
        memory = f"{outcome.peak_mb:,.0f} MB" if outcome.peak_mb else ""
        text = f"{outcome.seconds:10.3f} s {memory:>10} {outcome.note}"
    print(f"{outcome.measurement:<20}{outcome.tool:<16}{text}".rstrip(), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the comparison, print it, and write the page; the exit code is 1 if ours is missing."""
    args = read_arguments(arguments)
    try:
        python = choose_python(args.python)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 2
    chosen = [name for name in TOOLS if not args.only or name in (*ALWAYS, *args.only)]
    wanted = [
        replace(each, rounds=min(each.rounds, args.rounds or each.rounds))
        for each in measurements(args.size)
        if not args.part or each.name.startswith(tuple(args.part))
    ]
    if not wanted:
        print(f"expected the start of a measurement's name, got {args.part}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a driver is ended, too
    targets = [prepare(TOOLS[name], python) for name in chosen]
    outcomes = run_all(targets, wanted, args.limit, announce)
    version = "{}.{}".format(*(python_version(python) or (0, 0)))
    today = datetime.datetime.now(datetime.UTC).strftime("%B %Y")
    comparison = Comparison(outcomes, wanted, args.size, args.limit, machine(version), today)
    print("\nTimes the bare loop\n", *ratios(comparison, "floor"), *reasons(comparison), sep="\n")
    is_complete = not args.only and not args.part
    page = args.page or (ROOT / "docs" / "benchmarks.md" if is_complete else None)
    if page:
        write(comparison, page)
        print(f"\nwritten: {page}")
    if is_complete and not args.page:
        write_quote(comparison, ROOT / "README.md")
    ours = [each for each in outcomes if each.tool in ALWAYS]
    return int(any(each.seconds is None or each.note for each in ours))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
