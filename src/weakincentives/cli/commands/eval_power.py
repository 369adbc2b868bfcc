"""`wink eval power`: estimate what a comparison can detect, from the variance of earlier runs."""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from rich.text import Text

from ...errors import UsageError
from ...evals.comparison import RunOutcomes
from ...evals.comparison.compare import flips_between
from ...evals.comparison.measures import Flips
from ...evals.stats import (
    flip_power,
    minimum_detectable_flips,
    samples_needed_flips,
    variance_split,
)
from ..console.comparison import facts_line, find_runs
from ..console.json_output import write_line
from ..console.styled_text import one_line, pluralize, print_stderr
from ..console.text_tables import print_stdout, screen
from ..options.parsing import allow_intermixed_args, non_negative, whole_number
from ..options.runs import RUN_HELP, add_confidence, add_format, add_run, add_store, same_store

DEFAULT_EFFECT = 5.0  # points


def configure(parser: ArgumentParser) -> None:
    """Add the options."""
    allow_intermixed_args(parser)
    add_run(parser, RUN_HELP)
    add = parser.add_argument
    add("other", nargs="?", metavar="RUN_B", help="second run, to measure the variance of changes")
    add("--effect", type=non_negative, metavar="POINTS",
        help=f"difference to detect, in points (default {DEFAULT_EFFECT:g})")  # fmt: skip
    add("--samples", type=whole_number(2), metavar="N", help="samples per run (default: as RUN)")
    add("--epochs", type=whole_number(1), metavar="N", help="epochs per run (default: as RUN)")
    add("--budget", type=whole_number(2), metavar="ATTEMPTS",
        help="attempts per run: choose the epochs, and at most --samples samples")  # fmt: skip
    add_format(parser)
    add_confidence(parser)
    add_store(parser)


def run(args: Namespace) -> int:
    """Return exit code 0."""
    if args.effect is not None and not 0 < args.effect <= 100:
        raise UsageError(f"expected --effect above 0, up to 100 points, got {args.effect:g}")
    earlier, *others = find_runs(args, filter(None, [args.run_id, args.other]))
    other = others[0] if others else None
    if other is not None and other.name == earlier.name:
        raise UsageError(f"expected two different runs, got {other.name} twice")
    if not earlier.rows:
        raise UsageError(f"expected a run with results, got none in {earlier.name} - name another")
    if other is not None and args.epochs:
        raise UsageError("expected RUN_B or --epochs, got both - the epochs of two runs are fixed")
    if other is not None and args.budget:
        raise UsageError("expected RUN_B or --budget, got both - the epochs of two runs are fixed")
    if args.epochs and args.budget:
        raise UsageError("expected --epochs or --budget, got both - a budget chooses the epochs")
    alpha = 1 - args.confidence
    samples = args.samples or len({row.sample for row in earlier.rows})
    epochs = args.epochs or earlier.epochs
    if args.budget:
        samples, epochs = _best_plan(earlier, args.budget, samples, alpha)
    effect = (args.effect or DEFAULT_EFFECT) / 100
    if other is not None:
        assumptions = {"if runs differ as much as these two": flips_between(earlier, other)}
    else:
        assumptions = _assumptions(earlier, epochs)
    results = [
        {"assuming": assumption, **_plan(flips, samples, effect, alpha)}
        for assumption, flips in assumptions.items()
    ]
    if args.format == "json":
        data = {
            "run": earlier.name,
            "samples": samples,
            "epochs": epochs,
            "effect": effect * 100,
            "confidence": args.confidence,
            "guesses": results,
        }
        write_line(sys.stdout, data)
        return 0
    print_stdout(screen(), *_lines(earlier, (samples, epochs, args.budget), effect, results))
    if other is None:
        if epochs > 1 and earlier.epochs < 2:
            print_stderr(
                "",
                "A run with one epoch does not show how much the epochs of a sample differ: "
                "the truth is between these two. A run with --epochs 2 or more shows it.",
            )
        command = f"wink eval power RUN_A RUN_B{same_store(args)}"
        print_stderr("", f"Two runs give a better estimate: {command}")
    return 0


