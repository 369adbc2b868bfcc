"""Intervals of the numbers of one run: rates, means and percentiles, clustered if necessary."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import UsageError, short_repr
from .basic import mean, std, wilson_interval
from .distributions import binomial_cdf, normal_quantile, t_quantile


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its confidence interval; an end that is unknown is infinite."""

    estimate: float
    low: float
    high: float
    n: int
    clusters: int | None = None
    confidence: float = 0.95
    method: str = ""

    @property
    def known(self) -> bool:
        """Whether both ends are finite."""
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
        return f"{self.estimate:.4g}, {100 * self.confidence:g}% interval {span}, {seen}"


def ends_text(low: float, high: float, digits: int = 1) -> tuple[str, str]:
    """Return the ends of an interval with these digits, or as many as it takes to tell them apart.

    >>> ends_text(99.98, 99.99)
    ('99.98', '99.99')
    """
    most = digits + 5
    while f"{low:.{digits}f}" == f"{high:.{digits}f}" and low < high and digits < most:
        digits += 1
    return f"{low:.{digits}f}", f"{high:.{digits}f}"


def rate_interval(passed: int, total: int, *, confidence: float = 0.95) -> Interval:
    """Return the share that passed, with Wilson's interval.

    >>> str(rate_interval(0, 3))
    '0, 95% interval 0 to 0.5615, n = 3'
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
    shares: bool | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return the mean with Student's t interval; a cluster counts as one observation.

    `clusters` names the cluster of each value: the sample that an epoch repeats, the document that
    a question is about. Scores from 0 to 1 of which some are exactly 0 or 1 are skewed: they have
    Wilson's interval, for the number of passes and failures with the same standard error. With
    `shares=False`, values from 0 to 1 are not scores: they may be dollars.
    """
    two_sided(confidence)
    values = finite_values(values)
    centre, error, groups = spread_of(values, clusters)
    cluster_count = None if clusters is None else groups
    low, high, method = -math.inf, math.inf, "t"
    shares = shares is not False and all(0 <= value <= 1 for value in values)
    quantile = t_quantile((1 + confidence) / 2, groups - 1) if groups > 1 else math.inf
    if groups > 1 and shares and not {0.0, 1.0}.isdisjoint(values):
        effective_n = _effective_scores(centre, error, groups)
        low, high = wilson_interval(centre * effective_n, effective_n, z=quantile)
        method = "Wilson, effective n"
    elif groups > 1 and error > 0:
        low, high = centre - quantile * error, centre + quantile * error
    elif groups > 1 and shares:
        low, high = zero_variance_interval(centre, groups, confidence, 0.0, 1.0)
        method = "no spread"
    return Interval(centre, low, high, len(values), cluster_count, confidence, method)


_PSEUDO_SCORES = 0.25
"""The weight of two added scores in the variance, 0 and 1: by `python -m bench stats`, as below."""


def _effective_scores(centre: float, error: float, groups: int) -> float:
    """Return how many passes and failures with this rate would have this standard error."""
    weight = _PSEUDO_SCORES
    rate = (centre * groups + weight) / (groups + 2 * weight)
    squares = error**2 * groups * (groups - 1) + weight * ((1 - rate) ** 2 + rate**2)
    return rate * (1 - rate) * groups**2 / squares


def clustered_rate_interval(
    passed: Sequence[float], clusters: Sequence[Hashable], *, confidence: float = 0.95
) -> Interval:
    """Return the share that passed of attempts in clusters, such as epochs of one sample.

    Wilson's interval for the effective number of independent attempts
    (E. L. Korn and B. I. Graubard, Survey Methodology 24, 1998), with t for few clusters. More
    passes never lower its low end.
    """
    values = finite_values(passed)
    if not {*values} <= {0.0, 1.0}:
        raise UsageError("expected 0 or 1 for every attempt - for other values: mean_interval()")
    if (n := len(values)) != len(clusters):
        raise UsageError(f"expected a cluster for each of {n} values, got {len(clusters)}")
    counts = cluster_counts(zip(clusters, map(bool, values), strict=True))
    return counted_rate_interval(counts, confidence=confidence)


Counts = Mapping[tuple[int, int], int]
"""The number of clusters by their number of attempts and of passes."""


def cluster_counts(attempts: Iterable[tuple[Hashable, bool]]) -> Counts:
    """Count attempts, each given by its cluster and whether it passed."""
    clusters: dict[Hashable, tuple[int, int]] = {}
    shared: dict[tuple[int, int], tuple[int, int]] = {}  # equal tuples once, to save memory
    for cluster, good in attempts:
        n, passed = clusters.get(cluster, (0, 0))
        count = n + 1, passed + good
        clusters[cluster] = shared.setdefault(count, count)
    return Counter(clusters.values())


_PSEUDO_WEIGHT = 0.75
"""The weight of two added clusters in the variance, one that passes and one that fails.

A few clusters that happen to agree do not show that all do. Chosen by `python -m bench stats`: the
smallest weight in steps of 0.25 whose coverage is at least 94 % in every setting.
"""


def counted_rate_interval(counts: Counts, *, confidence: float = 0.95) -> Interval:
    """Return `clustered_rate_interval` of counts; equal counts give equal results."""
    two_sided(confidence)
    groups = sum(counts.values())
    n = sum(size * times for (size, _), times in counts.items())
    k = sum(passed * times for (_, passed), times in counts.items())
    rate, low, high = k / n if n else 0.0, 0.0, 1.0
    if groups > 1:
        quantile = t_quantile((1 + confidence) / 2, groups - 1)
        failures = {(size, size - passed): times for (size, passed), times in counts.items()}
        low, high = _low_end(counts, quantile), 1 - _low_end(failures, quantile)
    return Interval(rate, low, high, n, groups, confidence, "Wilson, clustered")


