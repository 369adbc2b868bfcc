"""The file of the run store: its tables, how it is opened, and its errors.

Rules of this file:
1. A file is not changed before it is known to be a run store.
2. A transaction is atomic, whenever a process dies.
3. Every error of SQLite becomes a `StoreError` that says what to do.
4. Nothing is written to a file that was removed or replaced: SQLite would, without an error.

Texts are stored as bytes: SQLite cannot store lone surrogates, and ids may have them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from ...errors import StoreError, UsageError
from ...internal.sqlite import kind_of, make_private, marks_of, truncate_log, write_ahead
from .checksums import columns_checksum, has_body, intact

APPLICATION = 0x57494E52  # "WINR", in the header of the SQLite file
BUSY_SECONDS = 30.0

_FIRST_RUN_CHECKSUM = (
    "run_checksum(run_id, created, finished, CAST(status AS BLOB), CAST(note AS BLOB))"
)
_SECOND_RUN_CHECKSUM = f"{_FIRST_RUN_CHECKSUM[:-1]}, CAST(stop_reason AS BLOB))"
RUN_CHECKSUM = f"{_SECOND_RUN_CHECKSUM[:-1]}, iif(finished IS NULL, NULL, active))"
"""SQL: the checksum of a run, to compare with its column `checksum`, if it has one."""
_LOW = 0xFFFFFFFF  # 32 bits of each figure, so that sums are exact


def _first_figures(row: str) -> str:
    return (
        f"(CAST({row}value * 1000000 AS INTEGER) & {_LOW}) + ({row}tokens & {_LOW}) "
        f"+ (CAST(coalesce({row}cost, -1) * 1000000 AS INTEGER) & {_LOW})"
    )


def _figures(row: str) -> str:
    return (
        f"{_first_figures(row)} + ({row}judge_tokens & {_LOW}) "
        f"+ (CAST(coalesce({row}judge_cost, 0) * 1000000 AS INTEGER) & {_LOW})"
    )


def _sums(figures: str) -> str:
    return (
        "count(*) AS count, coalesce(sum(passed), 0) AS passed, coalesce(sum(error), 0) AS errors, "
        f"coalesce(sum({figures}), 0) AS figures, coalesce(sum(checksum), 0) AS checksums"
    )


TALLY = _sums(_figures(""))
"""SQL: the sums of rows, as in `tallies`."""


def _tally(sign: str, row: str, figures: Callable[[str], str]) -> str:
    return (
        f"UPDATE tallies SET count = count {sign} 1, passed = passed {sign} {row}.passed, "
        f"errors = errors {sign} {row}.error, figures = figures {sign} ({figures(f'{row}.')}), "
        f"checksums = checksums {sign} coalesce({row}.checksum, 0) WHERE run = {row}.run;"
    )


def _triggers(figures: Callable[[str], str]) -> tuple[str, ...]:
    """Return the triggers that keep the tallies up to date."""
    less, more = _tally("-", "OLD", figures), _tally("+", "NEW", figures)
    return (
        f"CREATE TRIGGER row_added AFTER INSERT ON rows BEGIN {more} END",
        f"CREATE TRIGGER row_deleted AFTER DELETE ON rows BEGIN {less} END",
        f"CREATE TRIGGER row_changed AFTER UPDATE ON rows BEGIN {less} {more} END",
    )


def _tallied(
    table: str, columns: str, scope: str = "run_id", criterion: str = "{}criterion"
) -> tuple[str, ...]:
    """Return the statements that give a table of records its checksums and tallies.

    `criterion` is SQL, with the row ("OLD.", "NEW." or none) in place of the braces.
    """
    old, new = (criterion.format(row) for row in ("OLD.", "NEW."))
    of_old = f"WHERE kind = '{table}' AND scope = OLD.{scope} AND criterion = {old}"
    return (
        f"ALTER TABLE {table} ADD COLUMN checksum INTEGER",
        f"UPDATE {table} SET checksum = run_checksum(id, {columns}, substr(body, 1, 5))",
        f"INSERT INTO record_tallies SELECT '{table}', {scope}, {criterion.format('')}, "
        f"count(*), sum(checksum) FROM {table} GROUP BY 2, 3",
        f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN INSERT INTO record_tallies "
        f"VALUES ('{table}', NEW.{scope}, {new}, 1, coalesce(NEW.checksum, 0)) "
        "ON CONFLICT (kind, scope, criterion) DO UPDATE SET count = count + 1, "
        "checksums = checksums + excluded.checksums; END",
        f"CREATE TRIGGER {table}_deleted AFTER DELETE ON {table} BEGIN "
        "UPDATE record_tallies SET count = count - 1, "
        f"checksums = checksums - coalesce(OLD.checksum, 0) {of_old}; "
        f"DELETE FROM record_tallies {of_old} AND count = 0; END",
    )


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
    (
        # None in rows that are older than the columns.
        "ALTER TABLE rows ADD COLUMN body_checksum INTEGER",
        "ALTER TABLE rows ADD COLUMN checksum INTEGER",
        "ALTER TABLE runs ADD COLUMN checksum INTEGER",
        # The process that runs it, as JSON, and its last heartbeat, in microseconds since 1970.
        "ALTER TABLE runs ADD COLUMN owner BLOB",
        "ALTER TABLE runs ADD COLUMN heartbeat INTEGER",
        # What the rows of a run add up to; if they do not, rows are missing or damaged.
        """CREATE TABLE tallies (
            run INTEGER PRIMARY KEY,
            count INTEGER NOT NULL,
            passed INTEGER NOT NULL,
            errors INTEGER NOT NULL,
            figures INTEGER NOT NULL,
            checksums INTEGER NOT NULL
        )""",
        f"INSERT INTO tallies SELECT run, {_sums(_first_figures(''))} FROM rows GROUP BY run",
        "INSERT OR IGNORE INTO tallies SELECT id, 0, 0, 0, 0, 0 FROM runs",
        """CREATE TRIGGER run_added AFTER INSERT ON runs
            BEGIN INSERT INTO tallies VALUES (NEW.id, 0, 0, 0, 0, 0); END""",
        """CREATE TRIGGER run_deleted AFTER DELETE ON runs
            BEGIN DELETE FROM tallies WHERE run = OLD.id; END""",
        *_triggers(_first_figures),
    ),
    (
        # Why a run stopped before its last sample: see `RunRecord`. Before, only the note said so.
        "ALTER TABLE runs ADD COLUMN stop_reason TEXT NOT NULL DEFAULT ''",
        """UPDATE runs SET stop_reason = CASE
            WHEN CAST(note AS TEXT) LIKE 'stopped early: %' THEN 'rule'
            WHEN CAST(note AS TEXT) LIKE 'stopped by the budget%' THEN 'budget'
            WHEN CAST(note AS TEXT) LIKE 'stopped by the error%' THEN 'error'
            ELSE '' END""",
        f"UPDATE runs SET checksum = {_SECOND_RUN_CHECKSUM} WHERE checksum = {_FIRST_RUN_CHECKSUM}",
    ),
    (
        # Microseconds during which a process ran the run; None in runs without an owner.
        "ALTER TABLE runs ADD COLUMN active INTEGER",
        # The version of the agent that ran the sample; None in rows that are older.
        "ALTER TABLE rows ADD COLUMN agent_version BLOB",
        f"UPDATE runs SET checksum = {RUN_CHECKSUM} WHERE checksum = {_SECOND_RUN_CHECKSUM}",
    ),
    (
        # What the judges of a row used. `tokens` and `cost` are the agent's.
        "ALTER TABLE rows ADD COLUMN judge_tokens INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE rows ADD COLUMN judge_cost REAL",
        *(f"DROP TRIGGER {name}" for name in ("row_added", "row_deleted", "row_changed")),
        *_triggers(_figures),
    ),
    (
        # What people say about outputs, and what that says about judges (`human_labels.py`,
        # `calibrations.py`). Rows are only ever added, and stay when their run is removed.
        # `body` is JSON with everything; the other columns are for finding it.
        """CREATE TABLE label_draws (
            id INTEGER PRIMARY KEY,
            key BLOB NOT NULL,          -- of the row in a file of labels
            run_id BLOB NOT NULL,
            criterion BLOB NOT NULL,
            body BLOB NOT NULL
        )""",
        "CREATE INDEX draws_by_run ON label_draws (run_id, criterion)",
        "CREATE INDEX draws_by_key ON label_draws (key)",
        """CREATE TABLE human_labels (
            id INTEGER PRIMARY KEY,
            run_id BLOB NOT NULL,
            criterion BLOB NOT NULL,
            content BLOB NOT NULL,      -- hash of input, expected and output
            body BLOB NOT NULL
        )""",
        "CREATE INDEX labels_by_run ON human_labels (run_id, criterion)",
        """CREATE TABLE calibrations (
            id INTEGER PRIMARY KEY,
            run_id BLOB NOT NULL,
            criterion BLOB NOT NULL,
            body BLOB NOT NULL
        )""",
        "CREATE INDEX calibrations_by_criterion ON calibrations (criterion)",
        """CREATE TABLE judge_tests (     -- each look at the test half of the labels
            id INTEGER PRIMARY KEY,
            run_id BLOB NOT NULL,
            criterion BLOB NOT NULL,
            body BLOB NOT NULL
        )""",
    ),
    (
        # Each row is one change of a category: created, renamed or merged (`categories.py`).
        """CREATE TABLE failure_categories (
            id INTEGER PRIMARY KEY,
            suite BLOB NOT NULL,        -- the suite or dataset that the category is for
            body BLOB NOT NULL
        )""",
        "CREATE INDEX categories_by_suite ON failure_categories (suite)",
        "CREATE INDEX labels_by_criterion ON human_labels (criterion)",
    ),
    (
        # Samples that were in flight when their process died (`deaths.py`).
        """CREATE TABLE deaths (
            run INTEGER NOT NULL,
            sample BLOB NOT NULL,
            epoch INTEGER NOT NULL,
            count INTEGER NOT NULL,
            alone INTEGER NOT NULL,     -- those while nothing else ran
            how BLOB NOT NULL,          -- how the last process ended, if that is known
            PRIMARY KEY (run, sample, epoch)
        ) WITHOUT ROWID""",
        """CREATE TRIGGER run_removed AFTER DELETE ON runs
            BEGIN DELETE FROM deaths WHERE run = OLD.id; END""",
    ),
    (
        # What the records of people add up to, by table, run (or suite) and criterion. If they do
        # not, some are missing or damaged. A run's labels, draws and looks go with it.
        """CREATE TABLE record_tallies (
            kind TEXT NOT NULL,
            scope BLOB NOT NULL,
            criterion BLOB NOT NULL,
            count INTEGER NOT NULL,
            checksums INTEGER NOT NULL,
            PRIMARY KEY (kind, scope, criterion)
        ) WITHOUT ROWID""",
        "DROP INDEX draws_by_key",  # draws are looked up among those of their run
        *_tallied("label_draws", "key, run_id, criterion"),
        *_tallied("human_labels", "run_id, criterion, content"),
        *_tallied("calibrations", "run_id, criterion"),
        *_tallied("judge_tests", "run_id, criterion"),
        *_tallied("failure_categories", "suite", "suite", "x''"),
    ),
    (
        # The figures of runs that have ended, to list many of them quickly (`stored_figures.py`).
        """CREATE TABLE figures (
            run INTEGER PRIMARY KEY,
            state BLOB NOT NULL,        -- of the rows, and of what else the figures depend on
            body BLOB NOT NULL
        )""",
        """CREATE TRIGGER run_without_figures AFTER DELETE ON runs
            BEGIN DELETE FROM figures WHERE run = OLD.id; END""",
    ),
)


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
                f"({self.path}) - open a `RunStore` in the new process"
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


class Storage(Protocol):
    """A run store, as far as the files that `RunStore` imports need it."""

    @property
    def _database(self) -> Database: ...
    def _run_key(self, run_id: str) -> int: ...


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
