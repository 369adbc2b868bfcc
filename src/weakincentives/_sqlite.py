"""What every SQLite file of ours needs: whose it is, a log beside it, and what an error means."""

from __future__ import annotations

import sqlite3
import time

__all__ = ["kind_of", "marks_of", "write_ahead"]


def marks_of(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Whose the file is, its version, and how many tables and indexes it has."""
    owner, version, tables = (
        int(connection.execute(query).fetchone()[0])
        for query in (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_master",
        )
    )
    return owner, version, tables


def write_ahead(connection: sqlite3.Connection, seconds: float) -> None:
    """Let readers and a writer go on beside each other; the file remembers it.

    While another process has the file it is tried again, for so many seconds.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Here SQLite does not always wait by itself.
            if kind_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def kind_of(error: Exception) -> int:
    """Which of SQLite's kinds of errors it is, as `sqlite3.SQLITE_FULL`; 0 for none of them."""
    if isinstance(error, OSError):  # its folder cannot be made
        return sqlite3.SQLITE_CANTOPEN
    if isinstance(error, UnicodeDecodeError):  # SQLite quotes the damage, which is no text
        return sqlite3.SQLITE_CORRUPT
    # The low byte is the kind of error; the rest says where in SQLite it arose.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
