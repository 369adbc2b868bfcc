"""The file of SQLite mailboxes: what is in it, how a process shares it, what can go wrong with it.

Rules of this file:
1. Nothing is changed in a file before it is known to be ours.
2. A process has one connection to a file, and its threads take it in turn.
3. Whatever SQLite says becomes a `MailboxError` that says what to do.

Before a fork the connection is closed; parent and child each open their own. SQLite keeps its locks
a process, so a child that inherits a connection, used or not, can lose what it writes later.
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

from ..._sqlite import kind_of, marks_of, write_ahead
from ...errors import MailboxConnectionError, MailboxError, UsageError

__all__ = ["MailFile", "mail_file"]

APPLICATION = 0x57494E4D  # "WINM", where SQLite keeps whose file it is
VERSION = 1
BUSY_SECONDS = 30.0
LONGEST_LOG = 2**24  # bytes that the write-ahead log keeps of the disk when it has grown larger

# Times are microseconds since 1970. `due` is 0 for a letter that waits, in the order of `place`;
# else the end of a lease, or of a delay where it is not `held`. A letter's `number` is never given
# again, and not in another file either: together with `times` it is the handle of one delivery.
# Only replies have a `kept_until`, since whoever asked may be gone for ever.
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
    "CREATE INDEX next_letter ON letters (queue, due, place)",
    "CREATE INDEX letters_that_go ON letters (kept_until) WHERE kept_until IS NOT NULL",
)


class MailFile:
    """One file in one process; `mail_file` gives the same object for the same path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changes = 0  # how often this process put something in or rang
        self._lock = threading.RLock()
        self._bell = threading.Condition()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._inode: object = None

    def __del__(self) -> None:  # the last mailbox on it is gone: nobody else can have the lock
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()

    # ── reading and writing ─────────────────────────────────────────────────────────────────────

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that the query gives."""
        with self._lock, self._reported():
            return self._connected().execute(query, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """What happens inside happens as a whole, and survives the death of the process."""
        with self._lock, self._reported():
            connection = self._connected()
            cursor = connection.cursor()
            if connection.in_transaction:  # the last one could not even be undone
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
        """A number that changes whenever another process has written."""
        return int(self.read("PRAGMA data_version")[0][0])

    def _connected(self) -> sqlite3.Connection:
        """The connection, to the file that is at the path now."""
        if self._connection is not None and self._process != os.getpid():
            raise UsageError(
                "expected a mailbox of this process, got one that was opened before a fork that "
                f"Python knew nothing of ({self.path}) - open another in the new process"
            )
        if self._connection is not None and self._inode != _inode(self.path):
            self.disconnect()  # it was deleted or replaced: what went in there nobody would see
        if self._connection is None:
            self._connection = _opened(self.path)
            self._inode, self._process = _inode(self.path), os.getpid()
        return self._connection

    def disconnect(self) -> None:
        """Close the connection; whoever needs it opens another."""
        with self._lock, suppress(sqlite3.Error):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    # ── waiting ─────────────────────────────────────────────────────────────────────────────────

    def ring(self) -> None:
        """Let whoever waits in this process look again."""
        with self._bell:
            self.changes += 1
            self._bell.notify_all()

    def rest(self, changes: int, seconds: float) -> None:
        """Wait so long, or until somebody rings or has rung since there were so many changes."""
        with self._bell:
            self._bell.wait_for(lambda: self.changes != changes, seconds)

    # ── forks and errors ────────────────────────────────────────────────────────────────────────

    def before_fork(self) -> None:
        self._lock.acquire()
        self.disconnect()

    def after_fork(self) -> None:
        self._lock.release()

    def born_by_fork(self) -> None:
        self._lock, self._bell = threading.RLock(), threading.Condition()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            # Without its traceback, in which from Python 3.12 on a cycle would hold the file open.
            raise _explained(error, self.path) from error.with_traceback(None)


# ── one object a path ───────────────────────────────────────────────────────────────────────────

_files: WeakValueDictionary[Path, MailFile] = WeakValueDictionary()
_opening = threading.Lock()


def mail_file(path: Path | str) -> MailFile:
    """The file at this path; it is let go with the last object that holds it."""
    path = Path(path).absolute().resolve()
    with _opening:
        file = _files.get(path)
        if file is None:
            file = _files[path] = MailFile(path)
        return file


_forking = threading.local()  # each thread that forks remembers what it holds


def _before_fork() -> None:
    _forking.files = list(_files.values())
    for file in _forking.files:
        file.before_fork()


def _after_fork() -> None:
    for file in _forking.files:
        file.after_fork()
    del _forking.files


def _born_by_fork() -> None:
    global _opening
    _opening = threading.Lock()
    for file in _forking.files:
        file.born_by_fork()
    del _forking.files


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_born_by_fork
    )


# ── opening ─────────────────────────────────────────────────────────────────────────────────────


def _inode(path: Path) -> object:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("BEGIN")  # or the answers could be from before and after its making
        ours = _is_ours(connection, path)
        connection.execute("COMMIT")
        # With a write-ahead log this survives the death of every process; a loss of power may take
        # the last messages, and never more.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {LONGEST_LOG}")
        if not ours:
            write_ahead(connection, BUSY_SECONDS)
            _make(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """False for a new file. What is not ours is refused."""
    owner, version, tables = marks_of(connection)
    if not tables and not owner:
        return False
    if owner != APPLICATION:
        raise MailboxError(
            f"expected a file of mailboxes, got a database of something else ({path}) - give "
            "another path"
        )
    if version != VERSION:
        raise MailboxError(
            f"expected a file of mailboxes of version {VERSION}, got version {version} ({path}) - "
            "a newer WINK made it: update this one, or give another path"
        )
    return True


def _make(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if not _is_ours(connection, path):  # read again: another process may have been first
        for statement in _TABLE:
            connection.execute(statement)
        connection.execute("INSERT INTO sqlite_sequence VALUES ('letters', ?)", (randbits(48),))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


# ── what can go wrong ───────────────────────────────────────────────────────────────────────────

_RECOVER = "keep a copy, read what is left of it with `sqlite3 FILE .recover`, give another path"
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, then try again",
    sqlite3.SQLITE_CORRUPT: f"the file is damaged: {_RECOVER}",
    sqlite3.SQLITE_CONSTRAINT: f"the file is damaged: {_RECOVER}",
    sqlite3.SQLITE_ERROR: f"the file is damaged, or of another make: {_RECOVER}",
    sqlite3.SQLITE_NOTADB: "it is a file of something else, or its beginning is damaged: "
    "give another path, or put a good copy there",
    sqlite3.SQLITE_BUSY: f"another process held it for more than {BUSY_SECONDS:.0f} seconds: "
    "wait for that one or stop it, then try again",
    sqlite3.SQLITE_READONLY: "it cannot be written: give this user the right to write the file "
    "and its folder, or give another path",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that its folder exists and that this "
    "user may write there, or give another path",
    sqlite3.SQLITE_IOERR: "the disk does not read or write it: check its space and its health, "
    "then try again",
}
_LASTING = {
    *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT),
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_NOTADB),
}


def _explained(error: Exception, path: Path) -> MailboxError:
    kind = kind_of(error)
    sort = MailboxError if kind in _LASTING else MailboxConnectionError
    todo = _ADVICE.get(kind, "nothing is lost: try again")
    return sort(f"expected mailboxes to read and write, got: {error} ({path}) - {todo}")
