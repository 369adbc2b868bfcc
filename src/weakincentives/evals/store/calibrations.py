"""Calibrations of judges by people's labels, and the pass rates that they correct.

Rules of this file:
1. A calibration is of one judge: criterion, version, model, prompt and scale. For a judge that
   changed, the correction says that there is none.
2. The labels of the run itself come first; otherwise those of the newest run with the same judge,
   of the same suite or dataset if there is one, and then the correction says what it assumes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ...clock import SYSTEM_CLOCK
from ...errors import StoreError
from ..model.corrections import Correction
from ..model.versions import CriterionInfo
from ..runs.figures import run_figures
from ..runs.scope import Scope
from ..runs.table import RunTable
from ..stats.correction import VerdictLabels, corrected_rate_by
from ..stats.intervals import Interval
from .human_labels import Verdict, verdicts_of
from .manifest import RunManifest
from .run_store import RunStore
from .run_titles import run_title
from .stored_row import RowKey

_CODE = "its code or settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCalibration:
    """A judge compared with people: what they say about the outputs that it passed and failed.

    `title` is the suite or dataset of that run.
    """

    run_id: str
    title: str
    criterion: str
    version: str
    judge: Mapping[str, str] = field(default_factory=dict, hash=False)
    passed: VerdictLabels
    failed: VerdictLabels
    created_at: datetime

    @property
    def strata(self) -> dict[bool, VerdictLabels]:
        """The labels by the verdict of the judge."""
        return {False: self.failed, True: self.passed}

    def changes(self, info: CriterionInfo) -> str:
        """Return what differs between the calibrated judge and this one; "" if nothing does."""
        before, now = self.judge, info.judge
        parts = []
        if before and now:  # otherwise an evaluator without a model, or an older manifest
            parts = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if not parts and (info.name, info.version) != (self.criterion, self.version):
            parts = [_CODE]
        return ", ".join(
            f"model: {now[name]}, was {before[name]}"
            if name == "model" and name in before and name in now
            else name
            for name in parts
        )


def add_calibration(store: RunStore, calibration: JudgeCalibration) -> None:
    """Store a calibration; earlier ones stay."""
    store.people.add("calibrations", [calibration])


def calibration_for(
    store: RunStore, manifest: RunManifest, info: CriterionInfo
) -> tuple[JudgeCalibration | None, str]:
    """Return the calibration of a judge in a run; or None, and why, if it has changed since."""
    found = store.people.read("calibrations", JudgeCalibration, criterion=info.name)
    if not found and info.judge:  # the name of a judge is often its criterion, which may be new
        names = {each.name for each in manifest.criteria}
        every = store.people.read("calibrations", JudgeCalibration)
        found = [
            each
            for each in every
            if each.judge and each.title == run_title(manifest) and each.criterion not in names
        ]
    if not found:
        return None, ""
    same = [each for each in found if not each.changes(info)]
    own = [each for each in same if each.run_id == manifest.run_id]
    alike = [each for each in same if each.title == run_title(manifest)]
    if same:
        return (own or alike or same)[-1], ""
    last = found[-1]
    return None, (
        f"the judge changed ({last.changes(info)}) since its calibration on run {last.run_id}: "
        "calibrate it again"
    )


def corrections_by_labels(store: RunStore, manifest: RunManifest) -> Iterator[Correction]:
    """Yield the corrected pass rate of each criterion of a run that was ever calibrated."""
    only = len(manifest.criteria) == 1
    for info in manifest.criteria:
        judged = CountedVerdicts()
        try:
            calibration, problem = calibration_for(store, manifest, info)
            if calibration is None and not problem:
                continue
            judged = counted_verdicts(store, manifest, info.name)
            if not judged.verdicts:
                continue
        except StoreError as error:  # the rows themselves may still be read
            calibration, problem = None, str(error)
        if calibration is None:
            yield Correction(criterion=info.name, judged=judged.rate, only=only, problem=problem)
        else:
            yield correction_by(calibration, judged, manifest.run_id, only=only)


@dataclass(frozen=True, slots=True)
class CountedVerdicts:
    """The verdicts of a criterion on the rows of a run that count.

    `clusters` has what each row depends on, `rate` is the share of the rows that it passed.
    """

    verdicts: Mapping[RowKey, Verdict] = field(default_factory=dict)
    clusters: Mapping[RowKey, Hashable] = field(default_factory=dict)
    rate: Interval = run_figures(RunTable(), Scope()).rate


def counted_verdicts(store: RunStore, manifest: RunManifest, criterion: str) -> CountedVerdicts:
    """Return the verdicts of a criterion on the rows of a run that count, and that it scored."""
    verdicts, scope = verdicts_of(store, manifest, criterion), Scope.of(manifest, complete=True)
    table = store.table(manifest.run_id, scope.keys)
    clusters = list(scope.clusters(table))
    # A row without an error and without a verdict does not have this criterion.
    places = {
        key: at
        for at in scope.counted(table)
        if (key := table.key(at)) in verdicts and (table.errors[at] or verdicts[key] is not None)
    }
    judged = {key: verdicts[key] for key in places}
    rows = (
        table[at]._replace(passed=judged[key] is True, error=judged[key] is None)
        for key, at in places.items()
    )
    return CountedVerdicts(
        judged,
        {key: clusters[at] for key, at in places.items()},
        run_figures(RunTable(rows, scope.keys), scope.of_part).rate,
    )


def correction_by(
    calibration: JudgeCalibration, judged: CountedVerdicts, run_id: str, *, only: bool
) -> Correction:
    """Return the verdicts of a judge on a run, corrected by its calibration."""
    found = corrected_rate_by(
        judged.verdicts, calibration.strata, cluster=judged.clusters.__getitem__
    )
    return Correction(
        criterion=calibration.criterion,
        judged=judged.rate,
        corrected=found.corrected,
        labels=found.labels,
        unlabelled=found.unlabelled,
        calibrated_on=calibration.run_id,
        own_labels=calibration.run_id == run_id,
        only=only,
    )


# ── the test half ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutLook:
    """One look at the test half of the labels, with the judge that was tested."""

    run_id: str
    criterion: str
    judge: str
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)


def add_look(store: RunStore, run_id: str, criterion: str, judge: str) -> None:
    """Store that the test half was looked at."""
    look = HeldOutLook(run_id=run_id, criterion=criterion, judge=judge)
    store.people.add("judge_tests", [look])


def looks_of(store: RunStore, run_id: str, criterion: str) -> list[HeldOutLook]:
    """Return the earlier looks at the test half."""
    return store.people.read("judge_tests", HeldOutLook, run_id=run_id, criterion=criterion)
