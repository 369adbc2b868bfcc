"""`wink eval gate`: a run against a baseline, by one rule, as an exit code."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..errors import UsageError
from ._comparing import (
    RUN_HELP,
    Finder,
    add_confidence,
    comparison_data,
    comparison_markdown,
    facts_line,
    say_warnings,
)
from ._eval_run import number, share
from ._views import add_store, out, say, screen

if TYPE_CHECKING:
    from ..evals._comparison import RunComparison
    from ..evals._outcomes import RunOutcomes

__all__ = ["configure", "run"]

EXIT_CODES = """\
rules:
  no-regression  fails where the run is shown to be worse, by more than the margin (0)
  non-inferior   holds where the run is shown to be worse by less than the margin, if at all
  better         holds where the run is shown to be better, by more than the margin (0)

exit codes:
  0    the rule holds
  1    it does not
  2    the command or what it names is wrong
  3    it cannot be judged: the run is not complete, has too many errors, or is no match
"""


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXIT_CODES
    add = parser.add_argument
    add("run_id", nargs="?", default="latest", metavar="RUN", help=f"{RUN_HELP} (latest)")
    add("--baseline", metavar="RUN|FILE", help="what it must stand up to")
    add("--margin", type=number, metavar="POINTS", help="how many points do not matter")
    add(
        "--rule", choices=("no-regression", "non-inferior", "better"),
        help="no-regression, or non-inferior where a margin is given",
    )  # fmt: skip
    add("--max-error-rate", type=share, metavar="RATE", help="how many may be errors (any)")
    add("--save-baseline", metavar="FILE", help="write the run as a baseline, if the rule holds")
    add("--force", action="store_true", help="also where the runs were not measured alike")
    add("--format", choices=("text", "json"), default="text", help="text to read, or data")
    add_confidence(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """The rule decides on the exit code."""
    from .. import serde
    from ..evals._compare import compare_runs
    from ..evals._outcomes import save_baseline

    rule, margin = _rule(args)
    with ExitStack() as stack:
        finder = Finder(args, stack)
        after = finder.find(args.run_id)
        before = finder.find(args.baseline) if args.baseline else None
    told, compared = _why_not(args, before or after, after), None
    if before is None:
        if told:
            say(f"exit 3: no baseline: {told}")
            return 3
        save_baseline(after, args.save_baseline)
        say(f"baseline of {after.name} ({facts_line(after)}): {args.save_baseline}")
        return 0
    if told:
        code, reason = 3, f"cannot be judged: {told}"
    else:
        compared = compare_runs(before, after, confidence=args.confidence, force=True)
        holds, reason = _judged(compared, rule, margin)
        code = 0 if holds else 1
    if args.format == "json":
        data = {
            "exit_code": code,
            "rule": rule,
            "margin": margin,
            "reason": reason,
            **({} if compared is None else comparison_data([compared], None)),
        }
        sys.stdout.write(serde.encode(data).decode() + "\n")
    else:
        _show(before, after, compared, code, reason)
    if compared is not None:
        say_warnings(compared.warnings)
    _tell_github(after, compared, rule, code, reason)
    if code == 0 and args.save_baseline:
        save_baseline(after, args.save_baseline)
        say(f"baseline: {args.save_baseline}")
    return code


def _tell_github(
    run: RunOutcomes, compared: RunComparison | None, rule: str, code: int, reason: str
) -> None:
    from ..evals._github import on_github, tell_gate

    if on_github():
        name = f"{run.dataset_name or run.name}: {rule}"
        verdict = "" if compared is None else str(compared)
        table = () if compared is None else comparison_markdown([compared])
        say(*tell_gate(name, verdict, table, code=code, rule=reason))


def _rule(args: Namespace) -> tuple[str, float]:
    """The rule, and its margin in points."""
    if args.baseline is None:
        if args.save_baseline is None:
            raise UsageError(
                "expected --baseline RUN or FILE, got none - --save-baseline makes one"
            )
        if args.rule or args.margin is not None:
            raise UsageError("expected --baseline with --rule and --margin, got none")
    rule = args.rule or ("no-regression" if args.margin is None else "non-inferior")
    if rule == "non-inferior" and not args.margin:
        raise UsageError("expected --margin POINTS above 0 for the rule non-inferior, got none")
    return rule, args.margin or 0.0


def _why_not(args: Namespace, before: RunOutcomes, after: RunOutcomes) -> str:
    """Why no rule could decide; empty where one can."""
    from ..evals._outcomes import incomparable

    for each in (before, after):
        if not each.rows:
            return f"{each.name} has no results"
        if each.unfinished:
            return f"{each.name} is not complete: {each.unfinished}"
    total, allowed = len(after.rows), args.max_error_rate
    if allowed is not None and after.errors > allowed * total:
        return f"{after.errors} of {total} are errors, --max-error-rate allows {allowed:.1%}"
    problems = [] if args.force else incomparable(before, after)
    return f"{'; '.join(problems)} (--force judges anyway)" if problems else ""


def _judged(compared: RunComparison, rule: str, margin: float) -> tuple[bool, str]:
    """Whether the rule holds, and the rule with the numbers that decided."""
    measure = compared.measure
    delta = measure.difference.delta
    sure = f"{delta.confidence * 100:g} %"
    points = f"{margin:g} points"
    if rule == "no-regression":
        holds = not (measure.outcome == "worse" and delta.high * 100 < -margin)
        asks = "not shown to be worse" + (f" by more than {points}" if margin else "")
    elif rule == "non-inferior":
        holds = delta.low * 100 > -margin
        asks = f"{sure} sure to be worse by less than {points}, if at all"
    else:
        holds = measure.outcome == "better" and delta.low * 100 > margin
        asks = "shown to be better" + (f" by more than {points}" if margin else "")
    told = f"{rule} {'holds' if holds else 'fails'}: it asks for a run that is {asks}"
    if rule == "non-inferior" and not holds and measure.outcome != "worse":
        power = f"wink eval power --effect {margin:g}"
        told += f" - nor is it shown to be worse: more samples decide ({power})"
    return holds, told


def _show(
    before: RunOutcomes, after: RunOutcomes, compared: RunComparison | None, code: int, reason: str
) -> None:
    from rich.text import Text

    from ._summary import harmless

    lines = [
        Text.assemble((f"{label:<12}", "dim"), harmless(f"{run.name}  {facts_line(run)}"))
        for label, run in (("A baseline", before), ("B run", after))
    ]
    if compared is not None:
        lines += [Text(), Text(harmless(str(compared)), "bold")]
        flips = compared.fixed, compared.broken
        if any(flips):
            lines.append(Text(f"{flips[0]:,} fixed, {flips[1]:,} broken"))
    lines += [
        Text(),
        Text(harmless(f"exit {code}: {reason}"), "bold red" if code else "bold green"),
    ]
    out(screen(), *lines)
