"""Is B better than A? Differences of two runs with their interval and p-value.

`paired_difference` is for two runs of the same samples: it uses the change in each sample, and so
detects far smaller differences than two separate intervals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import add

from ...errors import UsageError
from .basic import mean, std, wilson_interval
from .distributions import binomial_tail, log_choose, normal_cdf, t_quantile, t_two_sided
from .intervals import Interval, finite_values, spread_of, two_sided, zero_variance_interval


@dataclass(frozen=True, slots=True)
class Difference:
    """The change from `before` to `after`: `delta` is after minus before.

    `fixed` and `broken` count the pairs that got better and worse, and are 0 without pairs.
    `effect_size` is in standard deviations of the differences, or Cohen's h for rates.
    `effective_pairs` is the number of independent pairs of passes that would show as much: fewer
    than `pairs` if those of a cluster agree, and None for other values.
    """

    delta: Interval
    p_value: float | None
    test: str
    pairs: int
    effect_size: float | None
    fixed: int = 0
    broken: int = 0
    effective_pairs: float | None = None


def paired_difference(
    before: Sequence[float],
    after: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    binary: bool | None = None,
    confidence: float = 0.95,
) -> Difference:
    """Return the mean change from `before[i]` to `after[i]`.

    Passes and failures (0 and 1): Tango's score interval and McNemar's mid-p test, for the
    effective number of independent pairs. Other values: Student's t on the differences, clustered.
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
    cluster_count = None if clusters is None else groups
    size = _effect(mean(before), mean(after), None if binary else std(changes))

    p_value: float | None = None
    if binary and n:
        if groups < n:
            quantile = t_quantile((1 + confidence) / 2, groups - 1) if groups > 1 else math.inf
        pairs = _effective_pairs(fixed, broken, n, error, groups)
        gained, lost = fixed * pairs / n, broken * pairs / n
        low, high = _tango(gained, lost, pairs, quantile)
        interval = Interval(delta, low, high, n, cluster_count, confidence, "Tango")
        p_value = mcnemar(gained, lost)
        return Difference(interval, p_value, "McNemar, mid-p", n, size, fixed, broken, pairs)

    test = "paired t" if groups == n else "paired t, clustered"
    low, high, method = -math.inf, math.inf, "t"
    if groups > 1 and error > 0:
        half = t_quantile((1 + confidence) / 2, groups - 1) * error
        low, high = delta - half, delta + half
        p_value = t_two_sided(delta / error, groups - 1)
    elif groups > 1:  # the same change everywhere, mostly none: only its sign can be tested
        test, p_value = "sign, exact", mcnemar(groups, 0, exact=True) if delta else 1.0
        if all(0 <= value <= 1 for value in (*before, *after)):
            low, high = zero_variance_interval(delta, groups, confidence, -1.0, 1.0)
            method = "no spread"
    interval = Interval(delta, low, high, n, cluster_count, confidence, method)
    return Difference(interval, p_value, test, n, size, fixed, broken)


