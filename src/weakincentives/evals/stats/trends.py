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
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from operator import mul

from ...errors import UsageError
from .basic import mean
from .distributions import normal_cdf, t_quantile, t_two_sided
from .intervals import Interval, finite_values, spread_of, two_sided

_SHARE_OF_LOOKS = 0.6
"""Looks at overlapping runs are correlated: n of them count as about 0.6 n independent ones.

By `python -m bench stats trends`, for looks after each run at the last ten runs.
"""
_FAR = 9.0  # standard deviations, beyond which a normal number is never


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
    p_value = t_two_sided(slope.estimate / error, groups - 1) if error > 1e-12 else 0.0
    # With few samples that changed, chance alone gives all of them the same sign this often.
    names = range(len(slopes)) if clusters is None else clusters
    changed = len({name for name, each in zip(names, slopes, strict=True) if abs(each) > 1e-9})
    return Trend(slope, over_looks(max(p_value, _same_sign(changed)), looks), runs)


def change_point(
    samples: Sequence[Sequence[float]],
    *,
    clusters: Sequence[Hashable] | None = None,
    looks: int = 1,
    confidence: float = 0.95,
) -> ChangePoint:
    """Return where the runs split best into earlier and later ones.

    The p-value is the chance of a step as clear as this one anywhere in a history without any, in
    which the runs vary together as they do here: each sample, or cluster, is as likely to go up as
    down, with all its runs. So samples that break permanently between two runs count once each.
    """
    runs, n = _check(samples), len(samples)
    residuals: dict[Hashable, list[float]] = {}
    for cluster, values in zip(clusters if clusters else range(n), samples, strict=True):
        sums, own = residuals.setdefault(cluster, [0.0] * runs), mean(values)
        sums[:] = (total + value - own for total, value in zip(sums, values, strict=True))
    means = [mean([values[at] for values in samples]) for at in range(runs)]
    sizes = [abs(step) for step in _weighted_steps(means)]
    clearest = max(sizes)
    run = 1 + sizes.index(clearest)
    steps = [mean(values[run:]) - mean(values[:run]) for values in samples]
    difference, _ = _mean_change(steps, clusters, looks, confidence)
    changed = [sums for sums in residuals.values() if any(abs(each) > 1e-9 for each in sums)]
    if not changed or clearest < 1e-9:  # the rounding of equal means is not a step
        return ChangePoint(run, difference, 1.0)
    p_value = max(_chance_of_step(clearest, changed, n), _same_sign(len(changed)))
    return ChangePoint(run, difference, over_looks(p_value, looks))


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


def _chance_of_step(clearest: float, residuals: Sequence[Sequence[float]], n: int) -> float:
    """Return the chance of a step as clear as this one in a history without a change.

    The steps at all splits are normal, with the variances that the residuals give them and the
    covariances of neighbouring splits. The chance that none is as clear is taken to be the product
    of those of each split, given the split before it. Small chances are then right to a tenth of
    themselves, and conservative. (J. Glaz and B. McK. Johnson, Journal of the American Statistical
    Association 79, 1984.)
    """
    splits = [*zip(*map(_weighted_steps, residuals), strict=True)]
    deviations = [math.sqrt(math.fsum(step * step for step in split)) / n for split in splits]
    bounds = [clearest / each if each * _FAR > clearest else _FAR for each in deviations]
    chance = 1 - 2 * normal_cdf(-bounds[0])
    for at in range(1, len(splits)):
        product = deviations[at - 1] * deviations[at] * n**2
        covariance = math.fsum(map(mul, splits[at - 1], splits[at]))
        correlation = covariance / product if product else 0.0
        both = _chance_within(bounds[at - 1], bounds[at], correlation)
        chance *= both / (1 - 2 * normal_cdf(-bounds[at - 1]))
    return min(1.0, max(0.0, 1 - chance))


def _chance_within(a: float, b: float, correlation: float) -> float:
    """Return the chance that two correlated normal numbers are within ± a and ± b.

    It is an integral over the first number, by Simpson's rule.
    """
    own = math.sqrt(max(1 - correlation**2, 1e-12))
    steps = 64
    width = 2 * a / steps
    terms = []
    for step in range(steps + 1):
        x = step * width - a
        shift = correlation * x
        inside = normal_cdf((b - shift) / own) - normal_cdf((-b - shift) / own)
        weight = 1 if step in (0, steps) else 4 if step % 2 else 2
        terms.append(weight * math.exp(-x * x / 2) * inside)
    return math.fsum(terms) * width / 3 / math.sqrt(math.tau)


def _weighted_steps(values: Sequence[float]) -> list[float]:
    """Return the step at each split into earlier and later runs, all with the same variance.

    That is, if runs vary independently of each other.
    """
    runs, total, before = len(values), math.fsum(values), 0.0
    steps = []
    for run in range(1, runs):
        before += values[run - 1]
        step = (total - before) / (runs - run) - before / run
        steps.append(step * math.sqrt(run * (runs - run) / runs))
    return steps


def _same_sign(changed: int) -> float:
    """Return the chance that this many changes all go in the same direction, either one."""
    return min(1.0, 0.5 ** (changed - 1))


def _independent_tests(looks: int) -> float:
    """Return how many independent tests these looks are worth."""
    if looks < 1:
        raise UsageError(f"expected at least 1 look, got {looks}")
    return 1 + _SHARE_OF_LOOKS * (looks - 1)


def over_looks(p_value: float, looks: int) -> float:
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
