"""Which stored rows of a resumed run count, and their positions in the dataset as it is now.

Rows that are no longer part of the run are set aside under the negative key of their run: no
reader of the run sees them there, and a sample that is put back counts again. All moves happen in
one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from ..stored_row import KeyState, RowKey
from .checksums import INTACT, PLACED, READABLE, move
from .database import Database
from .encoding import decode_id, encode_id
from .reading import note_moves

_IN_TRANSIT = 0  # a key that no run has


def read_keys(database: Database, run_key: int) -> list[KeyState]:
    """Return the rows of a run that can be read: those that count, and those set aside."""
    return _states(database, "run IN (?, ?)", (run_key, -run_key), READABLE)


def counted_keys(database: Database, run_key: int) -> dict[RowKey, KeyState]:
    """Return the rows of a run that count and whose columns can be read, by their key."""
    return {each.key: each for each in _states(database, "run = ?", (run_key,), INTACT)}


def _states(database: Database, of: str, runs: Sequence[int], intact: str) -> list[KeyState]:
    rows = database.read(
        "SELECT experiment, sample, epoch, run, position, sample_digest, criteria, error, attempt, "
        f"error_source FROM rows WHERE {of} AND {intact}",
        runs,
    )
    with database.corruption_errors("the rows of a run"):
        return [
            KeyState(
                key=(decode_id(experiment), decode_id(sample), epoch),
                counted=run > 0,
                position=position,
                sample_digest=decode_id(digest),
                criteria=decode_id(criteria),
                error=bool(error),
                attempt=attempt,
                error_source=None if source is None else decode_id(source),
            )
            for experiment, sample, epoch, run, position, digest, criteria, error, attempt, source
            in rows
        ]  # fmt: skip


def drop_damaged(database: Database, run_key: int) -> None:
    """Delete the rows of a run whose own columns changed: their key may not be that of a sample."""
    with database.transaction() as cursor:
        cursor.execute(f"DELETE FROM rows WHERE run = ? AND NOT {INTACT}", (run_key,))
        note_moves(cursor, run_key)


def move_rows(
    database: Database, run_key: int, places: Iterable[tuple[KeyState, int | None]]
) -> None:
    """Give each row its position in the dataset; with None, set it aside."""
    changed = [
        (row, position)
        for row, position in places
        if (row.position if row.counted else None) != position
    ]
    if not changed:
        return
    leaving = [row for row, position in changed if position is None]
    returning = {row.key for row, position in changed if not row.counted}
    with database.transaction() as cursor:
        note_moves(cursor, run_key)
        for row in leaving:
            _move(cursor, row, run_key, _IN_TRANSIT)
            if row.key not in returning:  # set aside earlier, with another content
                _delete(cursor, -run_key, row)
        for row, position in changed:
            if position is not None and row.counted:
                _move(cursor, row, run_key, run_key, position)
            elif position is not None:
                _delete(cursor, run_key, row)  # a row that cannot be read
                _move(cursor, row, -run_key, run_key, position)
        for row in leaving:
            _move(cursor, row, _IN_TRANSIT, -run_key)


def _move(
    cursor: sqlite3.Cursor, row: KeyState, before: int, after: int, position: int | None = None
) -> None:
    """Move a row from one run key to another, and to a position."""
    experiment, sample, epoch = _stored_key(row)
    changes = move(after, row.position, row.position if position is None else position)
    cursor.execute(
        f"UPDATE rows SET {PLACED} WHERE run = ? AND position = ? AND epoch = ? "
        "AND experiment = ? AND sample = ?",
        (*changes, before, row.position, epoch, experiment, sample),
    )


def _delete(cursor: sqlite3.Cursor, run_key: int, row: KeyState) -> None:
    cursor.execute(
        "DELETE FROM rows WHERE run = ? AND experiment = ? AND sample = ? AND epoch = ?",
        (run_key, *_stored_key(row)),
    )


def _stored_key(row: KeyState) -> tuple[Any, ...]:
    experiment, sample, epoch = row.key
    return encode_id(experiment), encode_id(sample), epoch
