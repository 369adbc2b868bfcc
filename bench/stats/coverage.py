"""How often the 95% interval of a pass rate contains the true rate, and whether it is monotone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np

from weakincentives.evals.stats import mean_interval
from weakincentives.evals.stats.intervals import Counts
from weakincentives.evals.stats.pass_rate import counted_rate

from .tables import Table, percent

__all__ = ["PARTS", "chances_of"]

RATES = (0.5, 0.8, 0.9, 0.95, 0.98)
SAMPLES = (10, 30, 100, 500)
EPOCHS = (2, 5, 10)
SHAPES = {
    "differ little": 10.0,
    "differ": 2.0,
    "differ much": 0.5,
    "few never pass": 0.0,
}
"""How the samples differ: the sum of the two parameters of a beta distribution of their rates.

`few never pass` has samples that never pass, and others that pass at 99 %.
"""


def chances_of(
    rng: np.random.Generator, rate: float, shape: str, size: int | tuple[int, ...]
) -> np.ndarray:
    """Draw the chance of each sample to pass; their mean is the rate."""
    if spread := SHAPES[shape]:
        return rng.beta(spread * rate, spread * (1 - rate), size)
    return np.where(rng.random(size) < rate / 0.99, 0.99, 0.0)


def _one_epoch(runs: int) -> Table:
    rng = np.random.default_rng(1)
    rows = []
    for rate in RATES:
        figures = []
        for n in SAMPLES:
            passed = Counter(rng.binomial(n, rate, runs).tolist())
            counts = {k: Counter({(1, 1): k, (1, 0): n - k}) for k in passed}
            figures.append(percent_covering(rate, ((counts[k], t) for k, t in passed.items())))
        rows.append((f"{rate:.0%}", figures))
    columns = ["rate", *(f"n = {n}" for n in SAMPLES)]
    return Table("coverage of the pass rate, 1 epoch", columns, rows, at_least=88)


def _headline(epochs: int, runs: int) -> Table:
    rng = np.random.default_rng(epochs)
    rows = []
    for rate in RATES:
        for shape in SHAPES:
            figures = []
            for n in SAMPLES:
                drawn = rng.binomial(epochs, chances_of(rng, rate, shape, (runs, n)))
                tallies = Counter(tuple(sorted(Counter(run).items())) for run in drawn.tolist())
                counted = (({(epochs, k): m for k, m in tally}, t) for tally, t in tallies.items())
                figures.append(percent_covering(rate, counted))
            rows.append((f"{rate:.0%}, samples {shape}", figures))
    columns = ["rate", *(f"n = {n}" for n in SAMPLES)]
    return Table(f"coverage of the pass rate, {epochs} epochs", columns, rows, at_least=93)


def percent_covering(rate: float, counted: Iterator[tuple[Counts, int]]) -> float:
    """Return how many of the runs, given by their counts and how often, cover the rate."""
    covered = total = 0
    for counts, times in counted:
        covered += times * (rate in counted_rate(counts))
        total += times
    return 100 * covered / total


def _scores(runs: int) -> Table:
    rng = np.random.default_rng(7)
    sizes, rows = (30, 50, 100), []
    for perfect in (0.0, 0.5, 0.8, 0.95):
        true = perfect + (1 - perfect) * 0.5
        figures = []
        for n in sizes:
            scores = np.where(rng.random((runs, n)) < perfect, 1.0, rng.random((runs, n)))
            figures.append(percent([true in mean_interval(run) for run in scores.tolist()]))
        rows.append((f"{perfect:.0%} are 1.0, the rest from 0 to 1", figures))
    columns = ["scores", *(f"n = {n}" for n in sizes)]
    return Table("coverage of the mean score", columns, rows, at_least=93)


def _monotone(runs: int) -> Table:
    """Count how often one more pass lowers the low end by more than a rounding."""
    rng = np.random.default_rng(8)
    rows = []
    for n in (10, 20, 50):
        figures = []
        for epochs in EPOCHS:
            lowered = []
            for _ in range(runs):
                rate, shape = rng.choice(RATES), rng.choice([*SHAPES])
                passed = rng.binomial(epochs, chances_of(rng, rate, shape, n))
                passed[rng.integers(n)] = rng.integers(epochs)  # at least one failure
                more = passed.copy()
                more[rng.choice(np.flatnonzero(passed < epochs))] += 1
                low, higher = (_low_end(epochs, side.tolist()) for side in (passed, more))
                lowered.append(higher < low - 1e-9)
            figures.append(percent(lowered))
        rows.append((f"{n} samples", figures))
    columns = ["one more pass lowers the low end", *(f"{epochs} epochs" for epochs in EPOCHS)]
    return Table("monotone low end, % of random runs", columns, rows, at_most=0, digits=2)


def _low_end(epochs: int, passed: list[int]) -> float:
    return counted_rate({(epochs, k): times for k, times in Counter(passed).items()}).low


PARTS = (
    _one_epoch,
    *(partial(_headline, epochs) for epochs in EPOCHS),
    _scores,
    _monotone,
)
