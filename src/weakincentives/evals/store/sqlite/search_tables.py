"""The file of the search index: where it is, its tables, and how it is emptied."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from ....internal.sqlite import truncate_log

VERSION = 4

_TABLES = (
    # One document for each body of a run; `checksum` is that of the body.
    """CREATE TABLE documents (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run BLOB NOT NULL,
        body INTEGER NOT NULL,
        checksum INTEGER,
        input TEXT NOT NULL,
        output TEXT NOT NULL,
        why TEXT NOT NULL,
        failed TEXT NOT NULL,
        UNIQUE (run, body)
    )""",
    "CREATE VIRTUAL TABLE texts USING fts5 (text, content='', detail='full')",
    # What rows can be filtered by: "failed:NAME", "error:KEY", "tool:NAME", "worker:NAME",
    # "metadata:KEY=VALUE".
    """CREATE TABLE facts (
        run BLOB NOT NULL,
        fact TEXT NOT NULL,
        body INTEGER NOT NULL,
        PRIMARY KEY (run, fact, body)
    ) WITHOUT ROWID""",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of an index; what was in it is gone."""
    for name in ("documents", "texts", "facts"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def empty_index(store: Path, seconds: float) -> bool:
    """Remove everything from the index of a store, while it may be open elsewhere.

    Return False if another process uses it for longer than that.
    """
    path = index_path(store)
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(path, timeout=seconds, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            create_tables(connection)
            connection.execute("COMMIT")
            return truncate_log(connection, seconds)
    except sqlite3.OperationalError:  # in use, or a folder that cannot be written
        return False
    except sqlite3.DatabaseError:
        remove_index(path)
        return True


def index_path(store: Path) -> Path:
    """Return the path of the index of a store."""
    return store.with_name(f"{store.name}-index")


def remove_index(path: Path) -> None:
    """Remove the files of an index that cannot be read."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
