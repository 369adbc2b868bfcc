"""How one number of two runs differs, in pairs or not, and what difference would have been seen.

A pass rate and a score are shares; time, tokens and money have no upper end, however small they
are. So 0 ms and 1 ms are no failure and no pass, and ten costs of $0.004 say nothing of the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ._comparison import Measure, Pairing
from ._outcomes import Counted
from .statistics import (
    mean,
    minimum_detectable_effect,
    paired_difference,
    std,
    unpaired_difference,
)

__all__ = ["Number", "Pair", "Sides", "measured", "spread_of_pairs"]

Pair = tuple[tuple[Counted, ...], tuple[Counted, ...]]
Sides = tuple[list[tuple[Counted, ...]], list[tuple[Counted, ...]]]
Number = Callable[[Counted], float | None]

_AMOUNTS = {"latency_ms", "tokens", "cost"}


def measured(
    name: str,
    number: Number,
    pairing: Pairing,
    pairs: Sequence[Pair],
    sides: Sides,
    confidence: float,
) -> Measure | None:
    """How the number differs; None where no two rows have it."""
    if pairing == "none":
        return _unpaired(name, number, sides, confidence)
    before, after, clusters = _values(pairs, number)
    if not before:
        return None
    binary = _binary(name, before, after)
    difference = paired_difference(
        before, after, clusters=clusters, binary=binary, confidence=confidence
    )
    if name in _AMOUNTS and difference.delta.method == "no spread":  # that is for shares
        delta = replace(difference.delta, low=-math.inf, high=math.inf, method="t")
        difference = replace(difference, delta=delta)
    return Measure(
        name=name,
        before=mean(before),
        after=mean(after),
        difference=difference,
        detectable=_detectable(before, after, clusters, confidence, binary),
    )


def _binary(name: str, before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether these are passes and failures: 0 ms and 1 ms are not."""
    return name not in _AMOUNTS and {*before, *after} <= {0.0, 1.0}


def spread_of_pairs(pairs: Iterable[Pair], number: Number) -> float:
    """The standard deviation of what changed from one to the other."""
    before, after, clusters = _values(pairs, number)
    return _spread(before, after, clusters, _binary("", before, after))[1]


def _values(
    pairs: Iterable[Pair], number: Number
) -> tuple[list[float], list[float], list[str] | None]:
    """The values of what has them in both runs; and of which samples, where some are repeated."""
    before, after, samples = [], [], []
    for a, b in pairs:
        was, now = _value(a, number), _value(b, number)
        if was is not None and now is not None:
            before.append(was)
            after.append(now)
            samples.append(a[0].sample)
    return before, after, samples if len(set(samples)) < len(samples) else None


def _value(rows: tuple[Counted, ...], number: Number) -> float | None:
    if len(rows) == 1:
        return number(rows[0])
    found = [value for value in map(number, rows) if value is not None]
    return mean(found) if found else None


def _unpaired(name: str, number: Number, sides: Sides, confidence: float) -> Measure | None:
    before, after = (
        [value for rows in side if (value := _value(rows, number)) is not None] for side in sides
    )
    if not before or not after:
        return None
    # Two sizes as one: what the spread of the difference is divided by.
    size = 2 / (1 / len(before) + 1 / len(after))
    spread = math.sqrt(size * sum(std(side) ** 2 / len(side) for side in (before, after)))
    return Measure(
        name=name,
        before=mean(before),
        after=mean(after),
        difference=unpaired_difference(
            before, after, binary=_binary(name, before, after), confidence=confidence
        ),
        detectable=_least(int(size), spread, 1 - confidence),
    )


def _detectable(
    before: Sequence[float],
    after: Sequence[float],
    clusters: Sequence[str] | None,
    confidence: float,
    binary: bool,
) -> float | None:
    """What would have been seen four times out of five, from how much the differences vary."""
    alpha = 1 - confidence
    n, spread = _spread(before, after, clusters, binary)
    least = _least(n, spread, alpha)
    if least is None or clusters is not None or not binary:
        return least
    # The exact test sees nothing in fewer flips than a coin needs heads in a row to be surprising.
    few = math.ceil(1 - math.log2(alpha))
    return max(least, few / n) if few <= n else None


def _spread(
    before: Sequence[float],
    after: Sequence[float],
    clusters: Sequence[str] | None,
    binary: bool,
) -> tuple[int, float]:
    """How many samples there are, and how much their changes vary."""
    changes = [now - was for was, now in zip(before, after, strict=True)]
    if clusters is not None:
        by_sample: dict[str, list[float]] = {}
        for sample, change in zip(clusters, changes, strict=True):
            by_sample.setdefault(sample, []).append(change)
        changes = [mean(found) for found in by_sample.values()]
    if binary and (clusters is None or not any(changes)):
        # That no flip was seen does not mean that there are none: one more than there were.
        return len(changes), math.sqrt((sum(map(abs, changes)) + 1) / (len(changes) + 2))
    return len(changes), std(changes)


def _least(n: int, spread: float, alpha: float) -> float | None:
    return minimum_detectable_effect(n, spread, alpha=alpha) if n > 1 and spread else None
