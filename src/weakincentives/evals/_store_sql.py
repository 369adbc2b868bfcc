"""The file of the run store: what is in it, how it is opened, and what can go wrong with it.

Rules of this file:
1. Nothing is changed in a file before it is known to be ours.
2. A transaction happens as a whole or not at all, whoever dies when.
3. Whatever SQLite says becomes a `StoreError` that says what to do.

Texts are stored as bytes: SQLite has no room for a lone surrogate, and ids may hold one.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from .._sqlite import kind_of, marks_of, write_ahead
from ..errors import StoreError, UsageError

__all__ = ["APPLICATION", "MIGRATIONS", "Database"]

APPLICATION = 0x57494E52  # "WINR", where SQLite keeps whose file it is
BUSY_SECONDS = 30.0

# Each takes the file from one version to the next; `user_version` counts those that were made.
# One that was released never changes. To change the file, add one at the end.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            run_id BLOB NOT NULL UNIQUE,
            created INTEGER NOT NULL,   -- microseconds since 1970
            finished INTEGER,
            status TEXT NOT NULL,
            note BLOB NOT NULL,
            manifest BLOB NOT NULL
        )""",
        # In the order in which it is read, and without the long values: counting reads little.
        """CREATE TABLE rows (
            run INTEGER NOT NULL REFERENCES runs,
            position INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            experiment BLOB NOT NULL,
            sample BLOB NOT NULL,
            body INTEGER NOT NULL REFERENCES bodies,
            attempt INTEGER NOT NULL,
            sample_digest BLOB NOT NULL,
            criteria BLOB NOT NULL,
            passed INTEGER NOT NULL,
            error INTEGER NOT NULL,
            error_source TEXT,
            value REAL NOT NULL,
            latency_ms INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            cost REAL,
            scores BLOB NOT NULL,       -- a JSON object: the value of each criterion
            PRIMARY KEY (run, position, epoch, experiment, sample)
        ) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX one_row_per_key ON rows (run, experiment, sample, epoch)",
        "CREATE TABLE bodies (id INTEGER PRIMARY KEY, result BLOB NOT NULL, session BLOB)",
        """CREATE TRIGGER replaced AFTER UPDATE OF body ON rows
            BEGIN DELETE FROM bodies WHERE id = OLD.body; END""",
        """CREATE TRIGGER deleted AFTER DELETE ON rows
            BEGIN DELETE FROM bodies WHERE id = OLD.body; END""",
    ),
    ("CREATE TABLE sessions (session_id BLOB PRIMARY KEY, body BLOB NOT NULL)",),
    ("CREATE TABLE kept (key BLOB PRIMARY KEY, body BLOB NOT NULL)",),
)


class Database:
    """One connection that threads take in turn. Every error is a `StoreError` with advice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._open = True
        self._paused = False
        self._synced: bool | None = None  # how the connection writes now
        with self._reported():
            self._connection = _opened(path)
        _databases.add(self)

    @property
    def foreign(self) -> bool:
        """True in a process that was forked off the one that opened the file."""
        return self._process != os.getpid()

    def check_usable(self) -> None:
        """Raise where the file is closed, or was opened by the process that forked this one."""
        if not self._open:
            raise UsageError(f"expected an open run store, got a closed one ({self.path})")
        if self.foreign:
            raise UsageError(
                "expected a run store of this process, got one that was opened before a fork "
                f"({self.path}) - open a `RunStore` in the new process"
            )

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that the query gives."""
        self.check_usable()
        with self._lock, self._reported():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def transaction(self, *, synced: bool = False) -> Iterator[sqlite3.Cursor]:
        """What happens inside happens as a whole.

        It survives the death of the process; with `synced`, a loss of power too, and so does
        everything before it.
        """
        self.check_usable()
        with self._lock, self._reported():
            cursor = self._connection.cursor()
            if self._connection.in_transaction:  # the last one could not even be undone
                cursor.execute("ROLLBACK")
            if self._synced is not synced:
                cursor.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
                self._synced = synced
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        cursor.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Inside, stored values become ours: where that fails, the file is damaged."""
        try:
            yield
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(
                f"expected {what} as it was written, got: {error} ({self.path}) - the file is "
                "damaged: keep a copy, then delete that run or put a good copy of the file there"
            ) from error

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._reported():
            self._open = False
            self._connection.close()

    def before_fork(self) -> None:
        """Let go of the file for the moment of a fork, unless it is being written to."""
        self._lock.acquire()
        self._paused = self._open and not self._connection.in_transaction
        if self._paused:
            self._connection.close()

    def after_fork(self) -> None:
        """Take it up again."""
        try:
            if self._paused:
                self._connection = _opened(self.path)
                self._synced = None
        except (sqlite3.Error, OSError, StoreError):
            pass  # the next use says so, as of any closed file
        finally:
            self._lock.release()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise StoreError(_advice(error, self.path)) from error


# SQLite keeps its locks a process. A child that inherits a connection and opens one of its own has
# no lock that others see, and loses what it writes when its parent closes. So none is inherited.
_databases: WeakSet[Database] = WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    _forking.databases = [each for each in _databases if not each.foreign]
    for database in _forking.databases:
        database.before_fork()


def _after_fork() -> None:
    for database in _forking.databases:
        database.after_fork()
    del _forking.databases


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    # All texts as bytes: a changed byte can make text of bytes, and not all bytes are text.
    connection.text_factory = bytes
    try:
        connection.execute("BEGIN")  # or the answers could be from before and after a migration
        version = _version(connection, path)
        connection.execute("COMMIT")
        if version < len(MIGRATIONS):
            write_ahead(connection, BUSY_SECONDS)
            _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    # Read again: another process may have been first.
    for statements in MIGRATIONS[_version(connection, path) :]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """How many migrations the file has seen: 0 for a new one. What is not ours is refused."""
    owner, version, tables = marks_of(connection)
    if not tables and not owner:
        return 0
    if owner != APPLICATION:
        raise StoreError(
            f"expected a run store, got a database of something else ({path}) - give another path"
        )
    if version > len(MIGRATIONS):
        raise StoreError(
            f"expected a run store of version {len(MIGRATIONS)} or older, got version {version} "
            f"({path}) - a newer WINK wrote it: update this one, or give another path"
        )
    return version


_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, then flush or resume",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: keep a copy, read what is left of it with "
    "`sqlite3 FILE .recover`, and give another path",
    sqlite3.SQLITE_NOTADB: "it is a file of something else, or its beginning is damaged: "
    "give another path, or put a good copy there",
    sqlite3.SQLITE_BUSY: f"another process held it for more than {BUSY_SECONDS:.0f} seconds: "
    "wait for that one or stop it, then flush or resume",
    sqlite3.SQLITE_READONLY: "it cannot be written: give this user the right to write the file "
    "and its folder, or give another path",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that its folder exists and that this "
    "user may write there, or give another path",
    sqlite3.SQLITE_IOERR: "the disk does not read or write it: check its space and its health, "
    "then flush or resume",
}


def _advice(error: Exception, path: Path) -> str:
    todo = _ADVICE.get(kind_of(error), "what was stored is kept: flush or resume to try again")
    return f"expected a run store to read and write, got: {error} ({path}) - {todo}"
