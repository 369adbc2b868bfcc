"""A run and its rows as values, and how they become what the run store's file holds.

Rules of this file:
1. One row per key `(run_id, experiment, sample_id, epoch)`. The first one stays, unless it was
   scored by other criteria, is of another content of the sample, or is an error and a later
   attempt comes in.
2. What goes in comes back equal. What JSON cannot carry is left out, with a note in the result's
   metadata under `not_stored`; the verdict is always kept.
3. A changed byte is noticed: bodies carry a checksum, and are compared with what is counted.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from .. import serde
from ..errors import SerializationError, StoreError, UsageError, shown
from ..runtime.session import Session
from ..secrets import logger_for, scrub, scrub_bytes
from ._report import EvalResult
from ._score import Score, is_part
from ._store_sql import Database

__all__ = [
    "CriterionInfo",
    "KeyState",
    "RunManifest",
    "RunRecord",
    "StoredRow",
    "Written",
    "packed",
    "raw",
    "row_of",
    "text",
    "unpacked",
    "write_rows",
    "written",
]

logger = logger_for(__name__)

_MOST = 2**63 - 1  # of an integer in SQLite
_WORTH_COMPRESSING = 1_100  # bytes; below, it takes more time than it saves room


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionInfo:
    """The name of a criterion, and a hash of its source."""

    name: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """What a run is, written before its first sample.

    `dataset_digest` is None where samples came from a stream, `planned` where nobody knows how
    many rows there will be. `parent` is the run whose trajectories are scored anew. Secrets are
    stored nowhere: where the command held one, it cannot be resumed as it is.
    """

    run_id: str
    created_at: datetime
    dataset_name: str = ""
    dataset_digest: str | None = None
    planned: int | None = None
    agent: str = ""
    agent_version: str = ""
    model: str | None = None
    criteria: tuple[CriterionInfo, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    git_commit: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict, hash=False)
    command: tuple[str, ...] = ()
    parent: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.run_id, str) or not self.run_id:
            raise UsageError(f"expected a non-empty `RunManifest.run_id`, got {self.run_id!r}")
        if self.created_at.tzinfo is None:
            raise UsageError(
                "expected a time zone in `RunManifest.created_at`, got "
                f"{self.created_at} - use datetime.now(UTC)"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """One counted row: a result, and what a resumed run needs to know about it.

    `position` is the place of the sample in the dataset, `sample_digest` a hash of the sample,
    `criteria` a fingerprint of what scored it, `session` the bytes of a session's snapshot; they
    are made of a `live` one when the row is written.
    """

    result: EvalResult[Any]
    position: int = 0
    sample_digest: str = ""
    criteria: str = ""
    session: bytes | None = None
    live: Session | None = None

    def __post_init__(self) -> None:
        result = self.result
        if not isinstance(result, EvalResult):
            raise UsageError(
                f"expected an `EvalResult` for `StoredRow.result`, got {shown(result)}"
            )
        for number in (self.position, result.epoch, result.attempt):
            if not isinstance(number, int) or not 0 <= number <= _MOST:
                raise UsageError(
                    "expected whole numbers from 0 on for the position, epoch and attempt of a "
                    f"row, got {shown(number)} - sample {shown(result.sample_id)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as lists show it. The counts are computed from its rows, `cost` is in US dollars.

    `mean_score` is over rows without an error; `note` says why a run stopped.
    """

    manifest: RunManifest
    status: str
    note: str = ""
    finished_at: datetime | None = None
    total: int = 0
    passed: int = 0
    errors: int = 0
    mean_score: float | None = None
    tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """What is stored under a key, as far as a resumed run must know it."""

    sample_digest: str
    criteria: str
    error: bool
    attempt: int
    error_source: str | None = None


# ── values as bytes ─────────────────────────────────────────────────────────────────────────────


def raw(value: str) -> bytes:
    """Any text, lone surrogates included. The order of the bytes is that of the characters."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _blob(value: str) -> bytearray:
    """The same for many rows: Python's SQLite takes twice as long for `bytes`."""
    return bytearray(value, "utf-8", "surrogatepass")


_shared = lru_cache(maxsize=256)(_blob)  # of what the rows of a run have in common


