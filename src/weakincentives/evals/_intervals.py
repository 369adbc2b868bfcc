"""Intervals of one run's numbers: rates, means and percentiles, clustered where they must be."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError, shown
from ._distributions import binomial_cdf, normal_quantile, t_quantile
from .statistics import mean, std, wilson_interval

__all__ = [
    "Counts",
    "Interval",
    "clustered_rate_interval",
    "counted",
    "counted_rate_interval",
    "finite_values",
    "mean_interval",
    "no_spread",
    "percentile_interval",
    "rate_interval",
    "spread_of",
    "standard_error",
    "two_sided",
]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and where the truth may well be; ends that nothing is known of are infinite."""

    estimate: float
    low: float
    high: float
    n: int
    clusters: int | None = None
    confidence: float = 0.95
    method: str = ""

    @property
    def known(self) -> bool:
        """Both ends are finite: there was enough to tell."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        seen = f"n = {self.n:,}"
        if self.clusters is not None and self.clusters != self.n:
            seen += f" in {self.clusters:,} clusters"
        if not self.n:
            return f"unknown, {seen}"
        ends = [f"{end:.4g}" if math.isfinite(end) else "unknown" for end in (self.low, self.high)]
        span = "unknown" if ends[0] == ends[1] == "unknown" else " to ".join(ends)
        return f"{self.estimate:.4g}, {100 * self.confidence:g} % interval {span}, {seen}"


def rate_interval(passed: int, total: int, *, confidence: float = 0.95) -> Interval:
    """The share that passed, with Wilson's interval.

    >>> str(rate_interval(0, 3))
    '0, 95 % interval 0 to 0.5615, n = 3'
    """
    if not 0 <= passed <= total:
        raise UsageError(f"expected 0 <= passed <= total, got {passed!r} of {total!r}")
    low, high = wilson_interval(passed, total, z=two_sided(confidence))
    rate = passed / total if total else 0.0
    return Interval(rate, low, high, total, None, confidence, "Wilson")


def mean_interval(
    values: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> Interval:
    """The mean with Student's t interval; values of one cluster count as one observation.

    `clusters` says for each value which cluster it is of: the sample that an epoch repeats, the
    document that a question is about.
    """
    two_sided(confidence)
    values = finite_values(values)
    centre, error, groups = spread_of(values, clusters)
    shown_groups = None if clusters is None else groups
    low, high, method = -math.inf, math.inf, "t"
    if groups > 1 and error > 0:
        half = t_quantile((1 + confidence) / 2, groups - 1) * error
        low, high = centre - half, centre + half
    elif groups > 1 and all(0 <= value <= 1 for value in values):
        (low, high), method = no_spread(centre, groups, confidence, 0.0, 1.0), "no spread"
    return Interval(centre, low, high, len(values), shown_groups, confidence, method)


def clustered_rate_interval(
    passed: Sequence[float], clusters: Sequence[Hashable], *, confidence: float = 0.95
) -> Interval:
    """The share that passed where attempts come in clusters, such as epochs of one sample.

    Wilson's interval for as many independent attempts as would have the clustered error
    (E. L. Korn and B. I. Graubard, Survey Methodology 24, 1998), with t for few clusters.
    """
    values = finite_values(passed)
    if not {*values} <= {0.0, 1.0}:
        raise UsageError("expected 0 or 1 for every attempt - for other values: mean_interval()")
    if (n := len(values)) != len(clusters):
        raise UsageError(f"expected a cluster for each of {n} values, got {len(clusters)}")
    counts = counted(zip(clusters, map(bool, values), strict=True))
    return counted_rate_interval(counts, confidence=confidence)


Counts = Mapping[tuple[int, int], int]
"""How many clusters had so many attempts, of which so many passed."""


def counted(attempts: Iterable[tuple[Hashable, bool]]) -> Counts:
    """The counts of attempts, each given by its cluster and whether it passed."""
    tried: Counter[Hashable] = Counter()
    passed: Counter[Hashable] = Counter()
    for cluster, good in attempts:
        tried[cluster] += 1
        passed[cluster] += good
    return Counter((n, passed[cluster]) for cluster, n in tried.items())


def counted_rate_interval(counts: Counts, *, confidence: float = 0.95) -> Interval:
    """`clustered_rate_interval` of what was counted: the same for the same counts, to the bit."""
    two_sided(confidence)
    groups = sum(counts.values())
    n = sum(size * times for (size, _), times in counts.items())
    k = sum(passed * times for (_, passed), times in counts.items())
    rate, low, high = k / n if n else 0.0, 0.0, 1.0
    if groups > 1:
        # In whole numbers, so that where all agree it is 0, and no rounding.
        squares = sum(t * (passed * n - size * k) ** 2 for (size, passed), t in counts.items())
        variance = groups / (groups - 1) * squares / n**4
        # Where all agree the error is unknown; a cluster that counts once errs on the safe side.
        worth = min(rate * (1 - rate) / variance, n) if squares else groups
        quantile = t_quantile((1 + confidence) / 2, groups - 1)
        low, high = wilson_interval(rate * worth, worth, z=quantile)
    return Interval(rate, low, high, n, groups, confidence, "Wilson, clustered")


def percentile_interval(values: Sequence[float], q: float, *, confidence: float = 0.95) -> Interval:
    """The percentile at `q` (0.5 is the median), between two of the values in order.

    It holds for any distribution. Far out, few values cannot bound it: that end is infinite.
    """
    two_sided(confidence)
    if not 0 < q < 1:
        raise UsageError(f"expected a `q` between 0 and 1, got {shown(q)} - 0.95 is the 95th")
    ordered = sorted(finite_values(values))
    n = len(ordered)
    if not n:
        return Interval(0.0, -math.inf, math.inf, 0, None, confidence, "order statistics")
    tail = (1 - confidence) / 2

    def fewer(k: int) -> float:  # the chance that at most k values are under the percentile
        return binomial_cdf(k, n, q)

    below = bisect_right(range(n + 1), tail, key=fewer)
    above = bisect_left(range(n + 1), 1 - tail, key=fewer)
    low = ordered[below - 1] if below > 0 else -math.inf
    high = ordered[above] if above < n else math.inf
    place = q * (n - 1)
    left = ordered[math.floor(place)]
    estimate = left + (place % 1) * (ordered[math.ceil(place)] - left)
    return Interval(
        estimate, min(low, estimate), max(high, estimate), n, None, confidence, "order statistics"
    )


def standard_error(values: Sequence[float], *, clusters: Sequence[Hashable] | None = None) -> float:
    """The standard error of the mean; infinite below two clusters, where nothing can tell."""
    _, error, groups = spread_of(finite_values(values), clusters)
    return error if groups > 1 else math.inf


def spread_of(
    values: Sequence[float], clusters: Sequence[Hashable] | None
) -> tuple[float, float, int]:
    """The mean, its standard error (0.0 below two clusters) and the number of clusters."""
    n, centre = len(values), mean(values)
    if clusters is None:
        groups = n
        error = std(values) / math.sqrt(n) if n else 0.0
    else:
        if len(clusters) != n:
            raise UsageError(f"expected a cluster for each of {n} values, got {len(clusters)}")
        members: dict[Hashable, list[float]] = {}
        for value, cluster in zip(values, clusters, strict=True):
            members.setdefault(cluster, []).append(value - centre)
        groups = len(members)
        sums = [math.fsum(found) for found in members.values()]
        error = math.sqrt(groups / (groups - 1)) * math.hypot(*sums) / n if groups > 1 else 0.0
    # Three times 0.7 have a spread of 1e-16 in floats: that is rounding.
    largest = max(map(abs, values), default=0.0)
    return centre, error if error > 1e-12 * largest / math.sqrt(n or 1) else 0.0, groups


def no_spread(
    value: float, n: int, confidence: float, least: float, most: float
) -> tuple[float, float]:
    """Where the mean may be after `n` times the same value, on a scale from `least` to `most`.

    None of n differed; by Wilson, so many of all may differ, by as far as the scale goes.
    """
    _, others = wilson_interval(0, n, z=two_sided(confidence))
    return value - others * (value - least), value + others * (most - value)


def two_sided(confidence: float) -> float:
    """The normal quantile of an interval with this confidence; refuses what is no confidence."""
    if not 0 < confidence < 1:
        raise UsageError(f"expected a `confidence` between 0 and 1, got {shown(confidence)}")
    return normal_quantile((1 + confidence) / 2)


def finite_values(values: Iterable[float]) -> list[float]:
    """The values as floats; refuses what is not finite, which no mean has a place for."""
    found = [*map(float, values)]
    if not all(map(math.isfinite, found)):
        index = next(n for n, value in enumerate(found) if not math.isfinite(value))
        raise UsageError(f"expected finite numbers, got {found[index]} - at `[{index}]`")
    return found
