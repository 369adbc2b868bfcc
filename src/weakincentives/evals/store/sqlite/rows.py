"""How a row is encoded and written.

Rules of this file:
1. One row per key `(run_id, experiment, sample_id, epoch)`. The first one stays, unless it was
   scored by other criteria, has another sample digest, is an error with a lower attempt, or fails
   its checksum.
2. A row is read back equal to what was written. What JSON cannot represent is left out, with a note
   in the result's metadata under `not_stored`; the verdict is always kept.
3. A changed byte is detected: bodies and rows carry checksums (`checksums.py`).
4. A row is written, or its run is reported as refused: no row is dropped without a word.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .... import serde
from ....errors import StoreError, UsageError
from ....secrets import redact_bytes
from ...model.redacted_ids import redact_id, redact_ids
from ...model.result import EvalResult, criterion_values
from ..storable import storable
from ..stored_row import StoredRow
from ..writer import RefusedRuns
from .checksums import READABLE, body_checksum, row_checksum
from .columns import COLUMNS, KEY, MADE, SQLITE_TYPES, VALUES, Source
from .database import Database
from .encoding import compress, encode_id
from .ownership import SqliteRunClaim, run_removed

_WRITTEN = ("run", "body", *(column.name for column in MADE), "checksum")
_CHANGED = [column.name for column in COLUMNS if column.name not in KEY.split(", ")]
_UPSERT = (
    f"INSERT INTO rows ({', '.join(_WRITTEN)}) VALUES {{}} ON CONFLICT ({KEY}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _CHANGED)
    + " WHERE criteria <> excluded.criteria OR sample_digest <> excluded.sample_digest "
    f"OR (error AND attempt < excluded.attempt) OR NOT {READABLE}"
)
_VALUES = f"({', '.join('?' * len(_WRITTEN))})"
# Many rows per statement: SQLite then does not return to Python after each.
_STATEMENTS = {
    count: (
        _UPSERT.format(", ".join([_VALUES] * count)),
        f"INSERT INTO bodies VALUES {', '.join(['(?, ?, ?)'] * count)}",
    )
    for count in (128, 64, 32, 16, 8, 4, 2, 1)
}


class Written(NamedTuple):
    """An encoded row: its key after `run`, the columns after `body`, and its long values."""

    run_id: str
    key: tuple[bytes, bytes, int]
    columns: tuple[Any, ...]
    result: bytes
    session: bytes | None


def write_rows(
    database: Database,
    stored: Sequence[StoredRow | Written],
    claims: Mapping[str, SqliteRunClaim],
    refused: RefusedRuns,
) -> None:
    """Write rows in one transaction.

    Rows of a run that was removed, or that another process has taken over, are `refused`.
    """
    # Encode the batch before taking the write lock; batching is also faster.
    rows = [to_columns(row) if isinstance(row, StoredRow) else row for row in stored]
    with database.transaction() as cursor:
        run_keys: dict[str, int] = {}
        for run_id in {row.run_id for row in rows}:
            find = "SELECT id FROM runs WHERE run_id = ?"
            found = cursor.execute(find, (encode_id(run_id),)).fetchone()
            try:
                if found is None:
                    raise run_removed(run_id)
                if (claim := claims.get(run_id)) is not None:
                    claim.check(cursor)
                run_keys[run_id] = found[0]
            except StoreError as error:
                refused.add(run_id, error)
        insert_rows(cursor, run_keys, [row for row in rows if row.run_id in run_keys])


def insert_rows(
    cursor: sqlite3.Cursor, run_keys: Mapping[str, int], rows: Sequence[Written]
) -> None:
    """Insert encoded rows; `run_keys` has the primary keys of their runs."""
    ((body,),) = cursor.execute("SELECT coalesce(max(id), 0) FROM bodies").fetchall()
    start = 0
    while start < len(rows):
        count = next(size for size in _STATEMENTS if size <= len(rows) - start)
        _write_together(cursor, run_keys, rows[start : start + count], body + start + 1)
        start += count


def unique_columns(run_id: str, rows: Iterable[StoredRow]) -> list[Written]:
    """Encode the rows of a run; raise if two of them have one key."""
    encoded: list[Written] = []
    first: dict[Any, int] = {}
    for index, row in enumerate(rows):
        result = row.result
        key = result.experiment_name, result.sample_id, result.epoch
        if (before := first.setdefault(key, index)) != index:
            raise UsageError(
                f"expected each sample and epoch once, got sample {result.sample_id!r}, epoch "
                f"{result.epoch:,}, again - at `results[{index}]`, first at `results[{before}]`: "
                "number repeats as epochs"
            )
        encoded.append(to_columns(row)._replace(run_id=run_id))
    return encoded


def _write_together(
    cursor: sqlite3.Cursor, run_keys: Mapping[str, int], rows: Sequence[Written], first: int
) -> None:
    upsert, insert = _STATEMENTS[len(rows)]
    ids = range(first, first + len(rows))
    cursor.execute(
        insert,
        [
            value
            for body, row in zip(ids, rows, strict=True)
            for value in (body, row.result, row.session)
        ],
    )
    cursor.execute(
        upsert,
        [
            value
            for body, row in zip(ids, rows, strict=True)
            for value in (run_keys[row.run_id], body, *row.columns)
        ],
    )
    if cursor.rowcount < len(rows):  # some keys keep an earlier row
        for body, row in zip(ids, rows, strict=True):
            cursor.execute(
                "DELETE FROM bodies WHERE id = ? AND NOT EXISTS (SELECT 1 FROM rows WHERE "
                "run = ? AND experiment = ? AND sample = ? AND epoch = ? AND body = ?)",
                (body, run_keys[row.run_id], *row.key, body),
            )


def to_columns(row: StoredRow | Written) -> Written:
    """Encode a row; what JSON cannot represent is left out."""
    if not isinstance(row, StoredRow):
        return row
    try:
        return _columns(row)
    except Exception:  # user-defined types may raise anything
        return _columns(replace(row, result=storable(row.result)))


def _columns(row: StoredRow) -> Written:
    result = row.result
    plain = serde.encode_with_nulls(result, _nones(result))
    body = redact_bytes(plain)
    experiment, sample = result.experiment_name, result.sample_id
    scores = serde.encode(criterion_values(result.score))
    if body is not plain:  # it had a secret: redact the columns too
        body = redact_bytes(serde.encode_with_nulls(redact_ids(result), _nones(result)))
        experiment, sample, scores = redact_id(experiment), redact_id(sample), redact_bytes(scores)
    live = row.unsaved_session
    data = row.session if live is None else live.snapshot()
    session = None if data is None else compress(redact_bytes(data))
    stored, key = compress(body), (encode_id(experiment), encode_id(sample), result.epoch)
    source = Source(row, result, key[0], key[1], scores, body_checksum(stored, session))
    columns = [value(source) for value in VALUES]
    if not SQLITE_TYPES.issuperset(map(type, columns)):
        raise TypeError("a value that is not of the type of its column")
    columns.append(row_checksum(*columns))
    return Written(result.run_id, key, tuple(columns), stored, session)


def _nones(result: EvalResult[Any]) -> int:
    """Return how many fields of the result and its trajectory are None and so cannot be NaN."""
    fields: list[Any] = [
        *(result.error, result.error_source, result.error_details),
        *(result.judge_usage, result.judge_cost, result.made_by),
    ]
    if (t := result.trajectory) is not None:
        fields += [t.usage, t.stop_reason, t.cost]
    return fields.count(None)
