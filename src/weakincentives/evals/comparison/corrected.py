"""The difference between two runs that people would see, from their labels of a judge's verdicts.

Labels on the outputs of both runs are best. If a run has none, the newest calibration of the same
judge is used instead, and the result says what that assumes: that the judge's verdicts are right as
often in both. A judge that prefers the style of one agent violates this assumption, and only labels
on both runs show it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import StoreError
from ..stats.correction import corrected_difference_by
from ..stats.intervals import Interval
from ..store.calibrations import (
    CountedVerdicts,
    JudgeCalibration,
    calibration_for,
    counted_verdicts,
)
from ..store.manifest import RunManifest
from ..store.run_store import RunStore


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """The verdicts of a calibrated judge on a run. `only`: the run has no other criterion."""

    run_id: str
    calibration: JudgeCalibration
    judged: CountedVerdicts
    only: bool


@dataclass(frozen=True, slots=True)
class CorrectedChange:
    """The change of the pass rate that people would see; `assumption` is empty if it needs none."""

    criterion: str
    delta: Interval
    labels: tuple[int, int]
    same_labels: bool = False
    assumption: str = ""
    only: bool = True

    def __str__(self) -> str:
        low, high = (f"{end * 100:.1f}" for end in (self.delta.low, self.delta.high))
        what = "" if self.only else f"{self.criterion!r} "
        count = f"{self.labels[0]:,}" if self.same_labels else " and ".join(map(str, self.labels))
        condition = f", if {self.assumption}" if self.assumption else ""
        return (
            f"{what}corrected by people's labels: {self.delta.estimate * 100:+.1f} points, "
            f"{self.delta.confidence * 100:g}% interval {low} to {high}, {count} labels{condition}"
        )


def judged_run(store: RunStore, manifest: RunManifest) -> JudgedRun | None:
    """Return the verdicts of the first criterion of a run that has a valid calibration."""
    for info in manifest.criteria:
        calibration, _ = calibration_for(store, manifest, info)
        if calibration is not None:
            try:
                judged = counted_verdicts(store, manifest, info.name)
            except StoreError:  # a damaged run is compared without
                return None
            return JudgedRun(manifest.run_id, calibration, judged, len(manifest.criteria) == 1)
    return None


def corrected_change(
    before: JudgedRun | None, after: JudgedRun | None, confidence: float = 0.95
) -> CorrectedChange | None:
    """Return the change that people would see; None without two calibrations of one judge."""
    if before is None or after is None:
        return None
    a, b = before.calibration, after.calibration
    # By sample and epoch: runs that are compared may differ in experiment.
    pairs = [
        {row[1:]: verdict for row, verdict in run.judged.verdicts.items()}
        for run in (before, after)
    ]
    clusters = {row[1:]: cluster for row, cluster in after.judged.clusters.items()}
    if (a.criterion, a.version) != (b.criterion, b.version) or not pairs[0].keys() & pairs[1]:
        return None
    same = a == b
    delta = corrected_difference_by(
        (pairs[0], a.strata),
        (pairs[1], b.strata),
        cluster=clusters.__getitem__,
        same_labels=same,
        confidence=confidence,
    )
    counts = [each.passed.count + each.failed.count for each in (a, b)]
    return CorrectedChange(
        a.criterion, delta, (counts[0], counts[1]), same, _assumption(before, after), before.only
    )


def _assumption(before: JudgedRun, after: JudgedRun) -> str:
    """Return what has to be true of runs whose outputs have no labels."""
    borrowed = [run for run in (before, after) if run.calibration.run_id != run.run_id]
    if not borrowed:
        return ""
    name = " and ".join(dict.fromkeys(run.calibration.run_id for run in borrowed))
    where = "both runs" if len(borrowed) == 2 else f"run {borrowed[0].run_id}"
    return f"the judge is right as often in {where} as in run {name}, which people labelled"