def unpaired_difference(
    before: Sequence[float],
    after: Sequence[float],
    *,
    clusters: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
    binary: bool | None = None,
    confidence: float = 0.95,
) -> Difference:
    """Return the difference of the means of two independent sets of values.

    Passes and failures (0 and 1): Newcombe's interval and Fisher's test, mid-p. Other values, and
    clusters (of `before` and of `after`): Welch's t.
    """
    quantile = two_sided(confidence)
    before, after = finite_values(before), finite_values(after)
    binary = _binary(binary, before, after)
    old, old_error, old_groups = spread_of(before, clusters and clusters[0])
    new, new_error, new_groups = spread_of(after, clusters and clusters[1])
    n, delta = len(before) + len(after), new - old
    cluster_count = old_groups + new_groups if clusters else None
    pooled = math.hypot(std(before), std(after)) / math.sqrt(2)
    size = _effect(old, new, None if binary else pooled)

    if binary and old_groups + new_groups == n:
        low, high = -math.inf, math.inf
        p_value = None
        if before and after:
            ends = (
                wilson_interval(math.fsum(side), len(side), z=quantile) for side in (before, after)
            )
            low, high = _newcombe(old, new, *ends)
            p_value = _fisher(before, after)
        interval = Interval(delta, low, high, n, cluster_count, confidence, "Newcombe")
        return Difference(interval, p_value, "Fisher, mid-p", 0, size)

    low, high, p_value, method = -math.inf, math.inf, None, "Welch"
    test = "Welch's t" if old_groups + new_groups == n else "Welch's t, clustered"
    error = math.hypot(old_error, new_error)
    if min(old_groups, new_groups) > 1 and error > 0:
        share = (old_error / error) ** 2
        df = 1 / (share**2 / (old_groups - 1) + (1 - share) ** 2 / (new_groups - 1))
        half = t_quantile((1 + confidence) / 2, df) * error
        low, high = delta - half, delta + half
        p_value = t_two_sided(delta / error, df)
    elif min(old_groups, new_groups) > 1:  # one value on each side: how often would chance do that?
        test, method = "permutation, exact", "no spread"
        p_value = 1.0
        if delta:
            p_value = min(1.0, 2 * math.exp(-log_choose(old_groups + new_groups, old_groups)))
        if all(0 <= value <= 1 for value in (old, new)):
            ends = (
                zero_variance_interval(value, groups, confidence, 0.0, 1.0)
                for value, groups in ((old, old_groups), (new, new_groups))
            )
            low, high = _newcombe(old, new, *ends)
    interval = Interval(delta, low, high, n, cluster_count, confidence, method)
    return Difference(interval, p_value, test, 0, size)


def mcnemar(fixed: float, broken: float, *, exact: bool = False) -> float:
    """Return the p-value of McNemar's test: a coin toss for each pair that changed.

    By default the mid-p value, in which an outcome as extreme as this one counts half: the exact
    test is too conservative. (M. W. Fagerland et al., BMC Medical Research Methodology 13, 2013.)

    >>> round(mcnemar(8, 1), 3), round(mcnemar(8, 1, exact=True), 3)
    (0.021, 0.039)
    """
    if min(fixed, broken) < 0:
        raise UsageError(f"expected counts, got fixed={fixed!r}, broken={broken!r}")
    more, less = max(fixed, broken), min(fixed, broken)
    at_least = binomial_tail(more, less + 1)
    beyond = at_least if exact else binomial_tail(more + 1, less)
    return min(1.0, at_least + beyond)


def wilcoxon(differences: Sequence[float]) -> float:
    """Return the p-value of Wilcoxon's signed-rank test; zeros are left out.

    Exact up to 50 differences, ties included; by the normal approximation beyond.
    (F. Wilcoxon, Biometrics Bulletin 1, 1945.)
    """
    # To 12 digits, so that 0.3 - 0.2 ties with 0.1.
    rounded = [float(f"{d:.12g}") for d in finite_values(differences)]
    changes = sorted(filter(None, rounded), key=abs)
    n = len(changes)
    sizes = Counter(map(abs, changes))
    ranks: dict[float, int] = {}  # twice the rank, which is an integer even with ties
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
    ways = [1] + [0] * least  # ways[s]: the number of sign choices whose positive ranks sum to s
    for change in changes:
        rank = ranks[abs(change)]
        ways[rank:] = map(add, ways[rank:], ways)
    return min(1.0, 2 * sum(ways) / 2.0**n)


def _binary(binary: bool | None, *sides: list[float]) -> bool:
    """Return whether all values are 0 or 1, unless `binary` says so; raise if it is wrong."""
    all_binary = set().union(*sides) <= {0.0, 1.0}
    if binary and not all_binary:
        raise UsageError("expected only 0 and 1 with `binary=True` - leave it out for other values")
    return all_binary if binary is None else binary


def _change(old: float, new: float) -> float:
    """Return the change, ignoring rounding: 0.1 + 0.2 is not better than 0.3."""
    return 0.0 if math.isclose(old, new, rel_tol=1e-12) else new - old