def text(value: bytes) -> str:
    """What `raw` was given."""
    return value.decode("utf-8", "surrogatepass")


def packed(data: bytes) -> bytes:
    """The data as it is after a `p`, or compressed after a `z`; in front of it, a checksum."""
    kind = b"p"
    if len(data) > _WORTH_COMPRESSING:
        kind, data = b"z", zlib.compress(data, 1)
    return kind + _checksum(kind, data) + data


def unpacked(stored: bytes) -> bytes:
    """What `packed` was given; a `ValueError` where a byte is not as it was."""
    kind, checksum, data = stored[:1], stored[1:5], stored[5:]
    if not kind or checksum != _checksum(kind, data):
        raise ValueError("other bytes than their checksum says")
    return zlib.decompress(data) if kind == b"z" else data


def _checksum(kind: bytes, data: bytes) -> bytes:
    return zlib.crc32(data, kind[0]).to_bytes(4, "big")


# ── rows ────────────────────────────────────────────────────────────────────────────────────────

_KEY = "run, experiment, sample, epoch"
_REST = (
    "body, position, attempt, sample_digest, criteria, "
    "passed, error, error_source, value, latency_ms, tokens, cost, scores"
)
_UPSERT = (
    f"INSERT INTO rows ({_KEY}, {_REST}) VALUES {{}} ON CONFLICT ({_KEY}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _REST.split(", "))
    + " WHERE criteria <> excluded.criteria OR sample_digest <> excluded.sample_digest "
    "OR (error AND attempt < excluded.attempt)"
)
# Many rows in one statement: SQLite then works through them without waiting for Python in between.
_STATEMENTS = {
    count: (
        _UPSERT.format(", ".join([f"(?{', ?' * 16})"] * count)),
        f"INSERT INTO bodies VALUES {', '.join(['(?, ?, ?)'] * count)}",
    )
    for count in (128, 64, 32, 16, 8, 4, 2, 1)
}

Written = tuple[str, tuple[Any, ...], tuple[Any, ...], bytearray, bytearray | None]
"""The run's id, the key after `run`, the columns after `body`, the result and the session."""


def write_rows(database: Database, stored: Sequence[StoredRow]) -> None:
    """Store the rows in one transaction. Those of a run that was deleted meanwhile go with it."""
    # All at once, which takes a fraction of the time that each takes by itself in between other
    # work; and before the file is locked.
    rows = [written(row) for row in stored]
    with database.transaction() as cursor:
        # Each statement lets other threads in, and waits for its turn again: so, few of them.
        numbers: dict[str, int | None] = {}
        body = 0
        for run_id in {run_id for run_id, *_ in rows}:
            ((numbers[run_id], body),) = cursor.execute(
                "SELECT (SELECT id FROM runs WHERE run_id = ?), "
                "(SELECT coalesce(max(id), 0) FROM bodies)",
                (raw(run_id),),
            )
        left = [(numbers[run_id], *rest) for run_id, *rest in rows if numbers[run_id] is not None]
        while left:
            count = next(size for size in _STATEMENTS if size <= len(left))
            _write_together(cursor, left[:count], body + 1)
            body += count
            del left[:count]


def _write_together(cursor: sqlite3.Cursor, rows: Sequence[Any], first: int) -> None:
    upsert, insert = _STATEMENTS[len(rows)]
    ids = range(first, first + len(rows))
    cursor.execute(
        insert,
        [
            each
            for body, (*_, result, session) in zip(ids, rows, strict=True)
            for each in (body, result, session)
        ],
    )
    cursor.execute(
        upsert,
        [
            each
            for body, (run, key, rest, *_) in zip(ids, rows, strict=True)
            for each in (run, *key, body, *rest)
        ],
    )
    if cursor.rowcount < len(rows):  # some keys had a row that stays
        for body, (run, key, *_) in zip(ids, rows, strict=True):
            cursor.execute(
                "DELETE FROM bodies WHERE id = ? AND NOT EXISTS (SELECT 1 FROM rows WHERE "
                "run = ? AND experiment = ? AND sample = ? AND epoch = ? AND body = ?)",
                (body, run, *key, body),
            )


