"""Improve a judge on one half of people's labels, and test it on the other.

A prompt that is changed until it agrees with all labels agrees with these labels, and with others
less. So the labels are split in two, by a hash of the output, always in the same way. Disagreements
of the development half are shown one by one. The test half is only ever counted, and each time that
is recorded: the more often it decides between prompts, the less it says about new outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import UsageError
from ...internal.concurrency import for_each
from ...internal.event_loop import run_sync
from .._types import EvalContext
from ..engine.attempts import rescore_result
from ..engine.requirements import check_requirements
from ..evaluators.criteria import Criterion
from ..model.result import EvalResult
from ..stats.basic import wilson_interval
from ..stats.correction import labels_by_verdict
from ..stats.intervals import Interval
from ..store.calibrations import add_look, looks_of
from ..store.human_labels import Verdict, criterion_of, verdict_on
from ..store.manifest import RunManifest
from ..store.run_store import RunStore
from ..store.stored_row import RowKey, StoredRow
from .run_calibration import LabelledRows, labelled_rows

Half = Literal["dev", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A labelled output of the development half, with the verdict of the judge on trial."""

    result: EvalResult[Any]
    human: bool
    judge: Verdict
    before: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTrial:
    """A judge compared with the labels of one half.

    `agreed` of `n` verdicts are people's, `agreed_before` those of the run's own judge; `agreement`
    is that of all outputs of the run, as estimated from these. `rows` has the outputs of the
    development half; it is empty for the test half. `looks` counts how often the test half was
    looked at, with this time.
    """

    run_id: str
    criterion: str
    judge: str
    half: Half
    n: int
    agreed: int
    agreed_before: int
    errors: int
    agreement: Interval
    rows: tuple[TrialRow, ...] = ()
    looks: int = 0

    @property
    def disagreements(self) -> tuple[TrialRow, ...]:
        """The outputs of the development half on which judge and people differ."""
        return tuple(row for row in self.rows if row.judge is not row.human)


def half_of(content: str) -> Half:
    """Return the half of an output, by a hash of its content: always the same one."""
    return "test" if int(content[-1], 16) % 2 else "dev"


def try_judge(
    store: RunStore,
    run_id: str,
    *,
    criterion: str | None = None,
    judge: Criterion | None = None,
    adapter: Any = None,
    half: Half = "dev",
    max_concurrent: int = 8,
) -> JudgeTrial:
    """Compare a judge with the labels of one half of a run; without a `judge`, the run's own.

    The new judge is asked about the labelled outputs of that half only. Looking at the test half is
    recorded.
    """
    manifest = store.run(run_id).manifest
    name = criterion_of(manifest, criterion)
    # Informative outputs help to improve a judge, but would bias a test of it.
    labelled = labelled_rows(store, manifest, name, drawn_only=half == "test")
    rows = dict(_rows_of_half(store, manifest, labelled, half))
    only = len(manifest.criteria) == 1
    before = {row: verdict_on(each.result, name, only=only) for row, each in rows.items()}
    now = before
    if judge is not None:
        check_requirements(judge, adapter)
        now = run_sync(lambda: _asked(judge, rows, adapter, max_concurrent))
    tried = name if judge is None else judge.name
    if half == "test":
        add_look(store, manifest.run_id, name, tried)
    human = {row: labelled.passed[row] for row in rows}
    agreed = {row: now[row][0] is human[row] for row in rows}
    trial_rows = (
        TrialRow(
            result=rows[row].result,
            human=human[row],
            judge=now[row][0],
            before=before[row][0],
            reason=now[row][1],
        )
        for row in rows
    )
    return JudgeTrial(
        run_id=manifest.run_id,
        criterion=name,
        judge=tried,
        half=half,
        n=len(rows),
        agreed=sum(agreed.values()),
        agreed_before=sum(before[row][0] is human[row] for row in rows),
        errors=sum(now[row][0] is None for row in rows),
        agreement=_agreement(agreed, labelled.probabilities),
        rows=() if half == "test" else tuple(trial_rows),
        looks=len(looks_of(store, manifest.run_id, name)),
    )


def _rows_of_half(
    store: RunStore, manifest: RunManifest, labelled: LabelledRows, half: Half
) -> Iterator[tuple[RowKey, StoredRow]]:
    """Yield the labelled rows of one half, as they are stored."""
    chosen = [row for row in labelled.passed if half_of(labelled.contents[row]) == half]
    if not chosen:
        raise UsageError(
            f"expected labels in the {half} half of run {manifest.run_id}, got none of "
            f"{len(labelled.passed)} - label more outputs"
        )
    for key in chosen:
        if (row := store.row(manifest.run_id, *key)) is not None:
            yield key, row


def _agreement(agreed: Mapping[RowKey, bool], probabilities: Mapping[RowKey, float]) -> Interval:
    """Return the share of verdicts that are people's; a label counts for what it was drawn for."""
    drawn = {row: ok for row, ok in agreed.items() if row in probabilities} or agreed
    labels = labels_by_verdict(dict.fromkeys(drawn, True), drawn, probabilities)[True]
    low, high = wilson_interval(labels.passed, labels.labels)
    return Interval(labels.rate, low, high, labels.count, None, 0.95, "Wilson")


async def _asked(
    judge: Criterion, rows: Mapping[RowKey, StoredRow], adapter: Any, max_concurrent: int
) -> dict[RowKey, tuple[Verdict, str]]:
    """Return the verdicts of a judge on stored outputs, with reasons."""
    verdicts: dict[RowKey, tuple[Verdict, str]] = {}

    async def ask(key: RowKey) -> None:
        row = rows[key]
        context = EvalContext(adapter=adapter, run_id=row.result.run_id)
        result = await rescore_result(row.result, row.session, judge.score_in_thread, context)
        verdicts[key] = verdict_on(result, judge.name, only=True)

    await for_each(ask, rows, max_concurrent)
    return verdicts
