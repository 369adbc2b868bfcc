"""Intervals of ratios: F1 of two sides, and any ratio of two sums."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

from ...errors import UsageError
from .intervals import Interval, finite_values, mean_interval
from .pass_rate import pass_rate


def f1_interval(
    agreements: Sequence[bool],
    *,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return F1 with its interval.

    `agreements` has an item for each case that at least one side calls positive: whether both do.
    With J, their share, F1 = 2 J / (1 + J). This grows with J, so the ends of J's interval are
    mapped in the same way, and it holds at 0 and 1 too.

    >>> f1_interval([True] * 8 + [False] * 4).estimate
    0.8
    """
    names = range(len(agreements)) if clusters is None else clusters
    share = pass_rate(zip(names, map(bool, agreements), strict=True), confidence=confidence)
    estimate, low, high = (2 * j / (1 + j) for j in (share.estimate, share.low, share.high))
    return replace(share, estimate=estimate, low=low, high=high, method=f"F1, {share.method}")


def ratio_interval(
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    minimum: float = 0.0,
    maximum: float = 1.0,
) -> Interval:
    """Return the ratio of two sums over the same samples, with an interval in `minimum..maximum`.

    By linearization (the delta method): the interval of the mean of
    `(numerator - ratio * denominator) / mean denominator`, around the ratio.
    """
    above, below = finite_values(numerators), finite_values(denominators)
    if len(above) != len(below):
        raise UsageError(
            f"expected a denominator for each of {len(above)} numerators, got {len(below)}"
        )
    total, n = math.fsum(below), len(above)
    if total <= 0:
        raise UsageError("expected denominators with a sum above 0, got none")
    ratio = math.fsum(above) / total
    residuals = [
        (a - ratio * b) * n / total for a, b in zip(above, below, strict=True)
    ]  # their mean is 0
    spread = mean_interval(residuals, clusters=clusters, confidence=confidence)
    low, high = (min(max(ratio + end, minimum), maximum) for end in (spread.low, spread.high))
    return replace(spread, estimate=ratio, low=low, high=high, method="ratio, t")
