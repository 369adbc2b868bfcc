"""The normal, Student's t and the binomial distribution, without SciPy.

All but the normal use the incomplete beta function, by its continued fraction
(Press et al., Numerical Recipes, 2007, section 6.4). Tests compare it with SciPy to 1e-10.
"""

from __future__ import annotations

import math
from functools import lru_cache

from .basic import Z_95

_TINY = 1e-300


def normal_cdf(x: float) -> float:
    """Return the probability that a standard normal number is at most `x`."""
    return math.erfc(-x / math.sqrt(2)) / 2


def normal_quantile(chance: float) -> float:
    """Return the quantile of the standard normal distribution."""
    if chance == 0.975:  # the quantile of 95% intervals, enough for most reports
        return Z_95
    from statistics import NormalDist  # here: importing it takes 2.5 ms, as long as a small report

    return NormalDist().inv_cdf(chance)


def t_two_sided(t: float, df: float) -> float:
    """Return the probability that Student's t is further from 0 than `t`: the p-value."""
    if math.isinf(t):
        return 0.0
    square = t * t
    return _incomplete_beta(df / 2, 0.5, df / (df + square), square / (df + square))


@lru_cache(256)  # the slices of a report often have the same size
def t_quantile(chance: float, df: float) -> float:
    """Return the quantile of Student's t for a probability above 0.5."""
    outside = 2 * (1 - chance)
    # The normal quantile is always nearer to 0. From there Newton's method converges monotonically,
    # because the tail is convex.
    t = normal_quantile(chance)
    scale = math.exp(-log_beta(df / 2, 0.5)) / math.sqrt(df)
    while True:
        density = scale * math.exp(-(df + 1) / 2 * math.log1p(t * t / df))
        step = (t_two_sided(t, df) - outside) / (2 * density)
        t += step
        if step <= 1e-14 * t:
            return t


def binomial_cdf(k: int, n: int, p: float) -> float:
    """Return the probability of at most `k` successes in `n` attempts with probability `p`."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else _incomplete_beta(n - k, k + 1, 1 - p, p)


def binomial_tail(successes: float, failures: float) -> float:
    """Return the chance that a fair coin shows `successes` heads before `failures` tails.

    With `failures` of one more than were seen, this is the chance of at least as many heads in as
    many tosses. The counts need not be whole.
    """
    if successes <= 0 or failures <= 0:
        return 1.0 if successes <= 0 else 0.0
    return _incomplete_beta(successes, failures, 0.5, 0.5)


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """Return the regularised I_x(a, b). `y` is 1 - x, which the caller knows without rounding."""
    if x <= 0.0 or y <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1) / (a + b + 2):  # there the other tail converges sooner
        return 1.0 - _incomplete_beta(b, a, y, x)
    log_x = math.log1p(-y) if x > 0.5 else math.log(x)
    log_y = math.log1p(-x) if y > 0.5 else math.log(y)
    front = math.exp(a * log_x + b * log_y - log_beta(a, b)) / a
    return front * _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction by Lentz's method, in O(sqrt(max(a, b))) steps."""
    c, d = 1.0, 1.0 / _nonzero(1 - (a + b) * x / (a + 1))
    value, m = d, 0
    while True:
        m += 1
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def log_beta(a: float, b: float) -> float:
    """Return log B(a, b), without subtracting two large log-gammas, which would lose precision."""
    small, large = sorted((a, b))
    if large < 10:
        return math.lgamma(small) + math.lgamma(large) - math.lgamma(small + large)
    both = small + large
    return (
        math.lgamma(small)
        + _stirling_rest(large)
        - _stirling_rest(both)
        + small
        - small * math.log(both)
        - (large - 0.5) * math.log1p(small / large)
    )


def log_choose(n: int, k: int) -> float:
    """Return the logarithm of the number of ways to choose `k` of `n`."""
    return -log_beta(k + 1, n - k + 1) - math.log(n + 1)


def _stirling_rest(x: float) -> float:
    """Return the remainder of Stirling's formula for log-gamma, for x of at least 10."""
    square = x * x
    return (
        1 / 12
        - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * square)) / square) / square) / square
    ) / x
