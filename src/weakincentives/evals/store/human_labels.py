"""What people say about outputs: which were drawn to be labelled, and their labels.

Rules of this file:
1. Rows are only ever added, and removed with their run. A row says what its labeller changes: a
   verdict, a note, a category; or which earlier row it undoes. `labels_of` returns what is left.
2. A draw has the probability with which the output was chosen, so that estimates from the labels
   are unbiased. It is stored here and not in the file for people, where it would show the verdict.
   A smaller draw after a larger one makes no output less probable.
3. A label belongs to a sample and its output: it counts for a run as long as the output is the
   same, for runs that score the same outputs again, and for other runs with the same output of the
   same sample. There it counts as drawn only if that run drew it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

from ... import serde
from ...errors import UsageError
from ..model.result import EvalResult
from .manifest import RunManifest
from .run_store import RunStore
from .stored_row import RowKey

Verdict = bool | None
"""Whether an output passed; None for an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelDraw:
    """An output that was chosen to be labelled, with the probability of that choice."""

    key: str
    run_id: str
    experiment: str
    sample_id: str
    epoch: int
    content: str
    criterion: str
    judge_version: str
    probability: float
    created_at: datetime

    @property
    def row(self) -> RowKey:
        """The key of the row in its run."""
        return self.experiment, self.sample_id, self.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanLabel:
    """What a person says about an output, by one criterion.

    `passed` is the verdict, `note` what went wrong first, `category` the id of its failure category
    (`store/categories.py`). As stored, None leaves what the labeller said before; as `labels_of`
    returns it, there is no verdict or no category. `judge_version` is that of the judge whose
    verdicts the outputs were drawn by, `probability` that of the draw; None if it is unknown how
    the output was chosen.

    `skipped`: left for later. `settled`: the decision about labels that differ, which counts
    instead of them. `blind`: given without seeing the verdict of the judge. `by` is the person who
    entered it, if that is not the labeller. `uid` names this row, `undoes` is the one it undoes.
    """

    run_id: str
    experiment: str
    sample_id: str
    epoch: int
    content: str
    criterion: str
    passed: bool | None
    created_at: datetime
    labeller: str = ""
    note: str | None = ""
    judge_version: str = ""
    probability: float | None = None
    category: str | None = None
    skipped: bool = False
    settled: bool = False
    blind: bool = False
    by: str = ""
    uid: str = ""
    undoes: str = ""

    @property
    def row(self) -> RowKey:
        """The key of the row in its run."""
        return self.experiment, self.sample_id, self.epoch


# ── verdicts ────────────────────────────────────────────────────────────────────────────────────


def criterion_of(manifest: RunManifest, name: str | None = None) -> str:
    """Return the criterion of a run with this name; without one, its only judge or criterion."""
    names = [info.name for info in manifest.criteria]
    judges = [info.name for info in manifest.criteria if info.judge]
    if name is None:
        candidates = names if len(names) == 1 else judges
        if len(candidates) == 1:
            return candidates[0]
        known = ", ".join(map(repr, candidates or names)) or "none that is stored"
        raise UsageError(
            f"expected a run with one judge, got {len(candidates or names)} criteria - name one "
            f"with --criterion: {known} (run {manifest.run_id})"
        )
    if name not in names:
        known = ", ".join(map(repr, names)) or "none that is stored"
        raise UsageError(
            f"expected a criterion of run {manifest.run_id}, got {name!r} - there are: {known}"
        )
    return name


def verdict_on(result: EvalResult[Any], criterion: str, *, only: bool) -> tuple[Verdict, str]:
    """Return whether a result passed a criterion, and the reason; `only`: the run has no other."""
    if result.error is not None:
        return None, result.error
    if only:
        return result.passed, result.score.reason
    for score in (*result.score.parts, result.score):
        if score.criterion == criterion:
            return score.passed, score.reason
    return None, f"no score of {criterion!r}"