def _plan(flips: Flips, samples: int, effect: float, alpha: float) -> dict[str, float]:
    """Return what a comparison of this many samples can show, by the test that `compare` uses."""
    pairs = flips.pairs(samples)
    share = max(flips.share, effect)  # an effect takes at least as many flips
    needed = samples_needed_flips(effect, share, alpha=alpha)
    return {
        "sd": math.sqrt(flips.share / flips.pairs_per_sample),
        "flips": flips.share,
        "pairs_per_sample": flips.pairs_per_sample,
        "detectable": 100 * minimum_detectable_flips(pairs, flips.share, alpha=alpha),
        "power": flip_power(pairs, effect, share, alpha=alpha),
        "samples_needed": math.ceil(needed / flips.pairs_per_sample),
    }


def _best_plan(run: RunOutcomes, budget: int, samples: int, alpha: float) -> tuple[int, int]:
    """Return the samples and epochs that show the smallest difference for this many attempts.

    The cautious assumption decides, and the fewest epochs if several are as good.
    """

    def detectable(plan: tuple[int, int]) -> float:
        flips = next(iter(_assumptions(run, plan[1]).values()))
        return round(minimum_detectable_flips(flips.pairs(plan[0]), flips.share, alpha=alpha), 3)

    fewest = max(1, budget // samples)
    plans = [(min(samples, budget // epochs), epochs) for epochs in range(fewest, 2 * fewest + 1)]
    return min((plan for plan in plans if plan[0]), key=detectable)


def _assumptions(run: RunOutcomes, epochs: int) -> dict[str, Flips]:
    """Return how much two runs with this many epochs may differ, by what that assumes.

    The first is cautious; with epochs, there is an optimistic one too.
    """
    groups: dict[str, list[float]] = {}
    for row in run.rows:
        groups.setdefault(row.sample, []).append(float(row.passed))
    n, passed = len(run.rows), run.figures.passed
    cautious = "if the runs are independent"
    if len(groups) < 2 or n == len(groups):
        # Add one pass and one failure: a run in which everything passed still has variance.
        rate = (passed + 1) / (n + 2)
        share = 2 * rate * (1 - rate)
        if epochs == 1:
            return {cautious: Flips(share)}
        return {
            f"{cautious} and all epochs of a sample have the same outcome": Flips(share),
            f"{cautious} and the epochs of a sample differ as samples do": Flips(share, epochs),
        }
    split = variance_split(groups)
    within = max(split.within, 1 / (n + 2))
    total = split.between + within
    return {
        cautious: Flips(min(1.0, 2 * total), total / (split.between + within / epochs)),
        "if the same samples are hard in both": Flips(min(1.0, 2 * within), epochs),
    }


def _lines(
    run: RunOutcomes,
    plan: tuple[int, int, int | None],
    effect: float,
    results: list[dict[str, Any]],
) -> list[Text]:
    samples, epochs, budget = plan
    size = pluralize(samples, "sample") + (f" x {epochs} epochs" if epochs > 1 else "")
    if budget:
        size += f", {samples * epochs:,} of {pluralize(budget, 'attempt')} each"
    lines = [
        Text.assemble(("from ", "dim"), one_line(f"{run.name}  {facts_line(run)}")),
        Text.assemble(("for  ", "dim"), f"a comparison of two runs of {size}"),
    ]
    for result in results:
        points = result["detectable"]
        detectable = f"{points:.1f} points" if points <= 100 else "nothing"
        lines += [
            Text(),
            Text(f"It detects {detectable} with 80% power, {result['assuming']}.", "bold"),
            Text(
                f"To detect {effect * 100:g} points takes {result['samples_needed']:,} samples; "
                f"with these, the power is {result['power']:.0%}."
            ),
        ]
    return lines
