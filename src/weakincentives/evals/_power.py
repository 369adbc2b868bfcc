"""How many samples does it take? Power of the paired t-test, exactly, before a run.

`effect` is the difference to be seen, `sd` the standard deviation of the differences between two
runs of the same samples (of an earlier comparison). Both are in the unit of the values.
"""

from __future__ import annotations

import math

from ..errors import UsageError, shown
from ._distributions import normal_cdf, normal_quantile, t_quantile

__all__ = ["minimum_detectable_effect", "power_of", "samples_needed"]


def power_of(n: int, effect: float, sd: float, *, alpha: float = 0.05) -> float:
    """The chance that `n` pairs show a true difference of `effect`, at a p-value below `alpha`."""
    _check(sd, alpha)
    if n < 2:
        return 0.0
    if not sd or not effect:
        return 1.0 if effect else alpha
    df = n - 1
    shift = abs(effect) / sd * math.sqrt(n)
    if n > 1_000_000:  # there t is the normal curve to six digits
        critical = normal_quantile(1 - alpha / 2)
        return normal_cdf(shift - critical) + normal_cdf(-shift - critical)
    critical = t_quantile(1 - alpha / 2, df)
    # The mean over all spreads s that a sample may show, where the true one is 1, by Simpson's
    # rule. n * s * s has a chi-squared distribution; ten deviations to each side leave out 1e-20.
    reach = 10 / math.sqrt(2 * df)
    start, stop, steps = max(0.0, 1 - reach), 1 + reach, 400
    width = (stop - start) / steps
    log_scale = math.log(2) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)
    found = []
    for step in range(steps + 1):
        s = start + step * width
        if s > 0:
            density = math.exp(log_scale + (df - 1) * math.log(s) - df / 2 * s * s)
        else:
            density = math.exp(log_scale) if df == 1 else 0.0
        seen = normal_cdf(shift - critical * s) + normal_cdf(-shift - critical * s)
        weight = 1 if step in (0, steps) else 4 if step % 2 else 2
        found.append(weight * density * seen)
    return min(1.0, math.fsum(found) * width / 3)


def minimum_detectable_effect(
    n: int, sd: float, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """The smallest difference that `n` pairs show with this power; infinite below two pairs."""
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
    """The fewest pairs that show a true difference of `effect` with this power."""
    _check(sd, alpha, power)
    if not effect:
        raise UsageError("expected an effect other than 0 - no number of samples shows that one")
    low, high = 1, 2
    while power_of(high, effect, sd, alpha=alpha) < power:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if power_of(middle, effect, sd, alpha=alpha) < power:
            low = middle
        else:
            high = middle
    return high


def _check(sd: float, alpha: float, power: float = 0.8) -> None:
    if not (sd >= 0 and math.isfinite(sd)):
        raise UsageError(f"expected a standard deviation of at least 0, got {shown(sd)}")
    if not 0 < alpha < 1:
        raise UsageError(f"expected an `alpha` between 0 and 1, got {shown(alpha)}")
    if not alpha < power < 1:
        raise UsageError(f"expected a power above alpha and below 1, got {shown(power)}")
