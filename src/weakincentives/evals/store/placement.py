"""Which stored rows of a resumed run count, and their positions in the dataset as it is now.

Rows that are no longer part of the run are set aside under the negative key of their run: no
reader of the run sees them there, and a sample that is put back counts again. All moves happen in
one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .checksums import INTACT, PLACED, READABLE, move
from .rows import decode_id, encode_id
from .run_store import RunStore

Key = tuple[str, str, int]  # experiment, sample id, epoch
_IN_TRANSIT = 0  # a key that no run has


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """The columns of a row that a resumed run needs."""

    key: Key
    counted: bool
    position: int
    sample_digest: str
    criteria: str
    error: bool
    attempt: int
    error_source: str | None


def read_stored(store: RunStore, run_id: str) -> list[Stored]:
    """Return the rows of a run that can be read, counted or set aside."""
    database, run_key = store._database, store._run_key(run_id)
    rows = database.read(
        "SELECT experiment, sample, epoch, run, position, sample_digest, criteria, error, attempt, "
        f"error_source FROM rows WHERE run IN (?, ?) AND {READABLE}",
        (run_key, -run_key),
    )
    with database.corruption_errors("the rows of a run"):
        return [
            Stored(
                (decode_id(experiment), decode_id(sample), epoch),
                run > 0,
                position,
                decode_id(digest),
                decode_id(criteria),
                bool(error),
                attempt,
                None if source is None else decode_id(source),
            )
            for experiment, sample, epoch, run, position, digest, criteria, error, attempt, source
            in rows
        ]  # fmt: skip


def drop_damaged(store: RunStore, run_id: str) -> None:
    """Delete the rows of a run whose own columns changed: their key may not be that of a sample."""
    with store._database.transaction() as cursor:
        cursor.execute(
            f"DELETE FROM rows WHERE run = ? AND NOT {INTACT}", (store._run_key(run_id),)
        )


def move_rows(store: RunStore, run_id: str, places: Iterable[tuple[Stored, int | None]]) -> None:
    """Give each row its position in the dataset; with None, set it aside."""
    run_key = store._run_key(run_id)
    changed = [
        (row, position)
        for row, position in places
        if (row.position if row.counted else None) != position
    ]
    if not changed:
        return
    leaving = [row for row, position in changed if position is None]
    returning = {row.key for row, position in changed if not row.counted}
    with store._database.transaction() as cursor:
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
    cursor: sqlite3.Cursor, row: Stored, before: int, after: int, position: int | None = None
) -> None:
    """Move a row from one run key to another, and to a position."""
    experiment, sample, epoch = _stored_key(row)
    changes = move(after, row.position, row.position if position is None else position)
    cursor.execute(
        f"UPDATE rows SET {PLACED} WHERE run = ? AND position = ? AND epoch = ? "
        "AND experiment = ? AND sample = ?",
        (*changes, before, row.position, epoch, experiment, sample),
    )


def _delete(cursor: sqlite3.Cursor, run_key: int, row: Stored) -> None:
    cursor.execute(
        "DELETE FROM rows WHERE run = ? AND experiment = ? AND sample = ? AND epoch = ?",
        (run_key, *_stored_key(row)),
    )


def _stored_key(row: Stored) -> tuple[Any, ...]:
    experiment, sample, epoch = row.key
    return encode_id(experiment), encode_id(sample), epoch
