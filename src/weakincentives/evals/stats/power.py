"""Power: how many samples does a run need to detect a difference?

`effect` is the difference to detect. Scores are compared by a paired t-test: `sd` is the standard
deviation of the differences between two runs of the same samples, from an earlier comparison.
Passes are compared by McNemar's mid-p test: `flips` is the share of the samples that pass in only
one of the two runs, and the power is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

from ...errors import UsageError, short_repr
from .differences import mcnemar
from .distributions import binomial_cdf, log_choose, normal_cdf, normal_quantile, t_quantile


def power_of(n: int, effect: float, sd: float, *, alpha: float = 0.05) -> float:
    """Return the power of `n` pairs: the probability of p < `alpha` for a true `effect`."""
    _check(sd, alpha)
    if n < 2:
        return 0.0
    if not sd or not effect:
        return 1.0 if effect else alpha
    df = n - 1
    shift = abs(effect) / sd * math.sqrt(n)
    if n > 1_000_000:  # t equals the normal distribution to six digits
        critical = normal_quantile(1 - alpha / 2)
        return normal_cdf(shift - critical) + normal_cdf(-shift - critical)
    critical = t_quantile(1 - alpha / 2, df)
    # The mean over the sample deviation s, whose true value is 1, by Simpson's rule. df * s * s has
    # a chi-squared distribution; ten deviations to each side leave out 1e-20.
    reach = 10 / math.sqrt(2 * df)
    start, stop, steps = max(0.0, 1 - reach), 1 + reach, 400
    # With a large critical value only a small s can be significant: look there.
    stop = max(min(stop, (shift + 10) / critical), start + 1e-9)
    width = (stop - start) / steps
    log_scale = math.log(2) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)
    terms = []
    for step in range(steps + 1):
        s = start + step * width
        if s > 0:
            density = math.exp(log_scale + (df - 1) * math.log(s) - df / 2 * s * s)
        else:
            density = math.exp(log_scale) if df == 1 else 0.0
        power = normal_cdf(shift - critical * s) + normal_cdf(-shift - critical * s)
        weight = 1 if step in (0, steps) else 4 if step % 2 else 2
        terms.append(weight * density * power)
    return min(1.0, math.fsum(terms) * width / 3)


def minimum_detectable_effect(
    n: int, sd: float, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the smallest effect that `n` pairs detect with this power; infinite below two."""
    _check(sd, alpha, power)
    if n < 2 or not sd:
        return math.inf if n < 2 else 0.0
    low, high = 0.0, sd
    while power_of(n, high, sd, alpha=alpha) < power:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if power_of(n, middle, sd, alpha=alpha) < power:
            low = middle
        else:
            high = middle
    return high


