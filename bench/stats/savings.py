"""What the better methods save, against what they were expected to save: within 10%, or more.

The expected figures are those for which each method was chosen, from other simulations. Each is a
factor in samples (3.1: with the method before, 3.1 times as many), a factor in width, or how often
the best model is found, in percent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from weakincentives.evals.stats.basic import wilson_interval
from weakincentives.evals.stats.sequential import anytime_ends

from .choosing import SETTINGS, best_found, worth_of_strata
from .comparison import exact_factor
from .correction import JUDGES, coverage_of
from .sequential import SAMPLES, samples_until_compared, samples_until_decided
from .tables import Table
from .trends import decline_detected

__all__ = ["PARTS"]

Row = tuple[str, float, float]
"""What is saved, the factor that was expected, and the one that was found."""


def _table(what: str, rows: Iterator[Row]) -> Table:
    figures = [
        (name, [expected, measured, measured / expected]) for name, expected, measured in rows
    ]
    columns = ["", "expected", "found", "found / expected"]
    title = f"{what}, expected and found"
    return Table(title, columns, figures, at_least=0.9, digits=2, reference=columns[1:3])


def _mid_p(runs: int) -> Table:
    """Compute exactly how many times as many samples the exact test needs."""
    expected = {
        (50, 0.1): 1.22,
        (50, 0.2): 1.18,
        (100, 0.2): 1.14,
        (200, 0.2): 1.1,
        (200, 0.3): 1.1,
    }
    return _table(
        "mid-p instead of the exact test",
        ((f"{n} samples, {flips:.0%} flip", factor, exact_factor(n, flips))
         for (n, flips), factor in expected.items()),
    )  # fmt: skip


# ── stopping early ──────────────────────────────────────────────────────────────────────────────


def _width(runs: int) -> Table:
    """All ways that a run can go are counted, so these figures are exact."""
    return _table(
        "--stop-at-width 10%: Wilson's interval instead of one that is valid at all times",
        ((f"rate {rate:.0%}", factor, _until(0.1, rate, anytime_ends) / _until(0.1, rate, _wilson))
         for rate, factor in {0.5: 3.1, 0.85: 3.0, 0.9: 2.9, 0.95: 2.4}.items()),
    )  # fmt: skip


Ends = Callable[[int, int], tuple[float, float]]
"""Return the ends of an interval, from the passes and the samples."""


def _until(width: float, rate: float, ends: Ends) -> float:
    """Return the mean number of samples until an interval is narrow."""
    undecided, samples, n = {0: 1.0}, 0.0, 0  # the chance of each number of passes, without a stop
    while undecided:
        n += 1
        chances: dict[int, float] = {}
        for passed, chance in undecided.items():
            for more, share in ((0, 1 - rate), (1, rate)):
                chances[passed + more] = chances.get(passed + more, 0.0) + chance * share
        undecided, max_passes = {}, _max_narrow_passes(width, n, ends)
        for passed, chance in chances.items():
            if min(passed, n - passed) <= max_passes:
                samples += n * chance
            elif chance > 1e-7:
                undecided[passed] = chance
    return samples


@cache
def _max_narrow_passes(width: float, n: int, ends: Ends) -> int:
    """Return the most passes, up to half, with a narrow interval; -1 if there are none.

    An interval is wider the closer its rate is to a half, is as wide for as many failures, and
    gets narrower with more failures: so the number for fewer samples is where to begin.
    """
    if n < 20:
        return -1
    max_passes = _max_narrow_passes(width, n - 1, ends)
    while max_passes < n // 2:
        low, high = ends(max_passes + 1, n)
        if high - low > width:
            break
        max_passes += 1
    return max_passes


def _wilson(passed: int, n: int) -> tuple[float, float]:
    return wilson_interval(passed, n, z=2.1)


def _decided(runs: int) -> Table:
    """Decide for the dataset at hand, and not for all samples like it."""

    def rows() -> Iterator[Row]:
        for rate, factor in {0.8: 1.56, 0.88: 1.35, 0.9: 1.54, 0.92: 1.47, 0.95: 1.18}.items():
            dataset, population = (
                samples_until_decided(decide_for, 1, rate, runs)[0]
                for decide_for in ("dataset", "population")
            )
            yield f"rate {rate:.0%}", factor, population / dataset

    return _table("--fail-under 85% --stop-against 85%: for the dataset instead of all", rows())


def _bets(runs: int) -> Table:
    """Bet on the means of five epochs, instead of treating them as any values from 0 to 1."""

    def rows() -> Iterator[Row]:
        for rate, factor in {0.9: 438 / 190, 0.92: 253 / 102, 0.75: 162 / 59}.items():
            bets = samples_until_decided("population", 5, rate, runs)[0]
            yield f"rate {rate:.0%}", factor, _until_excluded(rate, runs) / bets

    return _table("--fail-under 85% --stop-against 85%, 5 epochs: bets with 24 stakes", rows())


def _until_excluded(rate: float, runs: int) -> float:
    """Return the mean number of samples until `anytime_ends` of the means exclude 85%."""
    rng, tried = np.random.default_rng(7), []
    for _ in range(max(4, runs // 10)):
        means = rng.binomial(5, rng.beta(2 * rate, 2 * (1 - rate), SAMPLES)) / 5
        for n, total in enumerate(means.cumsum().tolist(), 1):
            low, high = anytime_ends(total, n)
            if not low <= 0.85 <= high:
                break
        tried.append(n)
    return float(np.mean(tried))


def _paired(runs: int) -> Table:
    """A test of fixed size needs 172 samples to show 10 points in 80% of cases, if 20% flip."""
    detected, samples = samples_until_compared(172, 0.2, 0.1, max(4, runs // 2))
    rows = iter([("samples", 172 / 133, 172 / samples), ("shown, in %", 85.0, detected)])
    return _table("--against RUN, 10 points, 20% flip", rows)


def _trend(runs: int) -> Table:
    """A decline of a point a run over ten runs, of which the steps from run to run see 1%."""

    def rows() -> Iterator[Row]:
        for n, share in {100: 72.0, 200: 96.0}.items():
            yield f"{n} samples, seen in %", share, decline_detected(n, max(4, runs // 4))

    return _table("a line through 10 runs that lose a point each, 5% of false alarms", rows())


# ── choosing, and judges ────────────────────────────────────────────────────────────────────────


def _strata(runs: int) -> Table:
    def rows() -> Iterator[Row]:
        for (name, setting), factor in zip(SETTINGS.items(), (1.15, 1.56, 2.1), strict=True):
            factors = [worth_of_strata(*setting, rate, runs)[0] for rate in (0.5, 0.85, 0.95)]
            yield name, factor, float(np.mean(factors))

    return _table("--choose-by, mean of three pass rates", rows())


def _best_of_eight(runs: int) -> Table:
    def rows() -> Iterator[Row]:
        one, ladder = [0.85] + [0.8] * 7, [0.86 - 0.02 * step for step in range(8)]
        for name, rates, alike, share in (("one is better", one, 0.5, 86.0),
                                          ("a ladder", ladder, 0.0, 76.0)):  # fmt: skip
            yield name, share, best_found(np.array(rates), alike, runs)[0]

    return _table("--models --budget: the best of eight is found, in %", rows())


def _judges(runs: int) -> Table:
    """Labels of 50 of 500 outputs that a judge has judged, against 50 labels alone."""

    def rows() -> Iterator[Row]:
        for judge, rate, width in zip(
            JUDGES, (0.7, 0.7, 0.7, 0.9), (0.58, 0.69, 0.84, 0.87), strict=True
        ):
            yield judge, 1 / width, 1 / coverage_of(rate, judge, "by verdict", runs)[2]

    return _table("times narrower than the interval of the labels alone", rows())


PARTS = (
    _mid_p,
    _width,
    _decided,
    _bets,
    _paired,
    _trend,
    _strata,
    _best_of_eight,
    _judges,
)