def verdicts_of(store: RunStore, manifest: RunManifest, criterion: str) -> dict[RowKey, Verdict]:
    """Return the verdicts of a criterion on the rows of a run; bodies are read only if needed.

    Raise a `StoreError` if a row is missing or was changed.
    """
    run_id = manifest.run_id
    store.check_rows(run_id)
    if len(manifest.criteria) <= 1:
        table = store.table(run_id)
        return {
            table.key(at): None if table.errors[at] else bool(table.passed[at])
            for at in range(len(table))
        }
    results = (row.result for row in store.rows(run_id))
    return {
        (each.experiment_name, each.sample_id, each.epoch): verdict_on(each, criterion, only=False)[
            0
        ]
        for each in results
    }


def content_of(result: EvalResult[Any]) -> str:
    """Return a hash of what a person sees of a result: input, expected and output."""
    sample = result.sample
    seen = [sample.input, sample.expected] if sample else [None, None]
    return _digest(serde.encode(serde.plain([*seen, result.output])))


def key_of(run_id: str, criterion: str, row: RowKey) -> str:
    """Return the key of an output in a file of labels: letters first, for spreadsheets."""
    return f"key-{_digest(serde.encode([run_id, criterion, *row]))[:12]}"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


# ── draws and labels ────────────────────────────────────────────────────────────────────────────


def add_draws(store: RunStore, draws: Sequence[LabelDraw]) -> None:
    """Store which outputs were drawn, unless an earlier draw had them at least as probably."""
    known = {of: draws_of(store, *of) for of in {(draw.run_id, draw.criterion) for draw in draws}}
    new = []
    for draw in draws:
        old = known[draw.run_id, draw.criterion].get(draw.row)
        if old is None or old.content != draw.content or old.probability < draw.probability:
            new.append(draw)
    store.people.add("label_draws", new)


def draws_of(store: RunStore, run_id: str, criterion: str) -> dict[RowKey, LabelDraw]:
    """Return the newest draw of each row of a run."""
    found = store.people.read("label_draws", LabelDraw, run_id=run_id, criterion=criterion)
    return {draw.row: draw for draw in found}


def draws_by_key(store: RunStore) -> dict[str, LabelDraw]:
    """Return the newest draw of each row of all runs, by its key."""
    return {draw.key: draw for draw in store.people.read("label_draws", LabelDraw)}


def add_labels(store: RunStore, labels: Iterable[HumanLabel]) -> int:
    """Store labels and return how many are new: one that its labeller has given already is not."""
    new, known = [], dict[tuple[str, str], dict[Any, tuple[bool | None, str | None]]]()
    for label in labels:
        of = label.run_id, label.criterion
        if of not in known:
            earlier = _folded(live_entries(entries_of(store, *of)))
            known[of] = {_label_key(each): (each.passed, each.note) for each in earlier}
        key = _label_key(label)
        if known[of].get(key) != (label.passed, label.note):
            known[of][key] = label.passed, label.note
            new.append(label)
    add_entries(store, new)
    return len(new)


def add_entries(store: RunStore, entries: Iterable[HumanLabel]) -> None:
    """Store rows of labels as they are."""
    store.people.add("human_labels", entries)


def entries_of(store: RunStore, run_id: str, criterion: str) -> list[HumanLabel]:
    """Return all rows of labels that were given on a run, undone ones too, in their order."""
    return store.people.read("human_labels", HumanLabel, run_id=run_id, criterion=criterion)


def live_entries(entries: Iterable[HumanLabel]) -> list[HumanLabel]:
    """Return the rows that were not undone."""
    entries = list(entries)
    undone = {entry.undoes for entry in entries if entry.undoes}
    return [entry for entry in entries if not entry.undoes and entry.uid not in undone]


