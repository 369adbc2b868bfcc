"""P-values adjusted for several comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UsageError, short_repr


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted to control the family-wise error rate.

    (S. Holm, Scandinavian Journal of Statistics 6, 1979.)

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order, adjusted = _ascending(p_values), [0.0] * len(p_values)
    worst = 0.0
    for rank, index in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted to control the false discovery rate.

    (Y. Benjamini and Y. Hochberg, Journal of the Royal Statistical Society B 57, 1995.)
    """
    order, adjusted = _ascending(p_values), [0.0] * len(p_values)
    best = 1.0
    for rank, index in reversed([*enumerate(order, 1)]):
        best = min(best, len(order) / rank * p_values[index])
        adjusted[index] = best
    return adjusted


def _ascending(p_values: Sequence[float]) -> list[int]:
    for index, value in enumerate(p_values):
        if not 0 <= value <= 1:
            raise UsageError(
                f"expected p-values from 0 to 1, got {short_repr(value)} - at `[{index}]`"
            )
    return sorted(range(len(p_values)), key=p_values.__getitem__)
