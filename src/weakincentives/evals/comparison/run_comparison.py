"""The result of a comparison of two runs, and its verdict in words.

A difference is claimed only if the p-value is small enough, the interval excludes 0, and there are
at least `MIN_PAIRS` samples or clusters. Otherwise the verdict says how large a difference this
comparison would have detected. A difference in time is claimed only if it is large enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..stats.basic import p_text
from ..stats.differences import Difference
from ..stats.pass_rate import too_few
from .corrected import CorrectedChange
from .outcomes import RunOutcomes

MIN_PAIRS = 5  # with fewer, McNemar's test never shows a difference at 95%
# A difference in time that is smaller matters to nobody, however certain it is.
MIN_LATENCY_MS, MIN_LATENCY_SHARE = 5.0, 0.05
UNITS = {"passed": "points", "latency_ms": "ms", "tokens": "tokens", "cost": "dollars"}
Pairing = Literal["epoch", "sample", "none"]
RowKey = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of both runs: the means over what is compared, and their difference.

    `detectable` is the smallest difference that would have been shown with a power of 80%; None
    if it is unknown or there is none. `adjusted` is the p-value after adjusting it, if several were
    read together.
    """

    name: str
    before: float
    after: float
    difference: Difference
    detectable: float | None = None
    adjusted: float | None = None

    @property
    def outcome(self) -> Literal["better", "worse", "none"]:
        """The verdict on the second run, by the rule at the top of this file."""
        return self.test_outcome if self._matters else "none"

    @property
    def test_outcome(self) -> Literal["better", "worse", "none"]:
        """The outcome of the test, whether or not the difference is large enough to matter."""
        delta = self.difference.delta
        p = self.difference.p_value if self.adjusted is None else self.adjusted
        if p is None or p > 1 - delta.confidence or delta.low <= 0 <= delta.high:
            return "none"
        if (delta.n if delta.clusters is None else delta.clusters) < MIN_PAIRS:
            return "none"
        return "better" if (delta.estimate > 0) is not self.lower_is_better else "worse"

    @property
    def _matters(self) -> bool:
        if self.name != "latency_ms":
            return True
        change = abs(self.difference.delta.estimate)
        return change >= MIN_LATENCY_MS and change >= MIN_LATENCY_SHARE * abs(self.before)

    @property
    def lower_is_better(self) -> bool:
        """Whether this is time, tokens or cost."""
        return self.name in UNITS and self.name != "passed"

    @property
    def unit(self) -> str:
        """The unit of the values as `amount` formats them; empty for scores."""
        return UNITS.get(self.name, "")

    def amount(
        self, value: float, *, sign: bool = False, unit: bool = True, more_digits: int = 0
    ) -> str:
        """Format a value of this measure; a difference has a sign."""
        name = self.unit
        scale = 100.0 if name == "points" else 1.0
        digits = {"points": 1, "ms": 0, "tokens": 1, "": 3}.get(name)
        if digits is None:  # dollars: two significant digits
            largest = max(abs(self.before), abs(self.after)) or 1.0
            digits = max(2, 1 - math.floor(math.log10(largest)))
        number = f"{value * scale:{'+' if sign else ''},.{digits + more_digits}f}"
        if float(number.replace(",", "")) == 0:
            number = number.lstrip("+-")
        return f"{number} {name}".strip() if unit else number

    def ends(self) -> str:
        """Format the ends of the interval, with as many digits as it takes: `1.1 to 7.4`."""
        delta = self.difference.delta
        if not delta.known:
            return "unknown"
        for more in range(6):
            low, high = (
                self.amount(end, unit=False, more_digits=more) for end in (delta.low, delta.high)
            )
            if low != high or delta.low == delta.high:
                break
        return f"{low} to {high}"

    def interval(self) -> str:
        """Format the interval: `95% interval 1.1 to 7.4`."""
        delta, ends = self.difference.delta, self.ends()
        return f"{delta.confidence * 100:g}% interval {ends}" if delta.known else "interval unknown"

    def evidence(self) -> str:
        """Format the test: `mid-p McNemar p = 0.008`, and the adjusted p-value."""
        p = self.difference.p_value
        name, _, how = self.difference.test.partition(", ")
        tests = [] if p is None else [f"{how} {name} {p_text(p)}".lstrip()]
        if self.adjusted is not None:
            tests.append(f"adjusted {p_text(self.adjusted)}")
        return ", ".join(tests) or "no test"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceComparison:
    """The pass rate of the rows with one value in their metadata."""

    value: str
    n: int
    measure: Measure

    @property
    def small(self) -> bool:
        """Whether there are too few samples to say much."""
        return too_few(self.measure.difference.delta)


@dataclass(frozen=True, slots=True)
class Flip:
    """A sample whose verdict changed. If paired by sample, the majority of its epochs decides.

    `before` and `after` are the keys of a row of each run: experiment, sample id, epoch. If several
    epochs decided, it is the first of them with the verdict of most. `flip_details` has the texts.
    """

    sample: str
    epoch: int | None
    fixed: bool
    error: bool
    before: RowKey = ("", "", 0)
    after: RowKey = ("", "", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs compared; `str(...)` is the verdict in words.

    `measures` has the strict pass rate (`passed`), the mean score (`score`), each criterion, and
    `latency_ms`, `tokens` and `cost` if both runs have them. `both` and `neither` count what
    passed in both runs and in none, `fixed` and `broken` what flipped. `left_out` says how much was
    compared, and what was left out because of errors; it is empty if nothing was. `corrected` is
    the change that people would see, if the judge of both runs was calibrated by their labels.
    """

    before: RunOutcomes
    after: RunOutcomes
    metric: str
    pairing: Pairing
    measures: dict[str, Measure]
    both: int
    neither: int
    flips: tuple[Flip, ...]
    slices: tuple[SliceComparison, ...] = ()
    by: str | None = None
    warnings: tuple[str, ...] = ()
    label: str = "B"
    cluster_by: str | None = None
    left_out: str = ""
    corrected: CorrectedChange | None = None

    @property
    def fixed(self) -> int:
        """The number of samples that pass now and did not before."""
        return sum(flip.fixed for flip in self.flips)

    @property
    def broken(self) -> int:
        """The number of samples that passed before and do not now."""
        return len(self.flips) - self.fixed

    def all_measures(self) -> Iterator[Measure]:
        """Yield the measures of the whole run, then those of its slices."""
        yield from self.measures.values()
        yield from (part.measure for part in self.slices)

    @property
    def measure(self) -> Measure:
        """The measure that the verdict is about."""
        return self.measures[self.metric]

    def __str__(self) -> str:
        measure = self.measure
        delta = measure.difference.delta
        groups = "samples" if self.cluster_by is None else f"clusters by {self.cluster_by}"
        n = f"n = {delta.n:,}" + (f" in {delta.clusters:,} {groups}" if delta.clusters else "")
        change = measure.amount(delta.estimate, sign=True)
        where = "" if self.metric == "passed" else f" in {self.metric}"
        unpaired = "" if self.pairing != "none" else "; unpaired: the runs share no sample"
        if measure.outcome != "none":
            return (
                f"{self.label} is {measure.outcome}{where}: {change}, {measure.interval()}, {n} "
                f"({measure.evidence()}){unpaired}"
            )
        power = "" if delta.n >= MIN_PAIRS else "; with this few, none can be shown"
        if measure.detectable is not None:
            power = f"; this comparison could have detected {measure.amount(measure.detectable)}"
        return (
            f"no difference shown{where}: {change} ({measure.interval()}, {n}, "
            f"{measure.evidence()}){power}{unpaired}"
        )