def _effect(old: float, new: float, deviation: float | None) -> float | None:
    """Return the difference in standard deviations (None without spread); Cohen's h for rates."""
    if deviation is None:
        return 2 * (math.asin(math.sqrt(new)) - math.asin(math.sqrt(old)))
    delta = new - old
    return delta / deviation if deviation > 1e-12 * abs(delta) else None


def _effective_pairs(fixed: int, broken: int, n: int, error: float, groups: int) -> float:
    """Return the number of independent pairs whose change would have this standard error."""
    if groups == n or not error:  # if all clusters agree, each counts once: that is conservative
        return groups
    variance = (fixed + broken) / n - ((fixed - broken) / n) ** 2
    return min(max(variance / error**2, groups), n)


def careful_ends(difference: Difference) -> tuple[float, float]:
    """Return the ends of the interval of a change in passes, to be compared with a margin.

    A few clusters that changed say little about the spread of all: two more are assumed, changed as
    a whole. Without them, a bound of 95% is one of 90 to 94% if samples break in all their epochs.
    """
    delta, pairs, groups = difference.delta, difference.effective_pairs, difference.delta.clusters
    n = difference.pairs
    flips = difference.fixed + difference.broken
    if pairs is None or groups is None or not 1 < groups < n or not flips:
        return delta.low, delta.high
    variance = flips / n - ((difference.fixed - difference.broken) / n) ** 2
    careful = max(groups, variance / (variance / pairs + 2 / groups**2)) if variance else groups
    quantile = t_quantile((1 + delta.confidence) / 2, groups - 1)
    fixed, broken = (count * careful / n for count in (difference.fixed, difference.broken))
    return _tango(fixed, broken, careful, quantile)


def _tango(fixed: float, broken: float, n: float, quantile: float) -> tuple[float, float]:
    """Return the score interval for paired rates of T. Tango, Statistics in Medicine 17, 1998."""

    def score(delta: float) -> float:
        # The maximum likelihood estimate of breaking, if `delta` is the true difference.
        b = (2 * n - fixed + broken) * delta - fixed - broken
        c = -broken * delta * (1 - delta)
        breaking = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * breaking + delta * (1 - delta))
        distance = fixed - broken - n * delta
        return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)

    middle = (fixed - broken) / n
    low = -1.0 if broken == n else bisect_decreasing(quantile, score, -1.0, middle)
    high = 1.0 if fixed == n else bisect_decreasing(-quantile, score, middle, 1.0)
    return low, high


def bisect_decreasing(
    level: float, function: Callable[[float], float], left: float, right: float
) -> float:
    """Return where a decreasing function crosses the level, to the last bit."""
    while left < (middle := (left + right) / 2) < right:
        if function(middle) > level:
            left = middle
        else:
            right = middle
    return middle


def _newcombe(
    old: float, new: float, old_ends: tuple[float, float], new_ends: tuple[float, float]
) -> tuple[float, float]:
    """Return method 10 of R. G. Newcombe for two rates, Statistics in Medicine 17, 1998."""
    delta = new - old
    return (
        delta - math.hypot(new - new_ends[0], old_ends[1] - old),
        delta + math.hypot(new_ends[1] - new, old - old_ends[0]),
    )


def _fisher(before: list[float], after: list[float]) -> float:
    """Return twice the smaller tail of Fisher's test, in which the outcome itself counts half.

    Unlike the chi-squared test, it keeps its level if one run is much smaller than the other.
    """
    sides = (int(math.fsum(before)), len(before)), (int(math.fsum(after)), len(after))
    (few, n), (many, m) = sorted(sides, key=lambda side: side[0] / side[1])
    if few + many in (0, n + m):
        return 1.0
    chance = math.exp(log_choose(n, few) + log_choose(m, many) - log_choose(n + m, few + many))
    tail = chance / 2
    while few > 0 and many < m and chance > 1e-17 * tail:  # fewer here, and more on the other side
        chance *= few * (m - many) / ((n - few + 1) * (many + 1))
        few, many = few - 1, many + 1
        tail += chance
    return min(1.0, 2 * tail)
