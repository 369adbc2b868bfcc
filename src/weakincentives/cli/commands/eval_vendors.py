"""`wink eval vendors`: compare the tool calls of two providers of one model."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from ...evals import EvalResult
from ...evals.comparison.vendors import VendorComparison, compare_vendors
from ...evals.runs import Interval
from ..console.json_output import write_line
from ..console.styled_text import one_line
from ..console.text_tables import print_stdout, rate_text, screen, two_columns
from ..options.parsing import share
from ..options.runs import REFERENCES, add_confidence, add_format, add_store, open_existing_store

FIGURES = {
    "tool_call_f1": "tool-call F1",
    "precision": "  precision",
    "recall": "  recall",
    "schema_accuracy": "schema accuracy",
    "reference_schema_accuracy": "  of the reference",
    "malformed_call_rate": "malformed calls",
    "finish_agreement": "same finish reason",
    "similarity": "similarity (2025-09)",
}


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    about = f"{REFERENCES}, or a file with result lines of K2 Vendor Verifier (.jsonl)"
    add("run", metavar="RUN", help=about)
    add("reference", metavar="REFERENCE", help="the run to compare with, likewise")
    add("--fail-under", type=share, metavar="RATE", help="exit code 1 if tool-call F1 is below")
    add("-o", "--output", metavar="FILE", help="also write RUN as result lines of that tool")
    add_format(parser)
    add_confidence(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Print the figures; with --fail-under, F1 decides the exit code."""
    results = _results(args, args.run)
    compared = compare_vendors(results, _results(args, args.reference), confidence=args.confidence)
    if args.output:
        from ...contrib.importers import write_k2_results

        write_k2_results(results, args.output)
    if args.format == "json":
        write_line(sys.stdout, compared)
    else:
        _print(compared)
    f1 = compared.tool_call_f1
    if args.fail_under is not None and (f1 is None or f1.estimate < args.fail_under):
        return 1
    return 0


def _results(args: Namespace, reference: str) -> list[EvalResult[Any]]:
    if Path(reference).suffix in (".jsonl", ".gz", ".zst") and Path(reference).is_file():
        from ...contrib.importers import read_k2_results

        return list(read_k2_results(reference).results)
    with open_existing_store(args) as store:
        return list(store.report(store.run(reference).manifest.run_id).results)


def _print(compared: VendorComparison) -> None:
    left_out = f", {compared.left_out} left out: an error, or in one run only"
    rows = [("compared", f"{compared.compared} replies{left_out if compared.left_out else ''}")]
    for name, title in FIGURES.items():
        figure: Interval | None = getattr(compared, name)
        text = "-" if figure is None else f"{rate_text(figure).plain}, n = {figure.n}"
        rows.append((title, text))
    for title, counts in (("run", compared.counts), ("reference", compared.reference_counts)):
        rows.append(
            (
                title,
                f"{counts.finish_tool_calls} called tools ({counts.successful_tool_call_count} "
                f"valid), {counts.finish_stop} stopped, {counts.finish_others} others, "
                f"{counts.failure_count} failed",
            )
        )
    if compared.disagreements:
        listed = ", ".join(map(one_line, compared.disagreements[:5]))
        more = len(compared.disagreements) - 5
        rows.append(("one calls a tool", listed + (f" and {more} more" if more > 0 else "")))
    print_stdout(screen(), two_columns(rows, "dim"))
