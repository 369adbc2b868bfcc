"""`wink eval power`: what a run of so many samples would see, from how an earlier one varied."""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ._comparing import RUN_HELP, Finder, add_confidence, facts_line
from ._eval_run import number, whole
from ._views import add_store, out, same_store, say, screen, words_anywhere

if TYPE_CHECKING:
    from rich.text import Text

    from ..evals._outcomes import RunOutcomes

__all__ = ["configure", "run"]

POWER = 0.8
EFFECT = 5.0  # points


def configure(parser: ArgumentParser) -> None:
    """Add the verb's options."""
    words_anywhere(parser)
    add = parser.add_argument
    add("run_id", nargs="?", default="latest", metavar="RUN", help=f"{RUN_HELP} (latest)")
    add("other", nargs="?", metavar="RUN_B", help="a second run: then the spread is measured")
    add("--effect", type=number, metavar="POINTS", help=f"what one would like to see ({EFFECT:g})")
    add("--samples", type=whole(2), metavar="N", help="of the comparison (as many as RUN)")
    add("--epochs", type=whole(1), metavar="N", help="of each run (as many as RUN)")
    add("--format", choices=("text", "json"), default="text", help="text to read, or data")
    add_confidence(parser)
    add_store(parser)


@dataclass(frozen=True, slots=True)
class Guess:
    """How much the difference of a sample varies from sample to sample, and why we think so."""

    spread: float
    because: str


def run(args: Namespace) -> int:
    """Exit code 0: this only looks ahead."""
    from .. import serde
    from ..evals.statistics import minimum_detectable_effect, power_of, samples_needed

    if args.effect is not None and not 0 < args.effect <= 100:
        raise UsageError(f"expected --effect above 0, up to 100 points, got {args.effect:g}")
    with ExitStack() as stack:
        finder = Finder(args, stack)
        earlier = finder.find(args.run_id)
        other = finder.find(args.other) if args.other else None
    if other is not None and other.name == earlier.name:
        raise UsageError(f"expected two runs to measure a spread on, got {other.name} twice")
    if not earlier.rows:
        raise UsageError(f"expected a run with results, got none in {earlier.name} - name another")
    samples = args.samples or len({row.sample for row in earlier.rows})
    epochs = args.epochs or earlier.epochs
    if other is not None and args.epochs:
        raise UsageError(
            "expected RUN_B or --epochs, got both - two runs have the epochs they have"
        )
    effect, alpha = (args.effect or EFFECT) / 100, 1 - args.confidence
    guesses = [_measured(earlier, other)] if other else list(_guesses(earlier, epochs))
    found = [
        {
            "assuming": guess.because,
            "sd": guess.spread,
            "detectable": 100 * minimum_detectable_effect(samples, guess.spread, alpha=alpha),
            "power": power_of(samples, effect, guess.spread, alpha=alpha),
            "samples_needed": samples_needed(effect, guess.spread, alpha=alpha),
        }
        for guess in guesses
    ]
    if args.format == "json":
        data = {
            "run": earlier.name,
            "samples": samples,
            "epochs": epochs,
            "effect": effect * 100,
            "confidence": args.confidence,
            "guesses": found,
        }
        sys.stdout.write(serde.encode(data).decode() + "\n")
        return 0
    out(screen(), *_told(earlier, samples, epochs, effect, found))
    if other is None:
        where = same_store(args)
        say("", f"Measured on two runs, it is less of a guess: wink eval power RUN_A RUN_B{where}")
    return 0


def _measured(before: RunOutcomes, after: RunOutcomes) -> Guess:
    from ..evals._compare import spread_of_changes

    return Guess(spread_of_changes(before, after), "as these two runs differ")


def _guesses(run: RunOutcomes, epochs: int) -> list[Guess]:
    """The cautious one first. With epochs, there is a hopeful one: only luck differs."""
    from ..evals.statistics import variance_split

    groups: dict[str, list[float]] = {}
    for row in run.rows:
        groups.setdefault(row.sample, []).append(float(row.passed))
    n, passed = len(run.rows), run.passed
    cautious = "if the two share no more than a pass rate"
    if len(groups) < 2 or n == len(groups):
        # One more of each: a run that passed everything does not prove that all runs will.
        rate = (passed + 1) / (n + 2)
        return [Guess(math.sqrt(2 * rate * (1 - rate)), cautious)]
    split = variance_split(groups)
    least = 1 / (n + 2)
    within = max(split.within, least)
    return [
        Guess(math.sqrt(2 * (split.between + within / epochs)), cautious),
        Guess(math.sqrt(2 * within / epochs), "if they find the same samples hard"),
    ]


def _told(
    run: RunOutcomes, samples: int, epochs: int, effect: float, found: list[dict[str, Any]]
) -> list[Text]:
    from rich.text import Text

    from ._summary import harmless

    size = f"{samples:,} sample{'' if samples == 1 else 's'}" + (
        f" x {epochs} epochs" if epochs > 1 else ""
    )
    lines = [
        Text.assemble(("from ", "dim"), harmless(f"{run.name}  {facts_line(run)}")),
        Text.assemble(("for  ", "dim"), f"a comparison of two runs of {size}"),
    ]
    for each in found:
        seen = each["detectable"]
        could = f"{seen:.1f} points" if seen <= 100 else "nothing"
        lines += [
            Text(),
            Text(f"It would see {could}, four times out of five, {each['assuming']}.", "bold"),
            Text(
                f"To see {effect * 100:g} points takes {each['samples_needed']:,} samples; "
                f"these would see them {each['power']:.0%} of the time."
            ),
        ]
    return lines