def samples_needed(effect: float, sd: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Return the smallest number of pairs that detects `effect` with this power."""
    _check(sd, alpha, power)
    if not effect:
        raise UsageError("expected an effect other than 0 - no number of samples detects that one")
    return _smallest(lambda n: power_of(n, effect, sd, alpha=alpha) >= power, above=1)


def _smallest(is_enough: Callable[[int], bool], above: int) -> int:
    """Return the smallest number above that one that is enough; all larger ones are, too."""
    low, high = above, above + 1
    while not is_enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def flip_power(n: int, effect: float, flips: float, *, alpha: float = 0.05) -> float:
    """Return the probability that `n` samples show a true `effect`, in the right direction.

    >>> round(flip_power(200, 0.10, 0.20), 3)
    0.903
    """
    _check_flips(effect, flips, alpha)
    if n < 1 or not flips:
        return 0.0
    effect = abs(effect)
    fixes = (flips + effect) / (2 * flips)  # the share of the flips that are fixes
    expected, deviation = n * flips, math.sqrt(n * flips * (1 - flips))
    if expected > _MANY_FLIPS:
        critical = normal_quantile(1 - alpha / 2) * math.sqrt(flips)
        return normal_cdf(
            (effect * math.sqrt(n) - critical) / math.sqrt(max(flips - effect**2, 1e-12))
        )
    first = max(0, math.floor(expected - 6 * deviation))
    last = min(n, math.ceil(expected + 6 * deviation))
    detections = _chances_of_significance(first, last, fixes, alpha)
    chance = _binomial_chances(flips)
    return math.fsum(chance(first + i, n) * each for i, each in enumerate(detections))


def _chances_of_significance(first: int, last: int, fixes: float, alpha: float) -> Iterator[float]:
    """Yield the chance of enough fixes to be significant, for each number of flips.

    Each chance follows from the one before: computing each from scratch takes several times as
    long.
    """
    chance = _binomial_chances(fixes)
    fewest = _fewest_fixes(first, alpha)
    detected = 1 - binomial_cdf(fewest - 1, first, fixes)
    yield detected
    for count in range(first + 1, last + 1):
        detected += fixes * chance(fewest - 1, count - 1)  # one fewer, and the new flip is a fix
        needed = _fewest_fixes(count, alpha)
        detected -= math.fsum(chance(each, count) for each in range(fewest, needed))
        detected += math.fsum(chance(each, count) for each in range(needed, fewest))
        fewest = needed
        yield detected


_MANY_FLIPS = 300  # from here on the normal distribution gives the power to 0.002


@lru_cache(4096)
def _fewest_fixes(flips: int, alpha: float) -> int:
    """Return how many of the flips must be fixes to be significant; more than all if none are."""
    expected = flips / 2 + normal_quantile(1 - alpha / 2) * math.sqrt(flips) / 2
    fixes = max(flips // 2 + 1, math.floor(expected) - 1)
    while fixes <= flips and mcnemar(fixes, flips - fixes) > alpha:
        fixes += 1
    while 2 * (fixes - 1) > flips and mcnemar(fixes - 1, flips - fixes + 1) <= alpha:
        fixes -= 1
    return fixes


def minimum_detectable_flips(
    n: int, flips: float, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the smallest effect that `n` samples show with this power; infinite if none is.

    An effect takes at least as many flips: `flips` is the least that there are.
    """
    _check_flips(0.0, flips, alpha, power)
    low, high = 0.0, 1.0
    if flip_power(n, high, 1.0, alpha=alpha) < power:
        return math.inf
    while high - low > 1e-5:
        middle = (low + high) / 2
        if flip_power(n, middle, max(flips, middle), alpha=alpha) < power:
            low = middle
        else:
            high = middle
    return high


def samples_needed_flips(
    effect: float, flips: float, *, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Return the smallest number of samples that shows `effect` with this power.

    >>> samples_needed_flips(0.10, 0.20)
    152
    """
    _check_flips(effect, flips, alpha, power)
    if not effect:
        raise UsageError("expected an effect other than 0 - no number of samples detects that one")
    return _smallest(lambda n: flip_power(n, effect, flips, alpha=alpha) >= power, above=0)


def samples_needed_margin(
    margin: float, flips: float, *, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Return the number of samples that show an equal run to be worse by less than `margin`.

    `alpha` is one-sided. It is that of Tango's bound, by the normal distribution.

    >>> samples_needed_margin(0.05, 0.10)
    274
    """
    _check(0.0, alpha, power)
    if not (0 < margin < 1 and 0 < flips <= 1):
        raise UsageError(
            "expected a margin and a share of flips between 0 and 1, got "
            f"{short_repr(margin)} and {short_repr(flips)}"
        )
    # The estimated share of samples that break, if the run were worse by the margin.
    b = 2 * margin + flips
    breaking = (b + math.sqrt(max(0.0, b * b - 4 * flips * margin * (1 + margin)))) / 4
    variance = 2 * breaking - margin * (1 + margin)
    spread = normal_quantile(1 - alpha) * math.sqrt(max(0.0, variance))
    spread += normal_quantile(power) * math.sqrt(flips)
    return math.ceil((spread / margin) ** 2)


def _binomial_chances(p: float) -> Callable[[int, int], float]:
    """Return the function that gives the chance of `k` successes in `n` attempts."""
    if p == 1:
        return lambda k, n: float(k == n)
    yes, no = math.log(p), math.log1p(-p)
    return lambda k, n: math.exp(_log_choose(n, k) + k * yes + (n - k) * no)


# Looking for the smallest effect asks for the same numbers some twenty times.
_log_choose = lru_cache(4096)(log_choose)


def _check_flips(effect: float, flips: float, alpha: float, power: float = 0.8) -> None:
    _check(0.0, alpha, power)
    if not abs(effect) <= flips <= 1:
        raise UsageError(
            "expected a share of flips from the effect to 1, got "
            f"{short_repr(flips)} for an effect of {short_repr(effect)}"
        )


def _check(sd: float, alpha: float, power: float = 0.8) -> None:
    if not (sd >= 0 and math.isfinite(sd)):
        raise UsageError(f"expected a standard deviation of at least 0, got {short_repr(sd)}")
    if not 0 < alpha < 1:
        raise UsageError(f"expected an `alpha` between 0 and 1, got {short_repr(alpha)}")
    if not alpha < power < 1:
        raise UsageError(f"expected a power above alpha and below 1, got {short_repr(power)}")
