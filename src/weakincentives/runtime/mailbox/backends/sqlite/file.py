"""The file of SQLite mailboxes: its tables, how a process shares it, and its errors.

Rules of this file:
1. Nothing is changed in a file before it is known to be ours.
2. A process has one connection to a file, which its threads use one at a time.
3. Every error of SQLite becomes a `MailboxError` that says what to do.

Before a fork the connection is closed; parent and child each open their own. SQLite's locks belong
to a process, so a child that inherits a connection, used or not, can lose what it writes later.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import randbits
from typing import Any
from weakref import WeakValueDictionary

from .....errors import MailboxConnectionError, MailboxError, UsageError
from .....internal.sqlite import kind_of, make_private, marks_of, write_ahead

APPLICATION = 0x57494E4D  # "WINM", SQLite's application id
VERSION = 1
BUSY_SECONDS = 30.0
MAX_LOG_BYTES = 2**24  # the write-ahead log is truncated to this

# Times are microseconds since 1970. `due` is 0 for a queued message, in the order of `place`; else
# the end of a lease or, if the message is not `held`, of a delay. A message's `number` is never
# used again, also not in another file: together with `times` it is the handle of one delivery. Only
# replies have a `kept_until`, when they expire. `clock` has one row: what is added to the machine's
# time for leases, and the latest sum that was seen. `lane` is the group of a message, and
# `cancelled` has the groups of which none is delivered.
_TABLE = (
    """CREATE TABLE letters (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        queue BLOB NOT NULL,
        id BLOB NOT NULL,
        due INTEGER NOT NULL DEFAULT 0,
        place INTEGER NOT NULL,
        held INTEGER NOT NULL DEFAULT 0,
        times INTEGER NOT NULL DEFAULT 0,
        untried INTEGER NOT NULL DEFAULT 0,
        enqueued INTEGER NOT NULL,
        kept_until INTEGER,
        reply_to BLOB,
        content BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX one_letter_per_id ON letters (queue, id)",
    "CREATE INDEX letters_that_go ON letters (kept_until) WHERE kept_until IS NOT NULL",
)
_CLOCK = (
    "CREATE TABLE clock (shift INTEGER NOT NULL, seen INTEGER NOT NULL)",
    "INSERT INTO clock VALUES (0, 0)",
)
_LANES = (
    "ALTER TABLE letters ADD COLUMN lane BLOB NOT NULL DEFAULT x''",
    "ALTER TABLE letters ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
    "DROP INDEX IF EXISTS next_letter",
    "CREATE INDEX next_of_lanes ON letters (queue, due, priority DESC, place)",
    "CREATE INDEX lanes ON letters (queue, lane, priority, place)",
    """CREATE TABLE cancelled (
        queue BLOB NOT NULL, lane BLOB NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (queue, lane)
    ) WITHOUT ROWID""",
)
# What a file of an earlier version has not; the releases that wrote it can still use the file.
_LATER = {"clock": _CLOCK, "cancelled": _LANES}


