"""What a comparison of two runs came to, and how it says so.

A difference is claimed only where the p-value is small enough and the interval leaves out 0. Where
none is claimed, it says how large a difference this comparison would have noticed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ._outcomes import RunOutcomes
from ._rate import too_few
from .statistics import Difference

__all__ = ["Flip", "Measure", "Pairing", "RunComparison", "Slice", "p_text"]

FEW = 6  # pairs; in fewer, the exact test never sees a difference at 95 %
UNITS = {"passed": "points", "latency_ms": "ms", "tokens": "tokens", "cost": "dollars"}
Pairing = Literal["epoch", "sample", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of both runs: means over what is compared, and how they differ.

    `detectable` is the smallest difference that would have been seen four times out of five; None
    where nobody can say, or where none could. `adjusted` is the p-value after Holm, where several
    were looked at together.
    """

    name: str
    before: float
    after: float
    difference: Difference
    detectable: float | None = None
    adjusted: float | None = None

    @property
    def outcome(self) -> Literal["better", "worse", "none"]:
        """What is shown of the second run, by the rule at the top of this file."""
        delta = self.difference.delta
        p = self.difference.p_value if self.adjusted is None else self.adjusted
        if p is None or p > 1 - delta.confidence or delta.low <= 0 <= delta.high:
            return "none"
        lower_is_better = self.name in UNITS and self.name != "passed"
        return "better" if (delta.estimate > 0) is not lower_is_better else "worse"

    def amount(self, value: float, *, sign: bool = False, unit: bool = True) -> str:
        """A value of this measure as people say it; a difference has a sign."""
        name = UNITS.get(self.name, "")
        scale = 100.0 if name == "points" else 1.0
        digits = {"points": 1, "ms": 0, "tokens": 1, "": 3}.get(name)
        if digits is None:  # dollars: as many as show a hundredth of them
            largest = max(abs(self.before), abs(self.after)) or 1.0
            digits = max(2, 1 - math.floor(math.log10(largest)))
        number = f"{value * scale:{'+' if sign else ''},.{digits}f}"
        if float(number.replace(",", "")) == 0:
            number = number.lstrip("+-")
        return f"{number} {name}".strip() if unit else number

    def interval(self) -> str:
        """`95 % interval 1.1 to 7.4`."""
        delta = self.difference.delta
        if not math.isfinite(delta.low) or not math.isfinite(delta.high):
            return "interval unknown"
        ends = (self.amount(end, unit=False) for end in (delta.low, delta.high))
        return f"{delta.confidence * 100:g} % interval {' to '.join(ends)}"

    def evidence(self) -> str:
        """`exact McNemar p = 0.008`, and what it was adjusted for."""
        p = self.difference.p_value
        name, _, how = self.difference.test.partition(", ")
        told = [] if p is None else [f"{how} {name} {p_text(p)}".lstrip()]
        if self.adjusted is not None:
            told.append(f"after Holm {p_text(self.adjusted)}")
        return ", ".join(told) or "no test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The pass rate of those whose metadata has one value."""

    value: str
    n: int
    measure: Measure

    @property
    def small(self) -> bool:
        """True where so few say little."""
        return too_few(self.measure.difference.delta)


@dataclass(frozen=True, slots=True)
class Flip:
    """A sample with another verdict than before. By sample, its epochs decide by majority."""

    sample: str
    epoch: int | None
    fixed: bool
    error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs compared; `str(...)` is the verdict in words.

    `measures` has the strict pass rate (`passed`), the mean score (`score`), each criterion, and
    `latency_ms`, `tokens` and `cost` where both runs know them. `both` and `neither` count what
    passed in both runs and in none, `fixed` and `broken` what flipped.
    """

    before: RunOutcomes
    after: RunOutcomes
    metric: str
    pairing: Pairing
    measures: dict[str, Measure]
    both: int
    neither: int
    flips: tuple[Flip, ...]
    slices: tuple[Slice, ...] = ()
    by: str | None = None
    warnings: tuple[str, ...] = ()
    label: str = "B"

    @property
    def fixed(self) -> int:
        """How many pass now and did not before."""
        return sum(flip.fixed for flip in self.flips)

    @property
    def broken(self) -> int:
        """How many passed before and do not now."""
        return len(self.flips) - self.fixed

    def all_measures(self) -> Iterator[Measure]:
        """Those of the whole, then those of its slices."""
        yield from self.measures.values()
        yield from (each.measure for each in self.slices)

    @property
    def measure(self) -> Measure:
        """The one that the verdict is about."""
        return self.measures[self.metric]

    def __str__(self) -> str:
        found = self.measure
        delta = found.difference.delta
        n = f"n = {delta.n:,}" + (f" in {delta.clusters:,} samples" if delta.clusters else "")
        change = found.amount(delta.estimate, sign=True)
        where = "" if self.metric == "passed" else f" in {self.metric}"
        unpaired = "" if self.pairing != "none" else "; unpaired: the runs share no sample"
        if found.outcome != "none":
            return (
                f"{self.label} is {found.outcome}{where}: {change}, {found.interval()}, {n} "
                f"({found.evidence()}){unpaired}"
            )
        seen = "" if delta.n >= FEW else "; with so few, none can be shown"
        if found.detectable is not None:
            seen = f"; this comparison could have seen {found.amount(found.detectable)}"
        return (
            f"no difference shown{where}: {change} ({found.interval()}, {n}, "
            f"{found.evidence()}){seen}{unpaired}"
        )


def p_text(p: float) -> str:
    """`p = 0.008`; what is very small is said to be that."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
