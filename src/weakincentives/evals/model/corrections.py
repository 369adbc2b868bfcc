"""`Correction`: the pass rate that people would give, next to that of a judge."""

from __future__ import annotations

from dataclasses import dataclass

from ..stats.intervals import Interval
from ..stats.pass_rate import rate_ends


def interval_words(rate: Interval) -> str:
    """Return a rate with its interval: `70.3% (95% interval 60.0% to 79.1%)`."""
    ends = "{}% to {}%".format(*rate_ends(rate))
    return f"{rate.estimate:.1%} ({rate.confidence * 100:g}% interval {ends})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The pass rate of a judge on a run, and the one that people would give.

    `corrected` is None if there is none: `problem` says why. `calibrated_on` is the run whose
    outputs people labelled; unless it is this one (`own_labels`), the correction holds only if the
    judge is right as often here. `only` is whether the run has no other criterion.
    """

    criterion: str
    judged: Interval
    corrected: Interval | None = None
    labels: int = 0
    unlabelled: tuple[str, ...] = ()
    calibrated_on: str = ""
    own_labels: bool = True
    only: bool = True
    problem: str = ""

    def __str__(self) -> str:
        name = "" if self.only else f"{self.criterion!r} {self.judged.estimate:.1%}, "
        if self.corrected is None:
            return f"{name}not corrected: {self.problem}"
        source, condition = "", ""
        if not self.own_labels:
            source = f" of run {self.calibrated_on}"
            condition = ", if the judge is right as often here"
        for verdict in self.unlabelled:
            condition += f", no output that it {verdict} is labelled"
        labels = f"{self.labels:,} {'label' if self.labels == 1 else 'labels'}{source}"
        return f"{name}corrected by {labels}: {interval_words(self.corrected)}{condition}"
