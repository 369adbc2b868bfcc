"""Is B better than A? Differences of two runs with their interval and p-value.

`paired_difference` is for two runs of the same samples: it looks at what changed in each, and so
sees far smaller differences than two intervals side by side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import add

from ..errors import UsageError
from ._distributions import binomial_cdf, normal_cdf, t_quantile, t_two_sided
from ._intervals import Interval, finite_values, no_spread, spread_of, two_sided
from .statistics import mean, std, wilson_interval

__all__ = [
    "Difference",
    "falls_to",
    "mcnemar",
    "paired_difference",
    "unpaired_difference",
    "wilcoxon",
]


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from `before` to `after`: `delta` is after minus before.

    `fixed` and `broken` count the pairs that got better and worse, and are 0 without pairs.
    `effect_size` is in standard deviations of the differences, or Cohen's h for rates.
    """

    delta: Interval
    p_value: float | None
    test: str
    pairs: int
    effect_size: float | None
    fixed: int = 0
    broken: int = 0


def paired_difference(
    before: Sequence[float],
    after: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    binary: bool | None = None,
    confidence: float = 0.95,
) -> Difference:
    """The mean change from `before[i]` to `after[i]`.

    Passes and failures (0 and 1): Tango's score interval and the exact test of McNemar. Other
    values, and pairs in clusters of more than one: Student's t on the differences, clustered.
    """
    quantile = two_sided(confidence)
    before, after = finite_values(before), finite_values(after)
    n = len(before)
    if n != len(after):
        raise UsageError(f"expected as many values after as before, got {len(after)} and {n}")
    changes = [_change(old, new) for old, new in zip(before, after, strict=True)]
    fixed, broken = sum(d > 0 for d in changes), sum(d < 0 for d in changes)
    binary = _binary(binary, before, after)
    delta, error, groups = spread_of(changes, clusters)
    how_many = None if clusters is None else groups
    size = _effect(mean(before), mean(after), None if binary else std(changes))

    if binary and groups == n:
        low, high = _tango(fixed, broken, n, quantile) if n else (-math.inf, math.inf)
        interval = Interval(delta, low, high, n, how_many, confidence, "Tango")
        p_value = mcnemar(fixed, broken) if n else None
        return Difference(interval, p_value, "McNemar, exact", n, size, fixed, broken)

    test = "paired t" if groups == n else "paired t, clustered"
    low, high, method, p_value = -math.inf, math.inf, "t", None
    if groups > 1 and error > 0:
        half = t_quantile((1 + confidence) / 2, groups - 1) * error
        low, high = delta - half, delta + half
        if binary:
            low, high = max(low, -1.0), min(high, 1.0)
        p_value = t_two_sided(delta / error, groups - 1)
    elif groups > 1:  # the same change everywhere, mostly none: all that is left is its sign
        test, p_value = "sign, exact", mcnemar(groups, 0) if delta else 1.0
        if all(0 <= value <= 1 for value in (*before, *after)):
            (low, high), method = no_spread(delta, groups, confidence, -1.0, 1.0), "no spread"
    interval = Interval(delta, low, high, n, how_many, confidence, method)
    return Difference(interval, p_value, test, n, size, fixed, broken)


def unpaired_difference(
    before: Sequence[float],
    after: Sequence[float],
    *,
    clusters: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
    binary: bool | None = None,
    confidence: float = 0.95,
) -> Difference:
    """The difference of two means whose values have nothing to do with each other.

    Passes and failures (0 and 1): Newcombe's interval and the chi-squared test with N - 1. Other
    values, and clusters (of `before` and of `after`): Welch's t.
    """
    quantile = two_sided(confidence)
    before, after = finite_values(before), finite_values(after)
    binary = _binary(binary, before, after)
    old, old_error, old_groups = spread_of(before, clusters and clusters[0])
    new, new_error, new_groups = spread_of(after, clusters and clusters[1])
    n, delta = len(before) + len(after), new - old
    how_many = old_groups + new_groups if clusters else None
    pooled = math.hypot(std(before), std(after)) / math.sqrt(2)
    size = _effect(old, new, None if binary else pooled)

    if binary and old_groups + new_groups == n:
        low, high = -math.inf, math.inf
        p_value = None
        if before and after:
            low, high = _newcombe(before, after, quantile)
            p_value = _chi_squared(before, after)
        interval = Interval(delta, low, high, n, how_many, confidence, "Newcombe")
        return Difference(interval, p_value, "chi-squared, N - 1", 0, size)

    low, high, p_value = -math.inf, math.inf, None
    error = math.hypot(old_error, new_error)
    if min(old_groups, new_groups) > 1 and error > 0:
        share = (old_error / error) ** 2
        df = 1 / (share**2 / (old_groups - 1) + (1 - share) ** 2 / (new_groups - 1))
        half = t_quantile((1 + confidence) / 2, df) * error
        low, high = delta - half, delta + half
        p_value = t_two_sided(delta / error, df)
    interval = Interval(delta, low, high, n, how_many, confidence, "Welch")
    test = "Welch's t" if old_groups + new_groups == n else "Welch's t, clustered"
    return Difference(interval, p_value, test, 0, size)


