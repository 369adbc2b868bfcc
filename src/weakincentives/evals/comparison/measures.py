"""The difference in one number of two runs, paired or not, and the smallest detectable one.

A pass rate and a score are shares; latency, tokens and cost have no upper bound. So 0 ms and 1 ms
are not a failure and a pass, and ten equal costs of $0.004 do not bound the next one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..stats.basic import mean, means_by_name, std
from ..stats.differences import Difference, paired_difference, unpaired_difference
from ..stats.power import minimum_detectable_effect, minimum_detectable_flips
from .run_comparison import Measure, Pairing

Places = int | tuple[int, ...]
"""The index of a row in its run, or the indexes of the rows of a sample."""
Pairs = tuple[Sequence[Places], Sequence[Places]]
"""What is compared: the places of the first run and of the second, in the same order."""
Sides = tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]
Number = tuple[Callable[[int], float | None], Callable[[int], float | None]]
"""Functions that return a number of the row at a place, of the first run and of the second."""

_UNBOUNDED = {"latency_ms", "tokens", "cost"}


@dataclass(frozen=True, slots=True)
class Matched:
    """The rows of two runs that are compared. `every_pair` has all pairs, `pairs` those without
    errors that say nothing about the agent, and `rows` the same as pairs of single rows. `sides`
    has the samples of either run, if they have none in common. `clusters` has the cluster of each
    row of the first run.
    """

    pairing: Pairing
    every_pair: Pairs
    pairs: Pairs
    rows: Pairs
    sides: Sides
    clusters: Sequence[str]


def measured(name: str, number: Number, matched: Matched, confidence: float) -> Measure | None:
    """Compare a number; return None if no two rows have it."""
    if matched.pairing == "none":
        return _unpaired(name, number, matched.sides, confidence)
    before, after, clusters = _values(matched.rows, number, matched.clusters)
    if not before:
        return None
    binary = _binary(name, before, after)
    difference = paired_difference(
        before, after, clusters=clusters, binary=binary, confidence=confidence
    )
    return Measure(
        name=name,
        before=mean(before),
        after=mean(after),
        difference=_unbounded(name, difference),
        detectable=_detectable(before, after, clusters, difference),
    )


@dataclass(frozen=True, slots=True)
class Flips:
    """How much two runs of the same samples differ by chance.

    `share` of the attempts pass in only one of the runs. With epochs, a sample counts as several
    independent pairs, unless its epochs always agree.
    """

    share: float
    pairs_per_sample: float = 1.0

    def pairs(self, samples: int) -> int:
        """Return the number of independent pairs that this many samples are worth."""
        return int(samples * self.pairs_per_sample + 1e-9)


def flips_of(pairs: Pairs, number: Number, samples: Sequence[str]) -> Flips | None:
    """Return how much passes differ; None if they are means of epochs that are all equal."""
    before, after, clusters = _values(pairs, number, samples)
    if _binary("", before, after):
        found = _flips(paired_difference(before, after, clusters=clusters))
        count = len(before if clusters is None else {*clusters})
        return Flips(found.share, found.pairs_per_sample * len(before) / count)
    changes = [new - old for old, new in zip(before, after, strict=True)]
    spread = std(changes)
    return Flips(min(spread**2, 1.0)) if spread else None


def _flips(difference: Difference) -> Flips:
    """Return the flips of a difference, per pair of attempts."""
    effective = difference.effective_pairs or 0.0
    changed = (difference.fixed + difference.broken) * effective / difference.pairs
    # Observing no flip does not mean that none is possible: assume one more than there were.
    return Flips((changed + 1) / (effective + 2), effective / difference.pairs)


def _unbounded(name: str, difference: Difference) -> Difference:
    """Return the difference without an interval that is meant for shares."""
    if name not in _UNBOUNDED or difference.delta.method != "no spread":
        return difference
    delta = replace(difference.delta, low=-math.inf, high=math.inf, method="t")
    return replace(difference, delta=delta)


def _binary(name: str, before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether these are passes and failures: 0 ms and 1 ms are not."""
    return name not in _UNBOUNDED and {*before, *after} <= {0.0, 1.0}


def first_of(places: Places) -> int:
    """Return the first of the places."""
    return places if isinstance(places, int) else places[0]


def _values(
    pairs: Pairs, number: Number, samples: Sequence[str]
) -> tuple[array[float], array[float], list[str] | None]:
    """Return the values of what has them in both runs; and the samples, if some are repeated."""
    before, after, clusters = array("d"), array("d"), []
    for a, b in zip(*pairs, strict=True):
        old, new = _value(a, number[0]), _value(b, number[1])
        if old is not None and new is not None:
            before.append(old)
            after.append(new)
            clusters.append(samples[first_of(a)])
    return before, after, clusters if len(set(clusters)) < len(clusters) else None


def _value(places: Places, number: Callable[[int], float | None]) -> float | None:
    if isinstance(places, int):
        return number(places)
    if len(places) == 1:
        return number(places[0])
    values = [value for value in map(number, places) if value is not None]
    return mean(values) if values else None


def _unpaired(name: str, number: Number, sides: Sides, confidence: float) -> Measure | None:
    before, after = (
        array("d", (value for places in side if (value := _value(places, of)) is not None))
        for side, of in zip(sides, number, strict=True)
    )
    if not before or not after:
        return None
    # The harmonic mean of the two sizes: the spread of the difference is divided by it.
    size = 2 / (1 / len(before) + 1 / len(after))
    spread = math.sqrt(size * sum(std(side) ** 2 / len(side) for side in (before, after)))
    return Measure(
        name=name,
        before=mean(before),
        after=mean(after),
        difference=_unbounded(
            name,
            unpaired_difference(
                before, after, binary=_binary(name, before, after), confidence=confidence
            ),
        ),
        detectable=_minimum_detectable(int(size), spread, 1 - confidence),
    )


def _detectable(
    before: Sequence[float],
    after: Sequence[float],
    clusters: Sequence[str] | None,
    difference: Difference,
) -> float | None:
    """Return the difference that would have been shown with a power of 80 %."""
    alpha = 1 - difference.delta.confidence
    if difference.effective_pairs is not None:
        pairs, share = int(difference.effective_pairs), _flips(difference).share
        effect = minimum_detectable_flips(pairs, share, alpha=alpha)
        return effect if math.isfinite(effect) else None
    changes = [new - old for old, new in zip(before, after, strict=True)]
    if clusters is not None:
        changes = list(means_by_name(zip(clusters, changes, strict=True)).values())
    return _minimum_detectable(len(changes), std(changes), alpha)


def _minimum_detectable(n: int, spread: float, alpha: float) -> float | None:
    return minimum_detectable_effect(n, spread, alpha=alpha) if n > 1 and spread else None
