"""What people say of outputs: which were drawn to be labelled, and their labels.

Rules of this file:
1. Rows are only ever added. The newest label of a labeller counts; older ones stay.
2. A draw has the probability with which the output was chosen, so that estimates from the labels
   are unbiased. It is stored here and not in the file for people, where it would show the verdict.
3. A label belongs to an output: it counts for a run as long as the output is the same, and for
   runs that score the same outputs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from ... import serde
from ...errors import UsageError
from ...secrets import redact_bytes
from ..model.result import EvalResult
from .reading import read_pages, read_rows
from .records import read_records
from .rows import RunManifest, compress, decode_id, decompress, encode_id
from .schema import Database

__all__ = [
    "HumanLabel",
    "LabelDraw",
    "RowKey",
    "Storage",
    "Verdict",
    "add_draws",
    "add_labels",
    "add_record",
    "content_of",
    "criterion_of",
    "draw_by_key",
    "draws_of",
    "key_of",
    "labels_of",
    "stored_records",
    "verdict_on",
    "verdicts_of",
]

RowKey = tuple[str, str, int]
"""The key of a row in its run: experiment, sample id, epoch."""
Verdict = bool | None
"""Whether an output passed; None for an error."""

T = TypeVar("T")

_PAGE_ROWS = 2_000  # columns without bodies are small


class Storage(Protocol):
    """A run store, as far as this file needs it: `RunStore` itself imports the corrections."""

    @property
    def _database(self) -> Database: ...


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
    """The verdict of a person on an output, by one criterion.

    `judge_version` is that of the judge whose verdicts the outputs were drawn by, `probability`
    that of the draw; None if it is unknown how the output was chosen.
    """

    run_id: str
    experiment: str
    sample_id: str
    epoch: int
    content: str
    criterion: str
    passed: bool
    created_at: datetime
    labeller: str = ""
    note: str = ""
    judge_version: str = ""
    probability: float | None = None

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


def verdicts_of(store: Storage, manifest: RunManifest, criterion: str) -> dict[RowKey, Verdict]:
    """Return the verdicts of a criterion on the rows of a run; bodies are read only if needed."""
    database = store._database
    select = "SELECT id FROM runs WHERE run_id = ?"
    ((run_key,),) = database.read(select, (encode_id(manifest.run_id),))
    if len(manifest.criteria) == 1:
        columns = "passed, error"
        pages = read_pages(database, run_key, columns, bodies=False, size=_PAGE_ROWS)
        with database.corruption_errors(f"the rows of run {manifest.run_id}"):
            return {
                (decode_id(experiment), decode_id(sample), epoch): None if error else passed == 1
                for page in pages
                for _, epoch, experiment, sample, passed, error in page
            }
    results = (row.result for row in read_rows(database, run_key))
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


def add_draws(store: Storage, draws: Sequence[LabelDraw]) -> None:
    """Store which outputs were drawn."""
    _add(
        store,
        "INSERT INTO label_draws (key, run_id, criterion, body) VALUES (?, ?, ?, ?)",
        ((each, (each.key, each.run_id, each.criterion)) for each in draws),
    )


def draws_of(store: Storage, run_id: str, criterion: str) -> dict[RowKey, LabelDraw]:
    """Return the newest draw of each row of a run."""
    found = _read(
        store, "label_draws", LabelDraw, "run_id = ? AND criterion = ?", run_id, criterion
    )
    return {draw.row: draw for draw in found}


def draw_by_key(store: Storage, key: str) -> LabelDraw | None:
    """Return the newest draw with this key; None if there is none."""
    found = _read(store, "label_draws", LabelDraw, "key = ?", key)
    return found[-1] if found else None


def add_labels(store: Storage, labels: Iterable[HumanLabel]) -> int:
    """Store labels and return how many are new: one that its labeller has given already is not."""
    new, known = [], dict[tuple[str, str], dict[tuple[RowKey, str, str], tuple[bool, str]]]()
    for label in labels:
        of = label.run_id, label.criterion
        if of not in known:
            earlier = _read(store, "human_labels", HumanLabel, "run_id = ? AND criterion = ?", *of)
            known[of] = {
                (each.row, each.content, each.labeller): (each.passed, each.note)
                for each in earlier
            }
        key = label.row, label.content, label.labeller
        if known[of].get(key) != (label.passed, label.note):
            known[of][key] = label.passed, label.note
            new.append(label)
    _add(
        store,
        "INSERT INTO human_labels (run_id, criterion, content, body) VALUES (?, ?, ?, ?)",
        ((each, (each.run_id, each.criterion, each.content)) for each in new),
    )
    return len(new)


def labels_of(store: Storage, run_id: str, criterion: str) -> list[HumanLabel]:
    """Return the labels of the outputs of a run by a criterion, in the order they were given.

    Those of the run that it scores again, and of others that do, are among them.
    """
    records = read_records(store._database)
    parents = {record.manifest.run_id: record.manifest.parent for record in records}

    def origin(name: str) -> str:
        seen = {name}
        while (parent := parents.get(name)) and parent not in seen:
            seen.add(name := parent)
        return name

    found = _read(store, "human_labels", HumanLabel, "criterion = ?", criterion)
    own = origin(run_id)
    return [label for label in found if origin(label.run_id) == own]


def _add(store: Storage, insert: str, rows: Iterable[tuple[Any, tuple[str, ...]]]) -> None:
    """Add rows in one transaction that survives a loss of power: labels are people's work."""
    values = [
        (*map(encode_id, columns), compress(redact_bytes(serde.encode(value))))
        for value, columns in rows
    ]
    with store._database.transaction(synced=True) as cursor:
        cursor.executemany(insert, values)


def _read(store: Storage, table: str, kind: type[T], where: str, *values: str) -> list[T]:
    query = f"SELECT body FROM {table} WHERE {where} ORDER BY id"
    rows = store._database.read(query, [*map(encode_id, values)])
    with store._database.corruption_errors(f"the table {table}"):
        return [serde.decode(decompress(body), kind) for (body,) in rows]


def add_record(store: Storage, table: str, value: Any, run_id: str, criterion: str) -> None:
    """Add a row to one of the tables of `calibrations.py`."""
    insert = f"INSERT INTO {table} (run_id, criterion, body) VALUES (?, ?, ?)"
    _add(store, insert, [(value, (run_id, criterion))])


def stored_records(
    store: Storage, table: str, kind: type[T], conditions: Mapping[str, str]
) -> list[T]:
    """Return the rows of one of the tables of `calibrations.py` in order."""
    where = " AND ".join(f"{name} = ?" for name in conditions) or "1"
    return _read(store, table, kind, where, *conditions.values())
