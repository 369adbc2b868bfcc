"""The file of the run store: how it is opened, read and written, and its errors.

Rules of this file:
1. A file is not changed before it is known to be a run store.
2. A transaction is atomic, whenever a process dies.
3. Every error of SQLite becomes a `StoreError` that says what to do.
4. Nothing is written to a file that was removed or replaced: SQLite would, without an error.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ....errors import StoreError, UsageError
from ....internal.sqlite import kind_of, make_private, marks_of, truncate_log, write_ahead
from .checksums import columns_checksum, has_body, intact
from .schema import MIGRATIONS

APPLICATION = 0x57494E52  # "WINR", in the header of the SQLite file
BUSY_SECONDS = 30.0


class Database:
    """One connection, shared by threads under a lock. Every error is a `StoreError` with advice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.absolute = path.absolute()  # an agent may change the working directory
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._open = True
        self._paused = False
        self._synced: bool | None = None  # the current `PRAGMA synchronous`
        with self._reported():
            self._connection = _opened(self.absolute)
            self._identity = _identity(self.absolute)
        with _registering:
            _databases.add(self)

    @property
    def opened_before_fork(self) -> bool:
        """Whether the file was opened by the process that forked this one."""
        return self._process != os.getpid()

    def check_usable(self) -> None:
        """Raise if the file is closed, or was opened by the process that forked this one."""
        if not self._open:
            raise UsageError(f"expected an open run store, got a closed one ({self.path})")
        if self.opened_before_fork:
            raise UsageError(
                "expected a run store of this process, got one that was opened before a fork "
                f"({self.path}) - call `open_store` in the new process"
            )

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        self.check_usable()
        with self._lock, self._reported():
            return self._connection.execute(query, values).fetchall()

    def read_anew(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query as another process reads them: by a new connection."""
        self.check_usable()
        with self._lock, self._reported():
            uri = f"{self.absolute.as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, timeout=BUSY_SECONDS, uri=True)) as connection:
                connection.text_factory = bytes
                return connection.execute(query, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all reads of the block see the same state of the file."""
        self.check_usable()
        with self._lock, self._reported():
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def transaction(self, *, synced: bool = False) -> Iterator[sqlite3.Cursor]:
        """Run the block in one transaction.

        It survives the death of the process; with `synced`, it and everything before it survive a
        loss of power too.
        """
        self.check_usable()
        with self._lock, self._reported():
            self._check_in_place()
            cursor = self._connection.cursor()
            if self._connection.in_transaction:  # the last rollback failed
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

    def _check_in_place(self) -> None:
        if _identity(self.absolute) != self._identity:
            raise StoreError(
                "expected the run store that was opened, but its file was removed or replaced "
                f"({self.path}) - what was stored in it is lost: run again, and keep the file "
                "while it is in use"
            )

    @contextmanager
    def corruption_errors(self, what: str) -> Iterator[None]:
        """Report a failure to decode stored values in the block as a damaged file."""
        try:
            yield
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise StoreError(
                f"expected {what} as it was written, got: {error} ({self.path}) - the file is "
                "damaged: keep a copy, then delete that run, or restore a backup of the file"
            ) from error

    def truncate_log(self, seconds: float) -> bool:
        """Empty the write-ahead log; return False if another process reads for that long."""
        self.check_usable()
        with self._lock, self._reported():
            return truncate_log(self._connection, seconds)

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._reported():
            self._open = False
            self._connection.close()

    def before_fork(self) -> None:
        """Close the connection during a fork, unless a transaction is open."""
        self._lock.acquire()
        self._paused = self._open and not self._connection.in_transaction
        if self._paused:
            self._connection.close()

    def after_fork(self) -> None:
        """Reopen the connection."""
        try:
            if self._paused:
                self._connection = _opened(self.absolute)
                self._synced = None
        except (sqlite3.Error, OSError, StoreError):
            pass  # the next use reports it
        finally:
            self._lock.release()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if str(error) == _INTERRUPTED:
                raise KeyboardInterrupt from error
            raise StoreError(_advice(error, self.path)) from error


# SQLite's locks belong to a process. A child that inherits a connection and opens another has no
# lock that others see, and loses its writes when its parent closes. So none is inherited.
_databases: WeakSet[Database] = WeakSet()
_registering = threading.Lock()  # for `_databases`; other threads open files during a fork
_forking = threading.local()


def _before_fork() -> None:
    _registering.acquire()
    _forking.databases = [database for database in _databases if not database.opened_before_fork]
    for database in _forking.databases:
        database.before_fork()


def _after_fork() -> None:
    for database in _forking.databases:
        database.after_fork()
    del _forking.databases
    _registering.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_registering.release
    )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from another one at the same path; None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _opened(path: Path) -> sqlite3.Connection:
    make_private(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    # All texts as bytes: changed bytes may not be valid text.
    connection.text_factory = bytes
    register_functions(connection)
    try:
        connection.execute("PRAGMA secure_delete = ON")  # the default of some builds only
        connection.execute("BEGIN")  # one snapshot: before or after a migration
        version = _version(connection, path)
        connection.execute("COMMIT")
        if version < len(MIGRATIONS):
            write_ahead(connection, BUSY_SECONDS)
            _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


# What SQLite makes of Ctrl-C in one of these functions. They raise nothing else.
_INTERRUPTED = "user-defined function raised exception"


def register_functions(connection: sqlite3.Connection) -> None:
    """Define the functions of our own that queries use."""
    connection.create_function("intact", -1, intact, deterministic=True)
    connection.create_function("has_body", 3, has_body, deterministic=True)
    connection.create_function("run_checksum", -1, columns_checksum, deterministic=True)


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
    """Return the number of migrations applied, 0 for a new file; refuse other files."""
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
    sqlite3.SQLITE_NOTADB: "it is not a run store, or its header is damaged: give another "
    "path, or restore a backup",
    sqlite3.SQLITE_BUSY: f"another process held it for more than {BUSY_SECONDS:.0f} seconds: "
    "wait for that one or stop it, then flush or resume",
    sqlite3.SQLITE_READONLY: "it cannot be written: give this user the right to write the file "
    "and its folder, or give another path",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that its folder exists and that this "
    "user may write there, or give another path",
    sqlite3.SQLITE_IOERR: "an I/O error: check the space and the health of the disk, then "
    "flush or resume",
}


def _advice(error: Exception, path: Path) -> str:
    todo = _ADVICE.get(kind_of(error), "what was stored is kept: flush or resume to try again")
    return f"expected a run store to read and write, got: {error} ({path}) - {todo}"
