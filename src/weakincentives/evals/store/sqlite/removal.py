"""Remove a run so that no text of it is left in the files of the store.

Theory of operation
-------------------
SQLite overwrites what it deletes with zeros (`PRAGMA secure_delete`), but only in the file: the
write-ahead log keeps earlier versions of pages until it is emptied, which waits for readers. The
search index has no text that could be deleted on its own (a full-text index without content), so it
is emptied, and is filled again while people look at runs. Until both is done, a mark in the store
says so, and the next process that opens the store tries again.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from .... import serde
from ....errors import StoreError
from ..value_keys import MOVED, OUTCOME, QUEUE_STATE, SUBMISSION
from .database import Database
from .encoding import decompress, encode_id
from .people import delete_records
from .search_tables import empty_index

WAIT_SECONDS = 2.0
_MARK = encode_id("erase")


def remove_run(database: Database, run_id: str, run_key: int) -> None:
    """Remove a run with its rows and labels, and all that is kept for it."""
    with database.transaction(synced=True) as cursor:
        cursor.execute("DELETE FROM rows WHERE run IN (?, ?)", (run_key, -run_key))
        cursor.execute("DELETE FROM runs WHERE id = ?", (run_key,))
        delete_records(cursor, run_id)
        keys = (encode_id(prefix + run_id) for prefix in (SUBMISSION, QUEUE_STATE, MOVED))
        cursor.execute("DELETE FROM kept WHERE key IN (?, ?, ?)", (*keys,))
        _delete_outcomes(cursor, run_id)
        cursor.execute("INSERT OR IGNORE INTO kept VALUES (?, x'')", (_MARK,))


def erase(database: Database, seconds: float = WAIT_SECONDS) -> bool:
    """Erase what removed runs left in the index and the log; return whether nothing is left.

    While another process reads either, try again for up to that many seconds.
    """
    if not (empty_index(database.absolute, seconds) and database.truncate_log(seconds)):
        return False
    with database.transaction() as cursor:
        cursor.execute("DELETE FROM kept WHERE key = ?", (_MARK,))
    return True


def erase_what_is_left(database: Database) -> None:
    """Erase what an earlier process could not."""
    if database.read("SELECT 1 FROM kept WHERE key = ?", (_MARK,)):
        with suppress(StoreError):  # a file that cannot be written is still read
            erase(database, 0.0)


def _delete_outcomes(cursor: sqlite3.Cursor, run_id: str) -> None:
    """Delete the results that workers kept in this store, to answer redelivered requests."""
    its_run = b'"run_id":' + serde.encode(run_id)
    query = "SELECT key, body FROM kept WHERE key BETWEEN ? AND ?"

    def is_of_run(body: bytes) -> bool:
        try:
            return its_run in decompress(body)
        except ValueError:  # damaged: nobody can read it, and it may be of this run
            return True

    outcomes = cursor.execute(query, (encode_id(OUTCOME), encode_id(OUTCOME) + b"\xff"))
    keys = [(key,) for key, body in outcomes if is_of_run(body)]
    cursor.executemany("DELETE FROM kept WHERE key = ?", keys)
