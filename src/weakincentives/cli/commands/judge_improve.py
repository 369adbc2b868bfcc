"""`wink judge improve`: where a judge and people disagree, and whether another judge does less."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

from ...errors import UsageError, short_repr
from ...evals.model.corrections import interval_words
from ...evals.reporting.documents import rate_data
from ...evals.review import JudgeTrial, try_judge
from ...evals.review.improvement import TrialRow
from ...internal.escaping import as_text, escape_control_chars
from ...internal.formatting import verdict_word
from ..console.json_output import write_line
from ..console.styled_text import one_line, print_stderr
from ..options.execution import add_model_settings
from ..options.parsing import whole_number
from ..options.runs import add_format, add_run, add_store, open_existing_store
from ..options.settings import add_setting
from .judge_calibrate import judge_of

DEFAULT_LISTED = 10
MAX_CHARS = 300  # per text


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    add_run(parser)
    add = parser.add_argument
    add("--criterion", metavar="NAME", help="which judge of the run, if it has several")
    add("--judge", metavar="REF",
        help="try this judge instead: module:object, path.py:object, or a name")  # fmt: skip
    add("--model", metavar="MODEL", help="model for the judge to try: openai/gpt-4o, ...")
    add_model_settings(add)
    add("--text", metavar="TEXT", help="criterion to try with --model, instead of --judge")
    add("--test", action="store_true",
        help="report on the test half, without its samples; every look is counted")  # fmt: skip
    add("--limit", type=whole_number(1), default=DEFAULT_LISTED, metavar="N",
        help=f"disagreements to show (default {DEFAULT_LISTED})")  # fmt: skip
    add_setting(add, "max_concurrent", "default 8", default=8)
    add_format(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0, whatever the agreement."""
    if args.model and not (args.judge or args.text):
        raise UsageError("expected --judge or --text with --model, got neither")
    with (
        open_existing_store(args) as store,
        redirect_stdout(sys.stderr),
    ):  # what a judge prints is not data
        judge = judge_of(args, args.text, "--text") if args.judge or args.text else None
        trial = try_judge(
            store,
            args.run_id,
            criterion=args.criterion,
            judge=judge,
            half="test" if args.test else "dev",
            max_concurrent=args.max_concurrent,
        )
    if args.format == "json":
        write_line(sys.stdout, _data(trial))
        return 0
    print("\n".join(_lines(trial, args.limit, is_new=judge is not None)))
    _print_looks(trial)
    return 0


def _lines(trial: JudgeTrial, limit: int, *, is_new: bool) -> Iterator[str]:
    half = "test half" if trial.half == "test" else "development half"
    before = f" (the run's own judge: {trial.agreed_before})" if is_new else ""
    errors = f", {trial.errors} without a verdict" if trial.errors else ""
    yield (
        f"{one_line(trial.judge)}: agrees with people on {trial.agreed} of {trial.n} in the "
        f"{half}{before}{errors}"
    )
    if trial.half == "test":
        yield f"agreement {interval_words(trial.agreement)}"
        return
    differ = trial.disagreements
    if differ:
        yield f"Disagreements: {len(differ)}"
    for row in differ[:limit]:
        yield from _disagreement(row)
    if len(differ) > limit:
        yield f"  and {len(differ) - limit} more: --limit N"


def _disagreement(row: TrialRow) -> Iterator[str]:
    sample = row.result.sample
    judge = "no verdict" if row.judge is None else f"judge {verdict_word(row.judge)}"
    was = "" if row.before is row.judge else f" (was {verdict_word(row.before, 'error')})"
    yield f"  {short_repr(row.result.sample_id)}: human {verdict_word(row.human)}, {judge}{was}"
    texts = {
        "input": sample.input if sample else None,
        "expected": sample.expected if sample else None,
        "output": row.result.output,
        "reason": row.reason,
    }
    for name, value in texts.items():
        if text := " ".join(escape_control_chars(as_text(value)).split()):
            short = text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"
            yield f"    {name + ':':<10}{short}"


def _print_looks(trial: JudgeTrial) -> None:
    looks = trial.looks
    times = "once" if looks == 1 else f"{looks} times"
    if trial.half == "dev":
        so_far = f"looked at {times} so far" if looks else "not looked at yet"
        print_stderr("", f"The other half of the labels is a test: add --test ({so_far})")
    elif looks == 1:
        print_stderr("", "This is the first look at the test half.")
    else:
        print_stderr(
            "",
            f"The test half was looked at {times}, this time included: the more often it decides "
            "between judges, the less it says about new outputs. Label new ones: wink judge sample",
        )


def _data(trial: JudgeTrial) -> dict[str, Any]:
    return {
        "run_id": trial.run_id,
        "criterion": trial.criterion,
        "judge": trial.judge,
        "half": trial.half,
        "n": trial.n,
        "agreed": trial.agreed,
        "agreed_before": trial.agreed_before,
        "errors": trial.errors,
        "agreement": rate_data(trial.agreement),
        "test_looks": trial.looks,
        "disagreements": [
            {
                "id": row.result.sample_id,
                "epoch": row.result.epoch,
                "human": verdict_word(row.human),
                "judge": verdict_word(row.judge, "error"),
                "before": verdict_word(row.before, "error"),
                "reason": row.reason,
            }
            for row in trial.disagreements
        ],
    }
