"""Numbers with their uncertainty: pure functions, no dependency."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Z_95", "mean", "std", "wilson_interval"]

Z_95 = 1.959963984540054
"""The normal quantile of a two-sided 95 % interval."""


def mean(values: Sequence[float]) -> float:
    """The mean; 0.0 of nothing. The order of the values never shows in it."""
    try:
        return math.fsum(values) / len(values) if values else 0.0
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def std(values: Sequence[float]) -> float:
    """The standard deviation of a sample (n - 1); 0.0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    largest = max(abs(value - centre) for value in values) or 1.0
    # Squares of what is at most 1: the squares of large rewards would overflow.
    squares = math.fsum(((value - centre) / largest) ** 2 for value in values)
    return largest * math.sqrt(squares / (len(values) - 1))


def wilson_interval(passed: int, n: int, *, z: float = Z_95) -> tuple[float, float]:
    """The Wilson score interval of a rate; with no observation, everything is possible.

    Unlike the textbook ± it never has width 0: after 0 of 3 the rate may well be a half.
    (E. B. Wilson, Journal of the American Statistical Association 22, 1927.)
    """
    if n == 0:
        return 0.0, 1.0
    rate = passed / n
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    centre = rate + z * z / (2 * n)
    scale = 1 + z * z / n
    # At 0 of n and n of n the ends are exactly 0 and 1; rounding would leave them just beside.
    low = 0.0 if passed == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if passed == n else min(1.0, (centre + spread) / scale)
    return low, high