class MailFile:
    """One file in one process; `mail_file` returns the same object for the same path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changes = 0  # calls of `notify` in this process
        self._lock = threading.RLock()
        self._condition = threading.Condition()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._inode: object = None

    def __del__(self) -> None:  # the last mailbox on it is gone, so no lock is needed
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()

    # ── reading and writing ─────────────────────────────────────────────────────────────────────

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of the query."""
        with self._lock, self._translated():
            return self._connected().execute(query, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Run a transaction: it is atomic, and survives a crash of the process."""
        with self._lock, self._translated():
            connection = self._connected()
            cursor = connection.cursor()
            if connection.in_transaction:  # the rollback of the last one failed
                cursor.execute("ROLLBACK")
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    if connection.in_transaction:
                        cursor.execute("ROLLBACK")
                raise

    def version(self) -> int:
        """Return a number that changes whenever another process has written."""
        return int(self.read("PRAGMA data_version")[0][0])

    def _connected(self) -> sqlite3.Connection:
        """Return the connection to the file that is at the path now."""
        if self._connection is not None and self._process != os.getpid():
            raise UsageError(
                "expected a mailbox of this process, got one that was opened before a fork outside "
                f"of Python ({self.path}) - open another in the new process"
            )
        if self._connection is not None and self._inode != _inode(self.path):
            self.disconnect()  # it was deleted or replaced: messages in it would be lost
        if self._connection is None:
            self._connection = _opened(self.path)
            self._inode, self._process = _inode(self.path), os.getpid()
        return self._connection

    def disconnect(self) -> None:
        """Close the connection; the next use opens another."""
        with self._lock, suppress(sqlite3.Error):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    # ── waiting ─────────────────────────────────────────────────────────────────────────────────

    def notify(self) -> None:
        """Let all waiting receivers of this process check again."""
        with self._condition:
            self.changes += 1
            self._condition.notify_all()

    def wait(self, changes: int, seconds: float) -> None:
        """Wait for some seconds, or until `changes` differs from this number."""
        with self._condition:
            self._condition.wait_for(lambda: self.changes != changes, seconds)

    # ── forks and errors ────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            # Without its traceback: since Python 3.12 its cycle would keep the file open.
            raise _translate(error, self.path) from error.with_traceback(None)


# ── one object per path ────────────────────────────────────────────────────────────────────────

_files: WeakValueDictionary[Path, MailFile] = WeakValueDictionary()
_opening = threading.Lock()


def mail_file(path: Path | str) -> MailFile:
    """Return the file at this path; it is closed with the last object that holds it."""
    path = Path(path).absolute().resolve()
    with _opening:
        file = _files.get(path)
        if file is None:
            file = _files[path] = MailFile(path)
        return file


_forking = threading.local()  # the files that this thread has locked for a fork


def _before_fork() -> None:
    _forking.files = list(_files.values())
    for file in _forking.files:
        file._lock.acquire()
        file.disconnect()


def _after_fork() -> None:
    for file in _forking.files:
        file._lock.release()
    del _forking.files


def _after_fork_in_child() -> None:
    global _opening
    _opening = threading.Lock()
    for file in _forking.files:
        file._lock, file._condition = threading.RLock(), threading.Condition()
    del _forking.files


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
    )


# ── opening ─────────────────────────────────────────────────────────────────────────────────────


def _inode(path: Path) -> object:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _opened(path: Path) -> sqlite3.Connection:
    make_private(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("BEGIN")  # one snapshot: another process may be creating the tables
        ours = _is_ours(connection, path)
        connection.execute("COMMIT")
        # With a write-ahead log this survives a crash of every process; a power failure may lose
        # the last messages, and never more.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {MAX_LOG_BYTES}")
        if not ours:
            write_ahead(connection, BUSY_SECONDS)
        if not ours or _missing(connection):
            _create_tables(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file has our tables; refuse a file of something else."""
    owner, version, tables = marks_of(connection)
    if not tables and not owner:
        return False
    if owner != APPLICATION:
        raise MailboxError(
            f"expected a file of mailboxes, got a database of something else ({path}) - use "
            "another path"
        )
    if version != VERSION:
        raise MailboxError(
            f"expected a file of mailboxes of version {VERSION}, got version {version} ({path}) - "
            "a newer WINK made it: update this one, or use another path"
        )
    return True


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    # Both are checked again: another process may have been first.
    if not _is_ours(connection, path):
        for statement in _TABLE:
            connection.execute(statement)
        connection.execute("INSERT INTO sqlite_sequence VALUES ('letters', ?)", (randbits(48),))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    for table in _missing(connection):
        for statement in _LATER[table]:
            connection.execute(statement)
    connection.execute("COMMIT")


def _missing(connection: sqlite3.Connection) -> list[str]:
    """Return which tables were added since the file was made."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return [name for name in _LATER if name not in tables]


# ── errors ──────────────────────────────────────────────────────────────────────────────────────

_RECOVER = "keep a copy, recover it with `sqlite3 FILE .recover`, and use another path"
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, then try again",
    sqlite3.SQLITE_CORRUPT: f"the file is damaged: {_RECOVER}",
    sqlite3.SQLITE_CONSTRAINT: f"the file is damaged: {_RECOVER}",
    sqlite3.SQLITE_ERROR: f"the file is damaged or foreign: {_RECOVER}",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite file, or its header is damaged: "
    "use another path, or restore a backup",
    sqlite3.SQLITE_BUSY: f"another process held it for more than {BUSY_SECONDS:.0f} seconds: "
    "wait for it or stop it, then try again",
    sqlite3.SQLITE_READONLY: "it cannot be written: give this user write permission for the file "
    "and its directory, or use another path",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that its directory exists and that this "
    "user may write there, or use another path",
    sqlite3.SQLITE_IOERR: "an I/O error: check the space and health of the disk, then try again",
}
_PERMANENT = {
    *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT),
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_NOTADB),
}


def _translate(error: Exception, path: Path) -> MailboxError:
    kind = kind_of(error)
    error_type = MailboxError if kind in _PERMANENT else MailboxConnectionError
    advice = _ADVICE.get(kind, "nothing is lost: try again")
    return error_type(f"expected mailboxes to read and write, got: {error} ({path}) - {advice}")
