"""Shared by our SQLite files: ownership marks, write-ahead logs, and kinds of errors.

These files contain transcripts, so new files have the mode 0600 and new folders 0700. Existing ones
keep their mode.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path


def make_private(path: Path) -> None:
    """Create the folders of a file and the empty file itself, if they are missing.

    SQLite gives its log files the mode of the database.
    """
    for folder in reversed([path.parent, *path.parent.parents]):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        with suppress(FileExistsError):  # another process was first
            # Only for a new file: closing one that is in use would release SQLite's locks on it.
            os.close(open_private(path, os.O_EXCL))


def open_private(path: Path, flags: int = 0) -> int:
    """Open a file to read and write; create it with mode 0600 if it is missing."""
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)


def marks_of(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return the application id, the version, and the number of tables and indexes."""
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
    """Turn on the write-ahead log, so that readers do not block a writer. It is permanent.

    While another process locks the file, retry for up to that many seconds.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # SQLite's busy timeout does not always apply here.
            if kind_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def truncate_log(connection: sqlite3.Connection, seconds: float) -> bool:
    """Move the write-ahead log into the file and empty it: it has what was deleted since.

    While another process reads, retry for up to that many seconds; return whether it is empty.
    """
    ((waits,),) = connection.execute("PRAGMA busy_timeout").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
    try:
        ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return not busy
    finally:
        connection.execute(f"PRAGMA busy_timeout = {waits}")


def kind_of(error: Exception) -> int:
    """Return the primary result code of SQLite, such as `sqlite3.SQLITE_FULL`; 0 for others."""
    if isinstance(error, OSError):  # the folder cannot be created
        return sqlite3.SQLITE_CANTOPEN
    if isinstance(error, UnicodeDecodeError):  # SQLite's message quotes damaged data
        return sqlite3.SQLITE_CORRUPT
    # The low byte is the primary code; the rest is SQLite's extended code.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
