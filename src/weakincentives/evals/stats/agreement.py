"""How far people agree: Krippendorff's alpha, for any number of people and missing labels.

Alpha compares how often two labels of the same output differ with how often any two labels differ:
1 is full agreement, 0 what chance would give. With two people and no missing label it is nearly
Cohen's kappa. (K. Krippendorff, Content Analysis, 4th ed., 2018, chapter 12.)
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

from .intervals import Interval, drawn_interval, two_sided

_DRAWS = 2_000
_PSEUDO_UNITS = 0.5
"""Outputs of each kind (both pass, both fail, they differ) that are added, in the interval only.

Without them, ten labels that all agree would have an interval without any width.
"""

Pattern = tuple[tuple[Hashable, int], ...]
"""How often each label was given to an output."""


def krippendorff_alpha(
    units: Iterable[Iterable[Hashable]], *, confidence: float = 0.95
) -> Interval | None:
    """Return alpha of nominal labels with its interval; `units` are the labels of each output.

    Outputs with fewer than two labels say nothing about agreement. None if there are no others, or
    if all labels are the same: then chance would agree as well. The interval is from the quantiles
    of random weights of the outputs (the Bayesian bootstrap of D. B. Rubin, Annals of Statistics 9,
    1981).

    >>> labels = [("pass", "pass")] * 8 + [("fail", "fail")] * 6 + [("pass", "fail")]
    >>> alpha = krippendorff_alpha(labels)
    >>> round(alpha.estimate, 2), round(alpha.low, 1), round(alpha.high, 1)
    (0.87, 0.4, 1.0)
    """
    two_sided(confidence)
    counted = (Counter(unit) for unit in units)
    patterns = Counter(
        tuple(sorted(each.items(), key=repr)) for each in counted if each.total() >= 2
    )
    estimate = _alpha({pattern: float(count) for pattern, count in patterns.items()})
    if estimate is None:
        return None
    drawn, n = _draws(patterns), patterns.total()
    return drawn_interval(estimate, drawn, n, confidence, "Bayesian bootstrap")


def _draws(patterns: Mapping[Pattern, int]) -> Iterable[float]:
    """Yield alpha for random weights of the outputs."""
    totals: Counter[Hashable] = Counter()
    for pattern, count in patterns.items():
        for label, times in pattern:
            totals[label] += times * count
    common = [label for label, _ in totals.most_common(2)]
    shapes: dict[Pattern, float] = {pattern: float(count) for pattern, count in patterns.items()}
    added: list[Pattern] = [((label, 2),) for label in common]
    added.append(tuple(sorted(((label, 1) for label in common), key=repr)))
    for pattern in added:
        shapes[pattern] = shapes.get(pattern, 0.0) + _PSEUDO_UNITS
    generator = random.Random(0)
    for _ in range(_DRAWS):
        weights = {each: generator.gammavariate(shape, 1) for each, shape in shapes.items()}
        yield _alpha(weights) or 0.0


def _alpha(weights: Mapping[Pattern, float]) -> float | None:
    """Return alpha of outputs with these weights; None if every label is the same."""
    totals: dict[Hashable, float] = {}
    differing = 0.0
    for pattern, weight in weights.items():
        size = sum(times for _, times in pattern)
        for label, times in pattern:
            totals[label] = totals.get(label, 0.0) + weight * times
        pairs = size * (size - 1) - sum(times * (times - 1) for _, times in pattern)
        differing += weight * pairs / (size - 1)
    n = math.fsum(totals.values())
    expected = n * n - math.fsum(total**2 for total in totals.values())
    if n <= 1 or expected <= 1e-12 * n * n:
        return None
    return 1 - (n - 1) * differing / expected
