"""Find the best of several models within a budget, by successive halving.

Rules of this file:
1. In each round the models that are left run on the same further samples, which are drawn at
   random, and the better half stays: by all samples so far.
2. Each round costs the same, so that the models that are hard to tell apart get more samples.
3. The winner and the other finalist are compared on the samples of the last round alone: those did
   not choose the two, so their test is as good as any.

(Z. Karnin, T. Koren and O. Somekh, Almost Optimal Exploration in Multi-Armed Bandits, ICML 2013.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Halving", "Round", "halve", "round_sizes"]


@dataclass(frozen=True, slots=True)
class Round:
    """A round: up to how many samples each model had run, its passes, and who was dropped."""

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
    count = math.ceil(math.log2(models))
    sizes: list[int] = []
    left, samples = models, 0
    for _ in range(count):
        samples = min(samples + budget // (count * left * epochs), available)
        sizes.append(samples)
        left = math.ceil(left / 2)
    return sizes


def halve(
    models: Sequence[str], sizes: Sequence[int], passed: Callable[[str, int], int]
) -> Halving:
    """Run the rounds. `passed` runs a model up to a number of samples and returns its passes."""
    left, rounds = list(models), []
    for at, samples in enumerate(sizes):
        counts = {model: passed(model, samples) for model in left}
        ranked = sorted(left, key=lambda model: -counts[model])
        kept = max(2, math.ceil(len(left) / 2)) if at < len(sizes) - 1 else len(left)
        # In their own order, as the next round runs them.
        left = [model for model in left if model in ranked[:kept]] if kept < len(left) else ranked
        rounds.append(Round(samples, counts, tuple(ranked[kept:])))
    return Halving(tuple(rounds), tuple(left))
