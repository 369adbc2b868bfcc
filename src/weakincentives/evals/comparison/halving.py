"""Find the best of several models within a budget, by successive halving in small steps.

Rules of this file:
1. In each round the models that are left run on the same further samples, which are drawn at
   random, and the worst is dropped (of sixteen or more, the worst eighth): by all samples so far.
   Dropping half of them at once loses the best one more often: `python -m bench stats choosing`.
2. Each round costs the same, so that the models that are hard to tell apart get more samples. The
   last one costs twice as much.
3. The winner and the other finalist are compared on the samples of the last round alone: those did
   not select the two, so the test is unbiased.

(Z. Karnin, T. Koren and O. Somekh, Almost Optimal Exploration in Multi-Armed Bandits, ICML 2013.
J.-Y. Audibert, S. Bubeck and R. Munos, Best Arm Identification in Multi-Armed Bandits, COLT 2010.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """A round: up to how many samples each model had run, its passes, and which were dropped."""

    samples: int
    passed: Mapping[str, int]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Halving:
    """The rounds, and the models that were left: the best one first."""

    rounds: tuple[Round, ...]
    finalists: tuple[str, ...]


def round_sizes(models: int, budget: int, epochs: int, available: int) -> list[int]:
    """Return up to how many samples each model that is left has run, after each round.

    `budget` is in attempts, of which a sample takes `epochs`; there are `available` samples.
    """
    counts = [models]
    while counts[-1] > 2:
        counts.append(_kept(counts[-1]))
    sizes: list[int] = []
    samples = 0
    for at, left in enumerate(counts, 1):
        parts = 2 if at == len(counts) else 1
        samples += parts * budget // ((len(counts) + 1) * left * epochs)
        samples = min(samples, available)
        sizes.append(samples)
    return sizes


def _kept(models: int) -> int:
    """Return how many models stay after a round that is not the last one."""
    return max(2, models - max(1, models // 8))


def halve(
    models: Sequence[str], sizes: Sequence[int], passed: Callable[[str, int], int]
) -> Halving:
    """Run the rounds. `passed` runs a model up to a number of samples and returns its passes."""
    left, rounds = list(models), []
    for at, samples in enumerate(sizes):
        counts = {model: passed(model, samples) for model in left}
        ranked = sorted(left, key=lambda model: -counts[model])
        kept = _kept(len(left)) if at < len(sizes) - 1 else len(left)
        # In their own order, as the next round runs them.
        left = [model for model in left if model in ranked[:kept]] if kept < len(left) else ranked
        rounds.append(Round(samples, counts, tuple(ranked[kept:])))
    return Halving(tuple(rounds), tuple(left))
