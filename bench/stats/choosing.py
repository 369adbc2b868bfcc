"""Spending where it teaches: samples chosen by earlier runs, and the best of several models."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from weakincentives.evals.comparison.halving import halve, round_sizes
from weakincentives.evals.stats.strata import draw, strata_by_rate, stratified_rate

from .tables import Table, percent

__all__ = ["PARTS", "SETTINGS", "best_found", "worth_of_strata"]

SETTINGS = {
    "samples differ": (2.0, 0.9),
    "samples differ much, agents less alike": (0.5, 0.8),
    "samples differ much, agents alike": (0.5, 0.95),
}
"""The sum of the parameters of a beta distribution of pass rates, and how alike the agents are."""

_HALVING = (66, 133, 266)  # samples of rounds with 8, 4 and 2 models that cost the same


def _strata(runs: int) -> list[Table]:
    """Return what choosing by strata is worth, its bias and coverage."""
    rates = (0.5, 0.85, 0.95)
    worth, bias, dataset, population = [], [], [], []
    for name, (spread, alike) in SETTINGS.items():
        by_rate = [worth_of_strata(spread, alike, rate, runs) for rate in rates]
        for rows, at in ((worth, 0), (bias, 1), (dataset, 2), (population, 3)):
            rows.append((name, [figures[at] for figures in by_rate]))
    columns = ["100 of 1,000, by 5 runs", *(f"{rate * 100:g}%" for rate in rates)]
    return [
        Table("Worth this many times the samples", columns, worth, at_least=1, digits=2),
        Table("Bias of the estimate, in points", columns, bias, at_least=-0.3, at_most=0.3),
        Table("Coverage of the dataset's rate, in percent", columns, dataset, at_least=94),
        Table(
            "Coverage of the rate of all like it, in percent", columns, population, at_least=93.5
        ),
    ]


def worth_of_strata(spread: float, alike: float, rate: float, runs: int) -> tuple[float, ...]:
    """Return the worth of choosing, its bias in points, and the coverage of two rates in %."""
    rng, size, n = np.random.default_rng(3), 1000, 100
    errors, plain, held, held_all = [], [], [], []
    for seed in range(runs):
        before, other = rng.beta(spread * rate, spread * (1 - rate), (2, size))
        chance = np.where(rng.random(size) < alike, before, other)
        passed = rng.random(size) < chance
        earlier = rng.binomial(5, before) / 5
        strata = strata_by_rate(dict(enumerate(earlier.tolist())), n)
        estimate = stratified_rate(
            (len(stratum), [float(passed[at]) for at in part])
            for stratum, part in zip(strata, draw(strata, n, seed), strict=True)
        )
        truth = passed.mean()
        errors.append(estimate.estimate - truth)
        plain.append(rng.choice(passed, n, replace=False).mean() - truth)
        held.append(truth in estimate)
        held_all.append(rate in estimate)
    ratio = float(np.mean(np.square(plain)) / np.mean(np.square(errors)))
    return ratio, 100 * float(np.mean(errors)), percent(held), percent(held_all)


def _best_of_eight(runs: int) -> Table:
    rows = []
    settings = {
        "one is 5 points better": [0.85] + [0.8] * 7,
        "a ladder of 2 points": [0.86 - 0.02 * step for step in range(8)],
    }
    for alike in (0.5, 0.0):
        for name, rates in settings.items():
            shares = best_found(np.array(rates), alike, runs)
            rows.append((f"{name}, {alike:.0%} of the samples as hard for all", shares))
    columns = ["8 models, 1,600 attempts", "--budget", "200 each", "halves dropped"]
    title = "The best model is found, in percent"
    return Table(title, columns, rows, at_least=72, digits=0, reference=columns[2:])


def best_found(rates: np.ndarray, alike: float, runs: int) -> list[float]:
    """Return how often the best wins: by rounds, with as many samples each, halved three times."""
    rng = np.random.default_rng(5)
    sizes = round_sizes(8, 1600, 1, 10_000)
    samples = max(sizes[-1], sum(_HALVING))
    by_rounds, equal, halved = [], [], []
    for _ in range(runs):
        hard = rng.random((samples, 1))
        own = rng.random((samples, 8))
        passed = np.where(rng.random((samples, 8)) < alike, hard, own) < rates
        counts = passed.cumsum(axis=0)
        models = [str(at) for at in rng.permutation(8)]
        result = halve(models, sizes, lambda m, n, c=counts: int(c[n - 1, int(m)]))
        by_rounds.append(result.finalists[0] == "0")
        ties = rng.random(8) / 2
        equal.append(int(np.argmax(counts[199] + ties)) == 0)
        survivors = np.arange(8)
        for n in accumulate(_HALVING):
            survivors = survivors[np.argsort(counts[n - 1, survivors] + ties[survivors])][
                len(survivors) // 2 :
            ]
        halved.append(survivors.tolist() == [0])
    return [percent(by_rounds), percent(equal), percent(halved)]


PARTS = (_strata, _best_of_eight)