def mcnemar(fixed: int, broken: int) -> float:
    """The exact p-value of McNemar's test: would a coin fall so, one toss for each that changed?

    >>> round(mcnemar(8, 1), 3)
    0.039
    """
    if min(fixed, broken) < 0:
        raise UsageError(f"expected counts, got fixed={fixed!r}, broken={broken!r}")
    return min(1.0, 2 * binomial_cdf(min(fixed, broken), fixed + broken, 0.5))


def wilcoxon(differences: Sequence[float]) -> float:
    """The p-value of Wilcoxon's signed-rank test; zeros are left out.

    Exact up to 50 differences, also where some are equally large; by the normal curve beyond.
    (F. Wilcoxon, Biometrics Bulletin 1, 1945.)
    """
    # To 12 digits, so that 0.3 - 0.2 ties with 0.1.
    rounded = [float(f"{d:.12g}") for d in finite_values(differences)]
    changes = sorted(filter(None, rounded), key=abs)
    n = len(changes)
    sizes = Counter(map(abs, changes))
    ranks: dict[float, int] = {}  # twice the rank, which is a whole number where there are ties
    before = 0
    for size, count in sizes.items():
        ranks[size] = 2 * before + count + 1
        before += count
    up = sum(ranks[d] for d in changes if d > 0)
    total = n * (n + 1)
    least = min(up, total - up)
    if n > 50:
        ties = sum(count**3 - count for count in sizes.values())
        variance = n * (n + 1) * (2 * n + 1) / 24 - ties / 48
        return 2 * normal_cdf((least - total / 2) / 2 / math.sqrt(variance))
    ways = [1] + [0] * least  # ways[s]: how many choices of signs have positive ranks of sum s
    for change in changes:
        rank = ranks[abs(change)]
        ways[rank:] = map(add, ways[rank:], ways)
    return min(1.0, 2 * sum(ways) / 2.0**n)


def _binary(told: bool | None, *sides: list[float]) -> bool:
    """Whether all values are 0 or 1; refuses to be told so where they are not."""
    found = set().union(*sides) <= {0.0, 1.0}
    if told and not found:
        raise UsageError("expected only 0 and 1 with `binary=True` - leave it out for other values")
    return found if told is None else told


def _change(old: float, new: float) -> float:
    """What rounding makes of nothing is nothing: 0.1 + 0.2 is no better than 0.3."""
    return 0.0 if math.isclose(old, new, rel_tol=1e-12) else new - old


def _effect(old: float, new: float, deviation: float | None) -> float | None:
    """The difference in standard deviations, None where there is no spread; of rates Cohen's h,
    where it is equally hard to see everywhere on the scale."""
    if deviation is None:
        return 2 * (math.asin(math.sqrt(new)) - math.asin(math.sqrt(old)))
    delta = new - old
    return delta / deviation if deviation > 1e-12 * abs(delta) else None


def _tango(fixed: int, broken: int, n: int, quantile: float) -> tuple[float, float]:
    """T. Tango's score interval for paired rates, Statistics in Medicine 17, 1998."""

    def score(delta: float) -> float:
        # The likeliest chance of breaking, were `delta` the true difference.
        b = (2 * n - fixed + broken) * delta - fixed - broken
        c = -broken * delta * (1 - delta)
        breaking = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * breaking + delta * (1 - delta))
        distance = fixed - broken - n * delta
        return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)

    middle = (fixed - broken) / n
    low = -1.0 if broken == n else falls_to(quantile, score, -1.0, middle)
    high = 1.0 if fixed == n else falls_to(-quantile, score, middle, 1.0)
    return low, high


def falls_to(level: float, function: Callable[[float], float], left: float, right: float) -> float:
    """Where a falling function crosses the level, to the last bit."""
    while left < (middle := (left + right) / 2) < right:
        if function(middle) > level:
            left = middle
        else:
            right = middle
    return middle


def _newcombe(before: list[float], after: list[float], quantile: float) -> tuple[float, float]:
    """R. G. Newcombe's interval for two rates, Statistics in Medicine 17, 1998: method 10."""
    old, new = mean(before), mean(after)
    old_low, old_high = wilson_interval(math.fsum(before), len(before), z=quantile)
    new_low, new_high = wilson_interval(math.fsum(after), len(after), z=quantile)
    delta = new - old
    return (
        delta - math.hypot(new - new_low, old_high - old),
        delta + math.hypot(new_high - new, old - old_low),
    )


def _chi_squared(before: list[float], after: list[float]) -> float:
    """The test of two rates that I. Campbell recommends, Statistics in Medicine 26, 2007."""
    n = len(before) + len(after)
    rate = mean([*before, *after])
    variance = rate * (1 - rate) * (1 / len(before) + 1 / len(after)) * n / (n - 1)
    if not variance:
        return 1.0
    return 2 * normal_cdf(-abs(mean(after) - mean(before)) / math.sqrt(variance))
