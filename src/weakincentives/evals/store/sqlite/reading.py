"""Decode stored columns into rows.

Rules of this file:
1. A row that cannot be read costs that row, never the run. If only its texts are damaged, it keeps
   the verdict and the usage of its columns; else it is returned as an error. Either says why, and
   `resume` runs its sample again.
2. `read_result` alone decides whether a row can be read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from .... import serde
from ....chat import TokenUsage
from ....errors import SerializationError, StoreError, short_repr
from ....internal.garbage import collector_paused
from ....rollouts import Trajectory
from ..._types import PASS_MARK, Metric, Score
from ...model.result import EvalResult, with_sample_types
from ..stored_row import RowKey, StoredRow
from ..value_keys import MOVED
from .checksums import INTACT, READABLE, check_row
from .columns import ORDER, READ, RowColumns
from .database import Database
from .encoding import decode_id, decompress

T = TypeVar("T")

PLAIN = (Any, Any, Any)
"""The types of output, input and expected if the reader names none."""

_PAGE_ROWS = 50
_PAGE_ROWS_WITHOUT_BODIES = 2_000
IN_ORDER = "rows INDEXED BY sqlite_autoindex_rows_1"
"""The rows themselves, in SQL: SQLite may otherwise read an index, in which some can be missing."""
BEFORE_FIRST: tuple[Any, ...] = (-1, 0, b"", b"")
"""A place before that of every row."""


def read_pages(
    database: Database,
    run_key: int,
    where: str = "1",
    values: Sequence[Any] = (),
    *,
    bodies: bool = True,
    with_lost: bool = False,
) -> Iterator[list[Any]]:
    """Yield the rows of a run in order, a page at a time; without `bodies`, no long values.

    Each page is one query that starts after the last row of the page before, so no lock is held in
    between. A row that is out of order, because its place was damaged, comes last: always if all
    rows are read, and otherwise `with_lost`. The end is a `RowsMovedError` if rows were moved
    meanwhile: some may have come twice, and others never.
    """
    join = "LEFT JOIN bodies ON bodies.id = body" if bodies else ""
    size = _PAGE_ROWS if bodies else _PAGE_ROWS_WITHOUT_BODIES
    query = (
        f"SELECT {columns_of('rows', bodies=bodies)} FROM rows {join} WHERE run = ? AND ({where}) "
        f"AND ({ORDER}) > (?, ?, ?, ?) ORDER BY {ORDER} LIMIT {size}"
    )
    last, count, before = BEFORE_FIRST, 0, _state(database, run_key)
    while page := database.read(query, (run_key, *values, *last)):
        rows = [*map(RowColumns._make, page)]
        with database.corruption_errors("rows in their order"):
            if place_of(rows[-1]) <= last:  # the loop would never end
                raise ValueError("others")
        last, count = place_of(rows[-1]), count + len(rows)
        yield rows
    with database.snapshot():
        now = _state(database, run_key)
        _check_unmoved(database, before if count >= size else now, now)
        fewest, most = sorted((before.rows, now.rows))
        if where == "1" and count > most:
            _check_none_twice(database, run_key, count)
        is_lost = count < fewest if where == "1" else with_lost
        lost = _out_of_order(database, run_key, now.rows, size) if is_lost else []
    if lost:
        yield lost


def _check_unmoved(database: Database, before: _State, now: _State) -> None:
    """Raise if a run was removed, or its rows were moved, while it was read."""
    if before.exists and not now.exists:
        raise StoreError(f"expected a stored run, but it was removed meanwhile ({database.path})")
    if now.moved != before.moved:
        raise RowsMovedError(
            "expected a run that stays as it is while it is read, but it was resumed with "
            f"another dataset meanwhile ({database.path}) - read it again"
        )


class RowsMovedError(StoreError):
    """Rows of a run were moved while they were read, so that some came twice, or never."""


class _State(NamedTuple):
    """What reading a run page by page depends on: its number of rows, and when they last moved."""

    exists: bool
    rows: int
    moved: Any


def _state(database: Database, run_key: int) -> _State:
    found = database.read(
        "SELECT (SELECT count FROM tallies WHERE run = id), "
        "(SELECT body FROM kept WHERE key = CAST(? AS BLOB) || run_id) FROM runs WHERE id = ?",
        (MOVED.encode(), run_key),
    )
    count, moved = found[0] if found else (0, None)
    return _State(bool(found), count if isinstance(count, int) else 0, moved)


def note_moves(cursor: sqlite3.Cursor, run_key: int) -> None:
    """Let those who are reading a run know that its rows have moved, or that some were deleted."""
    cursor.execute(
        "INSERT OR REPLACE INTO kept SELECT CAST(? AS BLOB) || run_id, randomblob(8) "
        "FROM runs WHERE id = ?",
        (MOVED.encode(), run_key),
    )


def _check_none_twice(database: Database, run_key: int, count: int) -> None:
    """Raise if more rows were read than there are; a tally may be damaged although they are not."""
    ((stored,),) = database.read(f"SELECT count(*) FROM {IN_ORDER} WHERE run = ?", (run_key,))
    with database.corruption_errors("rows in their order"):
        if count > stored:
            raise ValueError("some of them twice")


def _out_of_order(database: Database, run_key: int, written: int, size: int) -> list[Any]:
    """Return the rows that reading in order does not find, without what they had.

    They are read in pages of the same size: one damaged place at the end of a page hides others.
    """
    found, count, last = set(), 0, BEFORE_FIRST
    query = (
        f"SELECT {ORDER} FROM {IN_ORDER} WHERE run = ? AND ({ORDER}) > (?, ?, ?, ?) "
        f"ORDER BY {ORDER} LIMIT {size}"
    )
    while page := database.read(query, (run_key, *last)):
        found |= {tuple(key) for _, *key in page}
        last, count = page[-1], count + len(page)
    keys = (
        "SELECT epoch, experiment, sample FROM rows INDEXED BY one_row_per_key "
        "WHERE run = ? ORDER BY experiment, sample, epoch"
    )
    lost = (key for key in database.read(keys, (run_key,)) if key not in found)
    return [lost_row(0, *key) for key in islice(lost, max(0, written - count))]


def lost_row(position: int, epoch: Any, experiment: Any, sample: Any) -> Any:
    """Return the columns of a row of which only the place is known: it is read as an error."""
    place = {"position": position, "epoch": epoch, "experiment": experiment, "sample": sample}
    return RowColumns._make(place.get(name) for name in RowColumns._fields)


def columns_of(table: str, *, bodies: bool = True) -> str:
    """Return the columns of `RowColumns` in SQL."""
    names = ", ".join(f"{table}.{name}" for name in READ)
    return f"{names}, {INTACT}, {'result, session' if bodies else 'NULL, NULL'}"


def place_of(columns: Any) -> tuple[Any, ...]:
    """Return the place of a row in the order of its run."""
    return columns.position, columns.epoch, columns.experiment, columns.sample


def read_rows(
    database: Database,
    run_key: int,
    types: tuple[Any, Any, Any] = PLAIN,
    where: str = "1",
    *,
    with_lost: bool = False,
) -> Iterator[StoredRow]:
    """Yield the rows of a run in order; `types` are those of output, input and expected."""
    for page in read_pages(database, run_key, where, with_lost=with_lost):
        yield from (to_row(columns, database, run_key, types) for columns in page)


def to_row(
    columns: Any,
    database: Database,
    run_key: int,
    types: tuple[Any, Any, Any] = PLAIN,
) -> StoredRow:
    """Return the row of these columns; one that cannot be read as an error with a `problem`."""
    try:
        return StoredRow(
            result=read_result(columns, types, database),
            position=columns.position,
            sample_digest=decode_id(columns.sample_digest),
            criteria=decode_id(columns.criteria),
            session=None if columns.session is None else decompress(columns.session),
            agent_version=decode_id(columns.agent_version or b""),
        )
    except StoreError:
        raise
    except Exception as error:  # changed bytes, or those of an older version, can raise anything
        return _unreadable_row(columns, error, database, run_key)


def read_result(columns: Any, types: tuple[Any, Any, Any], database: Database) -> EvalResult[Any]:
    """Decode the result of a row. Any exception but a `StoreError` makes the row unreadable."""
    check_row(columns.intact, columns.body_checksum, columns.result, columns.session)
    data = decompress(columns.result)
    try:
        result = _result(data, *types)
    except SerializationError as error:
        if types is not PLAIN and _result(data, *PLAIN):
            raise StoreError(
                f"expected the row of sample {short_repr(columns.sample).removeprefix('b')} to fit "
                f"the given types: {error} ({database.path}) - give the types that it was written "
                "with, or none"
            ) from None
        raise
    if (result.passed, result.score.value) != (columns.passed, columns.value):
        counted = short_repr(columns.value)
        raise ValueError(f"a score of {result.score.value}, counted as {counted}")
    return result


def _result(data: bytes, output_type: Any, input_type: Any, expected_type: Any) -> EvalResult[Any]:
    result = serde.decode(data, EvalResult[output_type])
    return with_sample_types(result, input_type, expected_type)


def read_parts(
    database: Database, run_key: int, cls: type[T], where: str, *, with_lost: bool = False
) -> Iterator[tuple[RowKey, T | None]]:
    """Yield the fields of `cls` of each stored result; None for one that cannot be read."""
    for page in read_pages(database, run_key, where, with_lost=with_lost):
        for columns in page:
            part = None
            with suppress(Exception):  # changed bytes can raise anything
                part = serde.decode(decompress(columns.result), cls) if columns.intact else None
            yield text_key(columns), part


# ── rows that cannot be read ────────────────────────────────────────────────────────────────────


def unreadable_keys(database: Database, run_key: int) -> set[RowKey]:
    """Return the keys of the rows of a run that cannot be read.

    Rows without a checksum were written by older versions: they are decoded to find out.
    """
    damaged = f"SELECT experiment, sample, epoch FROM rows WHERE run = ? AND NOT {READABLE}"
    keys = {
        (_text(experiment), _text(sample), _count(epoch))
        for experiment, sample, epoch in database.read(damaged, (run_key,))
    }
    with collector_paused():
        for page in read_pages(database, run_key, "checksum IS NULL"):
            for columns in page:
                try:
                    read_result(columns, PLAIN, database)
                except Exception:
                    keys.add(text_key(columns))
    return keys


def _unreadable_row(columns: Any, error: Exception, database: Database, run_key: int) -> StoredRow:
    """Return what stands in for a row that cannot be read."""
    run_ids = database.read("SELECT run_id FROM runs WHERE id = ?", (run_key,))
    message = f"this row could not be read: {error} - resume the run to run its sample again"
    result: EvalResult[Any] = EvalResult(
        _text(columns.sample),
        Score(0.0, False, message),
        error=message,
        experiment_name=_text(columns.experiment),
        epoch=_count(columns.epoch),
        run_id=_text(run_ids[0][0]) if run_ids else "",
        attempt=_count(columns.attempt),
        error_source="infrastructure",
    )
    return StoredRow(
        result=_with_columns(result, columns, message) if columns.intact else result,
        position=_count(columns.position),
        sample_digest=_text(columns.sample_digest),
        criteria=_text(columns.criteria),
        problem=str(error),
    )


def _with_columns(result: EvalResult[Any], columns: Any, message: str) -> EvalResult[Any]:
    """Return the result with the verdict and the usage of its columns, which are intact."""
    source, tokens = columns.error_source, columns.tokens
    known: Any = _text(source) if columns.error and source else None
    scores = serde.decode(columns.scores, dict[str, float])
    return replace(
        result,
        score=score_of_columns(columns.value, columns.passed == 1, scores, message),
        error=message if columns.error else None,
        error_source=known,
        latency_ms=columns.latency_ms,
        trajectory=Trajectory(usage=TokenUsage(tokens) if tokens else None, cost=columns.cost),
        judge_usage=TokenUsage(columns.judge_tokens) if columns.judge_tokens else None,
        judge_cost=columns.judge_cost,
    )


def score_of_columns(
    value: float, passed: bool, values: Mapping[str, float], reason: str = ""
) -> Score:
    """Return a score with these values of its criteria; they pass by their values alone."""
    if len(values) == 1:
        return Score(value, passed, reason, criterion=next(iter(values)))
    metrics = (
        Metric(name, each, 0.0, {"passed": each >= PASS_MARK}) for name, each in values.items()
    )
    return Score(value, passed, reason, metrics)


def text_key(columns: Any) -> RowKey:
    """Return experiment, sample and epoch of a row, whatever its bytes have become."""
    return _text(columns.experiment), _text(columns.sample), _count(columns.epoch)


def _text(value: Any) -> str:
    """Return what is readable of a text whose bytes may have changed."""
    try:
        return decode_id(value)
    except (AttributeError, UnicodeDecodeError):
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
