"""The normal, Student's t and the binomial distribution, without SciPy.

All but the normal rest on the incomplete beta function, by its continued fraction
(Press et al., Numerical Recipes, 2007, section 6.4). Tests hold it to 1e-10 of SciPy.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["binomial_cdf", "log_beta", "normal_cdf", "normal_quantile", "t_quantile", "t_two_sided"]

_TINY = 1e-300


def normal_cdf(x: float) -> float:
    """The chance that a standard normal number is at most `x`."""
    return math.erfc(-x / math.sqrt(2)) / 2


def normal_quantile(chance: float) -> float:
    """The number that a standard normal one stays under with this chance."""
    from statistics import NormalDist  # takes longer to import than all that we load at a start

    return NormalDist().inv_cdf(chance)


def t_two_sided(t: float, df: float) -> float:
    """The chance that Student's t is further from 0 than `t`: the p-value of a t-test."""
    if math.isinf(t):
        return 0.0
    square = t * t
    return _incomplete_beta(df / 2, 0.5, df / (df + square), square / (df + square))


@lru_cache(256)  # one for each slice of a report, mostly of the same size
def t_quantile(chance: float, df: float) -> float:
    """The number that Student's t stays under with this chance, which is above a half."""
    outside = 2 * (1 - chance)
    # The normal quantile is always nearer to 0. From there Newton's steps only ever go outwards,
    # because the tail is convex, and they end at the root.
    t = normal_quantile(chance)
    scale = math.exp(-log_beta(df / 2, 0.5)) / math.sqrt(df)
    while True:
        density = scale * math.exp(-(df + 1) / 2 * math.log1p(t * t / df))
        step = (t_two_sided(t, df) - outside) / (2 * density)
        t += step
        if step <= 1e-14 * t:
            return t


def binomial_cdf(k: int, n: int, p: float) -> float:
    """The chance of at most `k` successes in `n` attempts that succeed with chance `p`."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else _incomplete_beta(n - k, k + 1, 1 - p, p)


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """The regularised I_x(a, b). `y` is 1 - x, which the caller knows without rounding."""
    if x <= 0.0 or y <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1) / (a + b + 2):  # there the other tail converges sooner
        return 1.0 - _incomplete_beta(b, a, y, x)
    log_x = math.log1p(-y) if x > 0.5 else math.log(x)
    log_y = math.log1p(-x) if y > 0.5 else math.log(y)
    front = math.exp(a * log_x + b * log_y - log_beta(a, b)) / a
    return front * _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Lentz's method; the number of steps grows with the root of the larger of `a` and `b`."""
    c, d = 1.0, 1.0 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value, m = d, 0
    while True:
        m += 1
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def log_beta(a: float, b: float) -> float:
    """log B(a, b). The difference of two large log-gammas would lose the digits that matter."""
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


def _stirling_rest(x: float) -> float:
    """What Stirling's formula leaves out of log-gamma, for x of at least 10."""
    square = x * x
    return (
        1 / 12
        - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * square)) / square) / square) / square
    ) / x
