"""Calibrate the judge of a run by people's labels on its outputs.

Rules of this file:
1. Only labels of outputs that were drawn with a known probability correct a rate, if there are any.
2. Agreement and kappa are of all outputs of the run, as estimated from the labels; only the table
   counts the labels themselves.
3. No single disagreement is listed: half of the labels stay unseen, to test a changed judge by
   (`review/improvement.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError
from ..model.corrections import Correction, interval_words
from ..model.grouping import group_values
from ..model.versions import CriterionInfo
from ..stats.correction import corrected_agreement, corrected_kappa, labels_by_verdict
from ..stats.intervals import Interval, ends_text
from ..store.calibrations import JudgeCalibration, add_calibration, correction_by, counted_verdicts
from ..store.human_labels import (
    HumanLabel,
    Verdict,
    criterion_of,
    draws_of,
    labels_of,
    people_verdict,
    verdicts_of,
)
from ..store.manifest import RunManifest
from ..store.run_store import RunStore
from ..store.run_titles import run_title
from ..store.stored_row import RowKey
from .labelling import unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRows:
    """The labels that count for a run: one for each output, by the majority of its labellers.

    A decision that settled a disagreement counts instead of the majority.

    `probabilities` are those of the draw; empty if they are unknown. `left_out` says which labels
    do not count, and why.
    """

    passed: Mapping[RowKey, bool]
    contents: Mapping[RowKey, str]
    probabilities: Mapping[RowKey, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCalibration:
    """The judge of a run compared with people; `str(...)` is the report.

    `confusion[human, judge]` counts labels. `agreement` and `kappa` are of all outputs of the run.
    """

    run_id: str
    judge: CriterionInfo
    correction: Correction
    agreement: Interval
    kappa: Interval
    confusion: Mapping[tuple[bool, bool], int]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        judged, corrected = self.correction.judged, self.correction.corrected
        assert corrected is not None
        model = f" by {self.judge.judge['model']}" if self.judge.judge.get("model") else ""
        yield f"{self.judge.name}{model}, run {self.run_id}"
        yield f"  judged     {interval_words(judged)}, n = {judged.n:,}"
        labels = f"{self.correction.labels:,} labels"
        yield f"  corrected  {interval_words(corrected)}, {labels}"
        yield f"  agreement  {interval_words(self.agreement)}"
        low, high = ends_text(self.kappa.low, self.kappa.high, 2)
        yield f"  kappa      {self.kappa.estimate:.2f} (95% interval {low} to {high})"
        yield "  human \\ judge  pass  fail"
        for human, word in ((True, "pass"), (False, "fail")):
            counts = (self.confusion.get((human, judge), 0) for judge in (True, False))
            yield f"           {word}  " + "  ".join(f"{count:4}" for count in counts)
        yield from (f"note: {note}" for note in self.notes)


def calibrate_run(
    store: RunStore,
    run_id: str,
    *,
    criterion: str | None = None,
    labels_by: str | None = None,
) -> RunCalibration:
    """Correct the pass rate of a run's judge by the stored labels, and store the calibration.

    `labels_by` is the criterion that people labelled by, if the judge has another name by now.
    """
    manifest = store.run(run_id).manifest
    name = criterion_of(manifest, criterion)
    verdicts = verdicts_of(store, manifest, name)
    labelled = labelled_rows(store, manifest, labels_by or name)
    strata = labels_by_verdict(verdicts, labelled.passed, labelled.probabilities)
    info = next(info for info in manifest.criteria if info.name == name)
    calibration = JudgeCalibration(
        run_id=manifest.run_id,
        title=run_title(manifest),
        criterion=name,
        version=info.version,
        judge=info.judge,
        passed=strata[True],
        failed=strata[False],
        created_at=SYSTEM_CLOCK.now(),
    )
    add_calibration(store, calibration)
    confusion = Counter(
        (human, verdict)
        for row, human in labelled.passed.items()
        if (verdict := verdicts.get(row)) is not None
    )
    return RunCalibration(
        run_id=manifest.run_id,
        judge=info,
        correction=correction_by(
            calibration,
            counted_verdicts(store, manifest, name),
            manifest.run_id,
            only=len(manifest.criteria) == 1,
        ),
        agreement=corrected_agreement(verdicts, strata),
        kappa=corrected_kappa(verdicts, strata),
        confusion=dict(confusion),
        notes=(*labelled.left_out, *_notes(store, manifest, name, labelled, verdicts)),
    )


def labelled_rows(
    store: RunStore, manifest: RunManifest, criterion: str, *, drawn_only: bool = True
) -> LabelledRows:
    """Return the labels that count for a run; raise a `UsageError` if there are none.

    With `drawn_only`, labels of outputs that were not drawn count only if there are no others.
    """
    found = [
        label for label in labels_of(store, manifest.run_id, criterion) if label.passed is not None
    ]
    newest = {(label.row, label.labeller, label.settled): label for label in found}
    current = unchanged(store, manifest.run_id, newest.values())
    left_out = Counter({"of outputs that have changed": len(newest) - len(current)})
    if drawn_only and any(label.probability is not None for label in current):
        known = [label for label in current if label.probability is not None]
        left_out["chosen with an unknown probability"] += len(current) - len(known)
        current = known
    rows = group_values(current, (label.row for label in current))
    passed = {}
    for row, labels in rows.items():
        if (verdict := people_verdict(labels)) is None:
            left_out["of outputs on which as many people say pass as fail"] += len(labels)
        else:
            passed[row] = verdict
    if not passed:
        raise UsageError(
            f"expected labels of outputs of run {manifest.run_id} by {criterion!r}, got "
            f"{len(found)} - label some: wink review {manifest.run_id}"
        )
    return LabelledRows(
        passed=passed,
        contents={label.row: label.content for label in current},
        probabilities=_probabilities(store, rows, passed),
        left_out=tuple(
            f"{count:,} {'label is' if count == 1 else 'labels are'} left out: {why}"
            for why, count in left_out.items()
            if count
        ),
    )


def _probabilities(
    store: RunStore, rows: Mapping[RowKey, Sequence[HumanLabel]], passed: Mapping[RowKey, bool]
) -> dict[RowKey, float]:
    """Return the probabilities of the newest draws: a larger draw makes each more probable."""
    draws = {
        of: draws_of(store, *of)
        for of in {(label.run_id, label.criterion) for each in rows.values() for label in each}
    }
    found = {}
    for row in passed:
        label = rows[row][-1]
        if label.probability is not None:
            draw = draws[label.run_id, label.criterion].get(row)
            found[row] = draw.probability if draw else label.probability
    return found


def _notes(
    store: RunStore,
    manifest: RunManifest,
    criterion: str,
    labelled: LabelledRows,
    verdicts: Mapping[RowKey, Verdict],
) -> Iterator[str]:
    if not labelled.probabilities:
        yield (
            "it is unknown how these outputs were chosen: the correction holds if that was at "
            "random within each verdict, as `wink judge sample` does it"
        )
    drawn = draws_of(store, manifest.run_id, criterion)
    if missing := sum(row not in labelled.passed for row in drawn):
        yield (
            f"{missing:,} of {len(drawn):,} drawn outputs have no label yet: the correction holds "
            "if they were not left out because of what they say"
        )
    for verdict, word in ((True, "passed"), (False, "failed")):
        if verdict in verdicts.values() and not any(
            verdicts.get(row) is verdict for row in labelled.passed
        ):
            yield f"no output that the judge {word} is labelled: the interval allows everything"
