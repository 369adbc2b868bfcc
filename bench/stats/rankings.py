"""Do the ranks and intervals of Bradley-Terry keep their 95%, also if samples are correlated?"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from weakincentives.evals.stats import Match, bradley_terry, length_bias

from .tables import Table, percent

__all__ = ["PARTS"]

SAMPLES = (20, 50, 100)
CONTENDERS = {
    "2 equal": (0.0, 0.0),
    "3 equal": (0.0, 0.0, 0.0),
    "2 strong, 1 weak": (1.0, 1.0, -2.0),
    "2, far apart": (1.25, -1.25),
    "4, close": (0.5, 0.2, 0.0, -0.7),
}
RESAMPLES = 300


def _ranks(runs: int) -> list[Table]:
    """Return the errors of ranks, and the coverage of win rates."""
    runs = max(4, runs // 4)  # each is a whole bootstrap
    wrong, covered = [], []
    for number, (name, strengths) in enumerate(CONTENDERS.items()):
        rng = np.random.default_rng(number)
        figures = [_ranked(rng, strengths, n, runs) for n in SAMPLES]
        wrong.append((name, [figure[0] for figure in figures]))
        covered.append((name, [figure[1] for figure in figures]))
    columns = ["contenders", *(f"n = {n}" for n in SAMPLES)]
    return [
        Table("rankings with a wrong rank, %", columns, wrong, at_most=7),
        Table("coverage of the chance to win, %", columns, covered, at_least=91),
    ]


def _chance(edge: float) -> float:
    return 1 / (1 + math.exp(-edge))


def _ranked(
    rng: np.random.Generator, strengths: tuple[float, ...], n: int, runs: int
) -> tuple[float, float]:
    """Return how often a true rank is excluded, and how often chances to win are covered."""
    count = len(strengths)
    names = [str(at) for at in range(count)]
    pairs = [*combinations(range(count), 2)]
    chances = np.array([_chance(strengths[a] - strengths[b]) for a, b in pairs])
    wrong, covered = [], []
    for _ in range(runs):
        # Two answers for each sample and pair, one in each order, as a judge gives them.
        won = (rng.random((n, len(pairs), 2)) < chances[None, :, None]).mean(axis=2)
        drawn: list[Match] = [
            (sample, names[a], names[b], float(won[sample, at]))
            for sample in range(n)
            for at, (a, b) in enumerate(pairs)
        ]
        ranking = bradley_terry(drawn, resamples=RESAMPLES)
        missed = False
        for each in ranking.contenders:
            own = strengths[int(each.name)]
            first = 1 + sum(other > own for other in strengths)
            last = count - sum(other < own for other in strengths)
            missed |= not (each.ranks[0] <= first and last <= each.ranks[1])
        wrong.append(missed)
        covered += [
            chance in ranking.win_probability(names[a], names[b])
            for (a, b), chance in zip(pairs, chances.tolist(), strict=True)
        ]
    return percent(wrong), percent(covered)


def _length(runs: int) -> Table:
    """Return how often the interval of the length bias covers it, if the longer one is better."""
    runs, rng = max(4, runs // 4), np.random.default_rng(9)
    rows = []
    for often in (0.5, 0.8):
        figures = []
        for bias in (0.0, 0.4, 1.0):
            covered = []
            for _ in range(runs):
                longer = np.where(rng.random(100) < often, 1, -1)
                won = rng.random(100) < 1 / (1 + np.exp(-(0.7 + bias * longer)))
                drawn = [(n, "a", "b", float(won[n]), int(longer[n])) for n in range(100)]
                covered.append(_chance(bias) in length_bias(drawn, resamples=RESAMPLES))
            figures.append(percent(covered))
        rows.append((f"the better one is longer in {often:.0%}", figures))
    columns = ["100 samples", "no bias", "60%", "73%"]
    return Table("coverage of the length bias, %", columns, rows, at_least=91)


PARTS = (_ranks, _length)
