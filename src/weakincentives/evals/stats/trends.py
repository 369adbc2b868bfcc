"""Do several runs of the same samples get better or worse? A line through them, and a step.

Rules of this file:
1. A sample is compared with itself: its values in the runs, from the oldest to the newest. So the
   difficulty of the samples cancels out, and each sample is one observation; or each cluster of
   samples, if they are about the same document.
2. A trend that is looked at after every run has many chances to look like one. `looks` is how often
   it is looked at; intervals and p-values hold for all of these looks together.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import mul
from random import Random

from ...errors import UsageError
from .basic import mean
from .distributions import t_quantile, t_two_sided
from .intervals import Interval, finite_values, spread_of, two_sided

__all__ = ["ChangePoint", "Trend", "change_point", "linear_trend"]

_SHARE_OF_LOOKS = 0.72
"""Looks at overlapping runs are correlated: n of them count as about 0.72 n independent ones.

By `python -m bench stats trends`, for looks after each run at the last ten runs.
"""
_DRAWS = 4_000  # simulated histories without a change, for the p-value of a step


@dataclass(frozen=True, slots=True)
class Trend:
    """The mean change per run, with its interval, over `runs` runs of `slope.n` samples each."""

    slope: Interval
    p_value: float | None
    runs: int

    @property
    def total(self) -> Interval:
        """The change from the first run to the last, along the line."""
        steps, slope = self.runs - 1, self.slope
        low, high = steps * slope.low, steps * slope.high
        return replace(slope, estimate=steps * slope.estimate, low=low, high=high)


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The split into earlier and later runs that differ most.

    `run` is the index of the first later one.
    """

    run: int
    difference: Interval
    p_value: float


def linear_trend(
    samples: Sequence[Sequence[float]],
    *,
    clusters: Sequence[Hashable] | None = None,
    looks: int = 1,
    confidence: float = 0.95,
) -> Trend:
    """Return the slope of a line through the runs; each item has the values of one sample.

    The values of a sample are in the order of the runs. The slope is the mean of the slopes of the
    samples, so its error is that of a mean. `clusters` names the cluster of each sample.

    >>> trend = linear_trend([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]])
    >>> trend.slope.estimate, trend.runs
    (-0.25, 3)
    """
    runs = _check(samples)
    middle = (runs - 1) / 2
    scale = math.fsum((run - middle) ** 2 for run in range(runs))
    weights = [(run - middle) / scale for run in range(runs)]
    slopes = [math.fsum(map(mul, weights, values)) for values in samples]
    slope, error = _mean_change(slopes, clusters, looks, confidence)
    groups = slope.n if slope.clusters is None else slope.clusters
    if groups < 2:
        return Trend(slope, None, runs)
    p_value = t_two_sided(slope.estimate / error, groups - 1) if error else 0.0
    # With few samples that changed, chance alone gives all of them the same sign this often.
    names = range(len(slopes)) if clusters is None else clusters
    changed = len({name for name, each in zip(names, slopes, strict=True) if each})
    return Trend(slope, _over_looks(max(p_value, _same_sign(changed)), looks), runs)


def change_point(
    samples: Sequence[Sequence[float]],
    *,
    clusters: Sequence[Hashable] | None = None,
    looks: int = 1,
    confidence: float = 0.95,
) -> ChangePoint:
    """Return where the runs split best into earlier and later ones.

    The p-value is the chance of a step as clear as this one anywhere in a history without any. The
    noise of a run is that of its samples, or clusters, around their own means.
    """
    runs, n = _check(samples), len(samples)
    means = [mean([values[run] for values in samples]) for run in range(runs)]
    residuals: dict[Hashable, list[float]] = {}
    for cluster, values in zip(clusters if clusters else range(n), samples, strict=True):
        sums, own = residuals.setdefault(cluster, [0.0] * runs), mean(values)
        sums[:] = (total + value - own for total, value in zip(sums, values, strict=True))
    inside = math.fsum(each**2 for sums in residuals.values() for each in sums)
    noise = math.sqrt(inside / (runs - 1)) / n  # the standard deviation of a run's mean
    clearest, run = _clearest_step(means)
    steps = [mean(values[run:]) - mean(values[:run]) for values in samples]
    difference, _ = _mean_change(steps, clusters, looks, confidence)
    if not noise:
        return ChangePoint(run, difference, 1.0)
    history = _clearest_without_change(runs)
    as_clear = _DRAWS - bisect_left(history, clearest / noise)
    changed = sum(any(sums) for sums in residuals.values())
    p_value = max((as_clear + 1) / (_DRAWS + 1), _same_sign(changed))
    return ChangePoint(run, difference, _over_looks(p_value, looks))


def _mean_change(
    changes: Sequence[float], clusters: Sequence[Hashable] | None, looks: int, confidence: float
) -> tuple[Interval, float]:
    """Return the mean with Student's t interval, which holds for all looks, and its error."""
    two_sided(confidence)
    centre, error, groups = spread_of(finite_values(changes), clusters)
    low, high = -math.inf, math.inf
    if groups > 1:
        tail = -math.expm1(math.log(confidence) / _independent_tests(looks)) / 2
        half = t_quantile(1 - tail, groups - 1) * error
        low, high = centre - half, centre + half
    count = None if clusters is None else groups
    return Interval(centre, low, high, len(changes), count, confidence, "t"), error


@lru_cache(maxsize=64)
def _clearest_without_change(runs: int) -> tuple[float, ...]:
    """Return the clearest step of simulated histories without a change, in order; noise is 1."""
    random = Random(0)  # seeded: the same runs give the same p-value
    histories = ([random.gauss(0.0, 1.0) for _ in range(runs)] for _ in range(_DRAWS))
    return tuple(sorted(_clearest_step(history)[0] for history in histories))


def _clearest_step(means: Sequence[float]) -> tuple[float, int]:
    """Return the largest step, in units of the noise of its two sides, and where it is."""
    runs, total, before = len(means), math.fsum(means), 0.0
    clearest = 0.0, 1
    for run in range(1, runs):
        before += means[run - 1]
        step = abs((total - before) / (runs - run) - before / run)
        clearest = max(clearest, (step * math.sqrt(run * (runs - run) / runs), run))
    return clearest


def _same_sign(changed: int) -> float:
    """Return the chance that this many changes all go in the same direction, either one."""
    return min(1.0, 0.5 ** (changed - 1))


def _independent_tests(looks: int) -> float:
    """Return how many independent tests these looks are worth."""
    if looks < 1:
        raise UsageError(f"expected at least 1 look, got {looks}")
    return 1 + _SHARE_OF_LOOKS * (looks - 1)


def _over_looks(p_value: float, looks: int) -> float:
    """Return the chance of a p-value this small in any of several looks."""
    tests = _independent_tests(looks)
    return -math.expm1(tests * math.log1p(-p_value)) if p_value < 1 else 1.0


def _check(samples: Sequence[Sequence[float]]) -> int:
    """Return the number of runs; raise if the samples do not have a value in each."""
    sizes = sorted({len(values) for values in samples})
    if len(sizes) != 1 or sizes[0] < 2:
        raise UsageError(
            "expected samples with a value in each of two runs or more, got "
            f"{' or '.join(map(str, sizes)) or 'no'} values"
        )
    return sizes[0]
