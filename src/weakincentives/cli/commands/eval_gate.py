"""`wink eval gate`: judge a run against a baseline by one rule, as an exit code."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser, Namespace

from rich.text import Text

from ...errors import UsageError
from ...evals.comparison import FlipDetails, RunComparison, RunOutcomes
from ...evals.comparison.gates import MAX_ERROR_RATE, PASSED, BaselineRule, check_baseline
from ...evals.reporting.github import on_github, report_gate_to_github
from ..console.comparison import (
    age_of,
    comparison_data,
    comparison_markdown,
    facts_line,
    find_runs,
    print_warnings,
    read_flips,
)
from ..console.json_output import write_line
from ..console.streams import print_commands
from ..console.styled_text import one_line
from ..console.text_tables import print_stdout, screen
from ..options.parsing import non_negative, share
from ..options.runs import (
    RUN_HELP,
    add_confidence,
    add_format,
    add_run,
    add_store,
)
from ..options.settings import add_setting
from ..runner import EXIT_CODES

HELP = """\
rules:
  no-regression  fails if the run is shown to be worse than the margin allows
  non-inferior   passes if the run is shown to be worse by less than the margin, if at all
  better         passes if the run is shown to be better by that margin

exit codes:
  0    pass
  1    fail: shown to be worse (with --rule better: not to be better)
  2    wrong usage, or something that the command names is missing or broken
  3    no verdict: incomplete, too many errors, or not comparable
  5    inconclusive: more samples would decide

Errors of evaluators and infrastructure are left out of the comparison; errors of the agent are
failures. `wink eval baseline` saves a baseline: a gate never changes one.
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = HELP
    add_run(parser, RUN_HELP)
    add = parser.add_argument
    add("--baseline", metavar="RUN|FILE", help="run or baseline file to compare with")
    add("--metric", default=PASSED, metavar="NAME",
        help="what to compare: passed (default), score, a criterion, latency_ms, tokens, "
        "cost")  # fmt: skip
    add("--margin", type=non_negative, metavar="POINTS",
        help="tolerated difference, in points or the metric's unit (default 0)")  # fmt: skip
    add("--rule", choices=("no-regression", "non-inferior", "better"),
        help="default: no-regression, or non-inferior with --margin")  # fmt: skip
    add("--max-error-rate", type=share, metavar="RATE",
        default=MAX_ERROR_RATE,
        help="tolerated share of errors that are left out "
        f"(default {MAX_ERROR_RATE:.0%})".replace("%", "%%"))  # fmt: skip
    add("--save-baseline", metavar="FILE", help=argparse.SUPPRESS)  # of an earlier release
    add_setting(add, "cluster_by", "default: that of the runs")
    add("--force", action="store_true",
        help="compare even if evaluators or samples differ, or a run mixes versions")  # fmt: skip
    add_format(parser)
    add_confidence(parser, "one-sided confidence level")
    add_store(parser)


def run(args: Namespace) -> int:
    """Return the exit code by the rule."""
    rule, margin = _rule(args)
    after, before = find_runs(args, (args.run_id, args.baseline), cluster_by=args.cluster_by)
    gate = check_baseline(
        before,
        after,
        rule,
        metric=args.metric,
        margin=margin,
        max_error_rate=args.max_error_rate,
        confidence=args.confidence,
        cluster_by=args.cluster_by,
        force=args.force,
    )
    code, reason, compared = EXIT_CODES[gate.outcome], gate.reason, gate.compared
    details: list[tuple[FlipDetails, ...]] = []
    if compared is not None and (args.format == "json" or on_github()):
        details, _ = read_flips(args, [args.baseline, args.run_id], [compared], None)
    if args.format == "json":
        data = {
            "exit_code": code,
            "outcome": gate.outcome,
            "rule": rule,
            "metric": args.metric,
            "margin": margin,
            "reason": reason,
            **({} if compared is None else comparison_data([compared], None, details)),
        }
        write_line(sys.stdout, data)
    else:
        _print_verdict(before, after, compared, code, reason)
    if compared is not None:
        print_warnings(note for note in compared.warnings if note != compared.left_out)
    if on_github():
        verdict = "" if compared is None else str(compared)
        markdown = () if compared is None else comparison_markdown([compared], details)
        name = f"{after.title}: {rule}"
        print_commands(report_gate_to_github(name, verdict, markdown, code=code, rule=reason))
    return code


def _rule(args: Namespace) -> tuple[BaselineRule, float]:
    """Return the rule, and its margin in points."""
    if args.save_baseline is not None:
        raise UsageError(
            "expected no --save-baseline: a gate does not change a baseline - "
            f"use `wink eval baseline {args.run_id} -o {args.save_baseline}`"
        )
    if args.baseline is None:
        raise UsageError(
            "expected --baseline RUN or FILE, got none - `wink eval baseline` creates a file"
        )
    rule: BaselineRule = args.rule or ("no-regression" if args.margin is None else "non-inferior")
    if rule == "non-inferior" and not args.margin:
        raise UsageError("expected --margin POINTS above 0 for the rule non-inferior, got none")
    return rule, args.margin or 0.0


def _print_verdict(
    before: RunOutcomes, after: RunOutcomes, compared: RunComparison | None, code: int, reason: str
) -> None:
    lines = [
        Text.assemble((f"{label:<12}", "dim"), one_line(f"{run.name}  {facts_line(run)}{age}"))
        for label, run, age in (("A baseline", before, f", {age_of(before)}"), ("B run", after, ""))
    ]
    if compared is not None:
        lines += [Text(), Text(one_line(str(compared)))]
        flips = compared.fixed, compared.broken
        if any(flips):
            lines.append(Text(f"{flips[0]:,} fixed, {flips[1]:,} broken"))
    lines += [
        Text(),
        Text(one_line(f"exit {code}: {reason}"), "bold red" if code else "bold green"),
    ]
    print_stdout(screen(), *lines)
