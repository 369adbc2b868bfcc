"""Mean, standard deviation and Wilson's interval: what every report needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

Z_95 = 1.959963984540054
"""The normal quantile of a two-sided 95% interval."""


def mean(values: Sequence[float]) -> float:
    """Return the mean, 0.0 without values. It does not depend on the order of the values."""
    try:
        return math.fsum(values) / len(values) if values else 0.0
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def means_by_name(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the mean of the values of each name, in the order of first appearance."""
    groups: dict[str, list[float]] = {}
    for name, value in values:
        groups.setdefault(name, []).append(value)
    return {name: mean(group) for name, group in groups.items()}


def std(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample (n - 1); 0.0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    largest = max(abs(value - centre) for value in values) or 1.0
    # Scaled to at most 1, because the squares of large rewards would overflow.
    squares = math.fsum(((value - centre) / largest) ** 2 for value in values)
    return largest * math.sqrt(squares / (len(values) - 1))


def wilson_interval(passed: float, n: float, *, z: float = Z_95) -> tuple[float, float]:
    """Return the Wilson score interval of a rate; 0 to 1 without observations.

    Unlike the textbook interval it never has width 0: after 0 of 3 the rate may well be 0.5.
    (E. B. Wilson, Journal of the American Statistical Association 22, 1927.)
    """
    if n == 0:
        return 0.0, 1.0
    rate = passed / n
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    centre = rate + z * z / (2 * n)
    scale = 1 + z * z / n
    # At 0 of n and n of n the ends are exactly 0 and 1; rounding would miss them slightly.
    low = 0.0 if passed == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if passed == n else min(1.0, (centre + spread) / scale)
    return low, high


def p_text(p: float) -> str:
    """Format a p-value: `p = 0.008`, or `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