def _low_end(counts: Counts, quantile: float) -> float:
    """Return the low end of a clustered rate, which further passes never lower.

    If the failures are spread over many clusters, attempts count as nearly independent; if all
    attempts pass, nothing is known about that. So the low end could fall as passes are added. It is
    therefore the lowest one on the way to a table without failures, the best clusters first.
    """
    groups = sum(counts.values())
    n = sum(size * times for (size, _), times in counts.items())
    # Sums of passed, passed squared, passed times size, and size squared, over the clusters.
    k = sum(passed * times for (_, passed), times in counts.items())
    kk = sum(passed**2 * times for (_, passed), times in counts.items())
    kn = sum(passed * size * times for (size, passed), times in counts.items())
    nn = sum(size**2 * times for (size, _), times in counts.items())
    added = _PSEUDO_WEIGHT * n / groups

    def low_end() -> float:
        rate = (k + added) / (n + 2 * added)
        squares = kk - 2 * rate * kn + rate**2 * nn
        squares += added * n / groups * ((1 - rate) ** 2 + rate**2)
        variance = squares / (n * (n + 2 * added))
        effective_n = min(rate * (1 - rate) / variance, n) * n / (n + 2 * added)
        return wilson_interval(k / n * effective_n, effective_n, z=quantile)[0]

    lowest = low_end()
    by_rate = sorted(counts.items(), key=lambda item: item[0][1] / item[0][0], reverse=True)
    for (size, passed), times in by_rate:
        k += times * (size - passed)
        kk += times * (size**2 - passed**2)
        kn += times * size * (size - passed)
        lowest = min(lowest, low_end())
    return lowest


def percentile_interval(values: Sequence[float], q: float, *, confidence: float = 0.95) -> Interval:
    """Return the percentile at `q` (0.5 is the median), with order statistics as its interval.

    It is valid for any distribution. An end that too few values bound is infinite.
    """
    two_sided(confidence)
    if not 0 < q < 1:
        raise UsageError(f"expected a `q` between 0 and 1, got {short_repr(q)} - 0.95 is the 95th")
    ordered = sorted(finite_values(values))
    n = len(ordered)
    if not n:
        return Interval(0.0, -math.inf, math.inf, 0, None, confidence, "order statistics")
    tail = (1 - confidence) / 2

    def probability(k: int) -> float:  # P(at most k values are below the percentile)
        return binomial_cdf(k, n, q)

    below = bisect_right(range(n + 1), tail, key=probability)
    above = bisect_left(range(n + 1), 1 - tail, key=probability)
    low = ordered[below - 1] if below > 0 else -math.inf
    high = ordered[above] if above < n else math.inf
    place = q * (n - 1)
    left = ordered[math.floor(place)]
    estimate = left + (place % 1) * (ordered[math.ceil(place)] - left)
    return Interval(
        estimate, min(low, estimate), max(high, estimate), n, None, confidence, "order statistics"
    )


def standard_error(values: Sequence[float], *, clusters: Sequence[Hashable] | None = None) -> float:
    """Return the standard error of the mean; infinite for fewer than two clusters."""
    _, error, groups = spread_of(finite_values(values), clusters)
    return error if groups > 1 else math.inf


def spread_of(
    values: Sequence[float], clusters: Sequence[Hashable] | None
) -> tuple[float, float, int]:
    """Return the mean, its standard error (0.0 below two clusters) and the number of clusters."""
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
        sums = [math.fsum(deviations) for deviations in members.values()]
        error = math.sqrt(groups / (groups - 1)) * math.hypot(*sums) / n if groups > 1 else 0.0
    # Three times 0.7 have a spread of 1e-16 in floats, which is rounding.
    largest = max(map(abs, values), default=0.0)
    return centre, error if error > 1e-12 * largest / math.sqrt(n or 1) else 0.0, groups


def zero_variance_interval(
    value: float, n: int, confidence: float, minimum: float, maximum: float
) -> tuple[float, float]:
    """Return the interval of the mean after `n` equal values between `minimum` and `maximum`.

    By Wilson's interval for 0 of n, some share of values may differ, by at most the scale.
    """
    _, share = wilson_interval(0, n, z=two_sided(confidence))
    return value - share * (value - minimum), value + share * (maximum - value)


def drawn_interval(
    estimate: float, drawn: Iterable[float], n: int, confidence: float, method: str
) -> Interval:
    """Return an estimate with the quantiles of values that were drawn at random as its interval."""
    ordered, tail = sorted(drawn), (1 - confidence) / 2
    low, high = (nearest_rank(ordered, share) for share in (tail, 1 - tail))
    ends = min(estimate, low), max(estimate, high)
    return Interval(estimate, *ends, n, None, confidence, method)


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """Return the value that about this share of the others does not exceed."""
    return ordered[round(share * (len(ordered) - 1))]


def two_sided(confidence: float) -> float:
    """Return the normal quantile of a two-sided interval; raise if the confidence is invalid."""
    if not 0 < confidence < 1:
        raise UsageError(f"expected a `confidence` between 0 and 1, got {short_repr(confidence)}")
    return normal_quantile((1 + confidence) / 2)


def finite_values(values: Iterable[float]) -> list[float]:
    """Return the values as floats; raise if one is not finite."""
    floats = [*map(float, values)]
    if not all(map(math.isfinite, floats)):
        index = next(n for n, value in enumerate(floats) if not math.isfinite(value))
        raise UsageError(f"expected finite numbers, got {floats[index]} - at `[{index}]`")
    return floats