def written(row: StoredRow) -> Written:
    """The row as it is stored."""
    result = row.result
    trajectory = result.trajectory
    plain = _encoded(result)
    body = scrub_bytes(plain)
    experiment, sample, values = result.experiment_name, result.sample_id, _values(result.score)
    if body is not plain:  # the columns say the same
        experiment, sample, values = scrub(experiment), scrub(sample), scrub_bytes(values)
    key = _shared(experiment), _blob(sample), result.epoch
    rest = (
        row.position,
        result.attempt,
        _blob(row.sample_digest),
        _shared(row.criteria),
        int(result.passed),
        int(result.error is not None),
        result.error_source,
        result.score.value,
        max(-_MOST, min(result.latency_ms, _MOST)),
        min(result.tokens_used, _MOST),
        trajectory.cost if trajectory else None,
        bytearray(values),
    )
    data = row.session if row.live is None else row.live.snapshot()
    session = None if data is None else bytearray(packed(scrub_bytes(data)))
    return result.run_id, key, rest, bytearray(packed(body)), session


def _values(score: Score) -> bytes:
    """What each criterion gave, so that means need no body."""
    parts = {metric.name: metric.value for metric in score.metrics if is_part(metric)}
    if parts:
        return serde.encode(parts)
    return b"{%b:%b}" % (_key_of(score.criterion or "score"), repr(score.value).encode())


@lru_cache(maxsize=256)
def _key_of(name: str) -> bytes:
    return serde.encode(name)


def _encoded(result: EvalResult[Any]) -> bytes:
    try:
        return serde.encode(result, nulls=_nones(result))
    except Exception as error:  # also what a user's own type raises
        logger.warning("left out what JSON cannot carry of sample %r: %s", result.sample_id, error)
        note = {"not_stored": str(error)}
    score = result.score
    bare = Score(score.value, score.passed, score.reason, criterion=score.criterion)
    kept = replace(result, score=bare, sample=None, trajectory=None, metadata=note)
    data = serde.encode(kept)
    parts: list[dict[str, Any]] = [
        {"score": score},
        {"sample": result.sample},
        {"metadata": {**result.metadata, **note}},
    ]
    if result.trajectory is not None:
        parts += [
            {"trajectory": replace(result.trajectory, output=None)},
            {"trajectory": result.trajectory},
        ]
    for part in parts:
        try:
            more = replace(kept, **part)
            data = serde.encode(more)
        except Exception:  # this part is what cannot be carried
            continue
        kept = more
    return data


def _nones(result: EvalResult[Any]) -> int:
    """How many fields of the result and its trajectory are None, which cannot be NaN."""
    fields: list[Any] = [result.error, result.error_source]
    if (t := result.trajectory) is not None:
        fields += [t.usage, t.stop_reason, t.cost]
    return fields.count(None)


def row_of(columns: Sequence[Any], types: tuple[Any, Any, Any], database: Database) -> StoredRow:
    """A row out of the columns that `RunStore.rows` asks for; types: output, input, expected."""
    position, _, _, sample_id, sample_digest, criteria, passed, value, body, session = columns
    what = f"the row of sample {shown(sample_id).removeprefix('b')}"
    with database.reading(what):
        data = unpacked(body)
        try:
            result = _result(data, *types)
        except SerializationError as error:
            raise StoreError(
                f"expected {what} to fit the types that were given: {error} ({database.path}) - "
                "give the types that it was written with, or none"
            ) from None
        if (result.passed, result.score.value) != (passed, value):
            raise ValueError(f"a score of {result.score.value}, counted as {shown(value)}")
        return StoredRow(
            result=result,
            position=position,
            sample_digest=text(sample_digest),
            criteria=text(criteria),
            session=None if session is None else unpacked(session),
        )


def _result(data: bytes, output_type: Any, input_type: Any, expected_type: Any) -> EvalResult[Any]:
    result: EvalResult[Any] = serde.decode(data, EvalResult[output_type])
    if (sample := result.sample) is None or input_type is expected_type is Any:
        return result
    typed = replace(
        sample,
        input=serde.convert(sample.input, input_type),
        expected=serde.convert(sample.expected, expected_type),
    )
    return replace(result, sample=typed)
