"""`wink eval ledger`: what each sample did over all stored runs of a suite."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from ...evals.audit import LEDGER_STATUSES, Ledger, LedgerEntry, read_ledger
from ...evals.model.quarantine import load_quarantine
from ...evals.store.run_titles import run_title
from ..console.json_output import write_line
from ..console.styled_text import one_line, pluralize, print_stderr
from ..console.text_tables import columns, print_stdout, screen, without_empty
from ..options.parsing import whole_number
from ..options.runs import (
    add_format,
    add_run_filters,
    add_store,
    matching_runs,
    open_existing_store,
    same_store,
)

DEFAULT_LIMIT = 20
COLOURS = {"flaky": "yellow", "broken": "red", "dead": "magenta", "saturated": "dim"}
MEANINGS = {
    "flaky": "the same version of the agent passed and failed it",
    "broken": "it passed before, and fails in the latest runs",
    "dead": "no run ever passed it",
    "saturated": "no run ever failed it",
}


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("name", nargs="?", metavar="SUITE",
        help="name of a suite or a dataset (default: that of the latest run)")  # fmt: skip
    add("--only", action="append", default=[], choices=LEDGER_STATUSES,
        help="only samples with this status; repeatable (default: all but saturated)")  # fmt: skip
    add("--min-runs", type=whole_number(1), default=3, metavar="K",
        help="runs after which a sample can be dead or saturated (default 3)")  # fmt: skip
    add("--last", type=whole_number(1), metavar="N", help="read only the latest N runs")
    add("--limit", type=whole_number(1), default=DEFAULT_LIMIT, metavar="N",
        help=f"samples to list as text (default {DEFAULT_LIMIT})")  # fmt: skip
    add_run_filters(parser)
    add_format(parser, short=True)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the samples did."""
    with open_existing_store(args) as store:
        records = matching_runs(store.runs(), args)
        name = args.name or args.suite or args.dataset
        if name is None:
            name = run_title(store.run("latest").manifest)
        if args.last is not None:
            own = [r for r in records if name in (run_title(r.manifest), r.manifest.dataset_name)]
            records = own[: args.last]
        ledger = read_ledger(store, name, min_runs=args.min_runs, runs=records)
    quarantined = [entry.sample for entry in load_quarantine(name) if not entry.expired]
    ledger = replace(ledger, quarantined=tuple(quarantined))
    wanted = args.only or ["flaky", "broken", "dead"]
    entries = ledger.with_status(*wanted)
    if args.format == "json":
        data = {
            "suite": ledger.suite,
            "runs": ledger.runs,
            "samples": len(ledger.entries),
            "min_runs": ledger.min_runs,
            "counts": ledger.counts,
            "differences": ledger.differences,
            "quarantined": ledger.quarantined,
            "entries": entries if args.only else ledger.entries,
        }
        write_line(sys.stdout, data)
    else:
        _print(ledger, entries, args.limit, same_store(args))
    return 0


def _print(ledger: Ledger, entries: Sequence[LedgerEntry], limit: int, store: str) -> None:
    to = screen()
    counts = ", ".join(f"{count:,} {status}" for status, count in ledger.counts.items())
    head = f"{pluralize(len(ledger.entries), 'sample')}, {pluralize(len(ledger.runs), 'run')}: "
    print_stdout(to, Text.assemble((one_line(ledger.suite), "bold"), f"  {head}{counts}"))
    if entries:
        listed = sorted(entries, key=lambda entry: LEDGER_STATUSES.index(entry.statuses[0]))
        print_stdout(to, Text(), _table(listed[:limit], ledger, to.width))
    notes = [
        f"{status}: {MEANINGS[status]}"
        for status in LEDGER_STATUSES
        if any(status in entry.statuses for entry in entries)
    ]
    if len(entries) > limit:
        notes.append(f"There are more: --limit {len(entries)}, or --json")
    if len(ledger.runs) < ledger.min_runs:
        notes.append(
            f"note: {pluralize(len(ledger.runs), 'run')} cannot show that a sample is dead or "
            f"saturated: that takes {ledger.min_runs} (--min-runs)"
        )
    if ledger.differences:
        notes.append(f"note: the runs of {one_line(ledger.suite)} are {ledger.differences}")
    if entries:
        notes.append(
            f"One sample: wink eval show {ledger.runs[-1]} SAMPLE{store} - to leave it out: "
            f"wink eval quarantine add {one_line(ledger.suite)} SAMPLE --reason TEXT --until DATE"
        )
    if notes:
        print_stderr("", *notes)


def _table(entries: Sequence[LedgerEntry], ledger: Ledger, width: int) -> Text:
    table = {
        "sample": [Text(one_line(entry.sample), "bold") for entry in entries],
        "status": [
            Text(", ".join(entry.statuses), COLOURS[entry.statuses[0]]) for entry in entries
        ],
        "runs": [Text(f"{entry.runs:,}") for entry in entries],
        "passed": [Text(f"{entry.passed:,}/{entry.passed + entry.failed:,}") for entry in entries],
        "errors": [Text(f"{entry.errors:,}" if entry.errors else "") for entry in entries],
        "since": [Text(entry.broken_since) for entry in entries],
        "": [Text("quarantined" * (entry.sample in ledger.quarantined)) for entry in entries],
    }
    table = without_empty(table, "errors", "since", "")
    return columns(table, width, right={"runs", "passed", "errors"}, shrink=("sample",))