def labels_of(store: RunStore, run_id: str, criterion: str) -> list[HumanLabel]:
    """Return the labels of the outputs of a run by a criterion, the last changed one last.

    Those of the run that it scores again, of others that do, and of other runs with the same output
    of the same sample are among them. Some may have a note, and no verdict yet.
    """
    parents = {manifest.run_id: manifest.parent for manifest in store.manifests()}

    def origin(name: str) -> str:
        seen = {name}
        while (parent := parents.get(name)) and parent not in seen:
            seen.add(name := parent)
        return name

    own = origin(run_id)
    live = _live_by_criterion(store, criterion)
    others = [entry for entry in live if origin(entry.run_id) != own]
    if not others:
        return _folded(live)
    rows = _rows_by_output(store, run_id, {entry.sample_id for entry in others})
    draws = draws_of(store, run_id, criterion)
    return _folded(
        found
        for entry in live
        for found in (
            [entry] if origin(entry.run_id) == own else _carried(entry, run_id, rows, draws)
        )
    )


def labels_by_criterion(store: RunStore, criterion: str) -> list[HumanLabel]:
    """Return the labels of all runs by a criterion, each on the run that it was given on."""
    return _folded(_live_by_criterion(store, criterion))


def _live_by_criterion(store: RunStore, criterion: str) -> list[HumanLabel]:
    return live_entries(store.people.read("human_labels", HumanLabel, criterion=criterion))


def people_verdict(labels: Iterable[HumanLabel]) -> Verdict:
    """Return the verdict of people on an output: what was settled, or else the majority's.

    None if there is no verdict, or if as many say pass as fail.
    """
    given = [label for label in labels if label.passed is not None]
    counted = [label for label in given if label.settled][-1:] or given
    passes = sum(label.passed is True for label in counted)
    return None if 2 * passes == len(counted) else 2 * passes > len(counted)


def _label_key(label: HumanLabel) -> tuple[RowKey, str, str, bool]:
    return label.row, label.content, label.labeller, label.settled


def _folded(entries: Iterable[HumanLabel]) -> list[HumanLabel]:
    """Return one label for each output and labeller; a later row changes what it names."""
    labels: dict[Any, HumanLabel] = {}
    for entry in entries:
        before = labels.pop(key := _label_key(entry), None)
        labels[key] = entry if before is None else _changed(before, entry)
    return list(labels.values())


def _changed(before: HumanLabel, entry: HumanLabel) -> HumanLabel:
    return replace(
        entry,
        passed=before.passed if entry.passed is None else entry.passed,
        note=before.note if entry.note is None else entry.note,
        category=before.category if entry.category is None else entry.category,
        # Sorting a note into a category is not a second look at the output.
        created_at=before.created_at if entry.by else entry.created_at,
        skipped=before.skipped if entry.by else entry.skipped,
        blind=before.blind if entry.by else entry.blind,
    )


def _rows_by_output(
    store: RunStore, run_id: str, samples: set[str]
) -> dict[tuple[str, str], list[RowKey]]:
    """Return the rows of a run with these samples, by sample and content."""
    rows: dict[tuple[str, str], list[RowKey]] = {}
    if run_id not in store.run_ids(run_id):  # it was removed
        return rows
    for stored in store.rows(run_id, samples=samples):
        result = stored.result
        if not stored.problem:
            key = result.experiment_name, result.sample_id, result.epoch
            rows.setdefault((result.sample_id, content_of(result)), []).append(key)
    return rows


def _carried(
    entry: HumanLabel,
    run_id: str,
    rows: Mapping[tuple[str, str], list[RowKey]],
    draws: Mapping[RowKey, LabelDraw],
) -> Iterator[HumanLabel]:
    """Yield a label of another run on each row of this one with the same output."""
    for experiment, sample_id, epoch in rows.get((entry.sample_id, entry.content), ()):
        draw = draws.get((experiment, sample_id, epoch))
        yield replace(
            entry,
            run_id=run_id,
            experiment=experiment,
            epoch=epoch,
            probability=None if draw is None else draw.probability,
        )
