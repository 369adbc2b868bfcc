"""The disk of the simulated machines: a real file of SQLite, and what can happen to it.

Every statement of a simulated process goes through here. It takes time, it may fail as it does on a
full or broken disk, and the process or the whole machine may die before, in the middle of or after
a commit. What a process left is what SQLite had written by then; after a loss of power, what it had
synced, and of the rest a part.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .sim_loop import Process, current_process
from .sim_threads import current_thread, pause

if TYPE_CHECKING:
    from .sim_local import LocalWorld

__all__ = ["Disk", "connect", "flip", "table_pages", "used_byte"]

connect = sqlite3.connect  # the real one

FRAME_HEADER, LOG_HEADER = 24, 32  # bytes, of the write-ahead log
CHECKPOINT_FRAMES = 1000  # SQLite then syncs the log and copies it into the file
SLOW_SECONDS = 60.0  # at most, of a statement on a slow disk
BUSY_PAUSE = 0.1  # between two tries to lock the file
_WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT")
_FILES = ("", "-wal", "-shm")


class Connection(sqlite3.Connection):
    """A connection of one simulated process."""

    disk: Disk
    process: Process | None  # None: another program
    busy_seconds: float  # seconds for which it waits for a lock
    cursors: WeakSet[sqlite3.Cursor]
    full_sync = True  # what SQLite does unless it is told

    def execute(self, *values: Any) -> Any:
        return self.cursor().execute(*values)

    def cursor(self, *_: Any) -> Any:
        self.cursors.add(cursor := super().cursor(_Cursor))
        return cursor

    def close(self) -> None:
        self.disk.forget(self)
        for cursor in self.cursors:  # with one of them open, the file would be, too
            cursor.close()
        super().close()


class _Cursor(sqlite3.Cursor):
    def execute(self, *values: Any) -> Any:
        connection: Any = self.connection
        return connection.disk.run(connection, super().execute, *values)


class Disk:
    """The folder of the run store, and the connections to it."""

    def __init__(self, world: LocalWorld) -> None:
        shared_memory = Path("/dev/shm")
        folder = shared_memory if shared_memory.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="wink-sim-", dir=folder))
        self.path = self.folder / "runs.db"
        self.full_until = self.read_only_until = 0.0
        self.flipped_in_file = False
        self.on_commit: Callable[[Process], object] = lambda process: None
        self.on_power_loss: Callable[[], object] = lambda: None
        self._world = world
        self._connections: list[Connection] = []
        self._synced = (b"", 0)  # the log's salt, and how many of its frames are synced

    def forget(self, connection: Connection) -> None:
        """Note that a connection is closed."""
        if connection in self._connections:
            self._connections.remove(connection)

    def remove(self) -> None:
        """Close and remove everything."""
        for connection in [*self._connections]:
            connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Let every connection that a process opens be one to this disk."""
        sqlite3.connect = self._connect  # type: ignore[assignment]
        try:
            yield
        finally:
            sqlite3.connect = connect

    def _connect(self, database: Any, timeout: float = 5.0, **more: Any) -> sqlite3.Connection:
        process = current_process()
        if process is None:
            return connect(database, timeout=timeout, **more)
        process.check()
        return self._connection(database, process, timeout, **more)

    def _connection(
        self, database: Any, process: Process | None, timeout: float, **more: Any
    ) -> Connection:
        # It waits in `run`: in here, no virtual time would pass.
        connection: Connection = connect(database, timeout=0.0, factory=Connection, **more)
        connection.disk, connection.process = self, process
        connection.busy_seconds, connection.cursors = timeout, WeakSet()
        self._connections.append(connection)
        return connection

    # ── statements ────────────────────────────────────────────────────────────────────────────────

    def run(self, connection: Connection, execute: Callable[..., Any], *values: Any) -> Any:
        """Run a statement, with what may happen before and after it."""
        process, world = connection.process, self._world
        if process is None:
            return execute(*values)
        process.check()
        what = values[0].split(None, 1)[0].upper()
        if current_thread() is None:
            world.audit.note(f"{process.name} waits for the disk on its event loop: {what}")
        if what in ("BEGIN", "COMMIT"):
            self._take_time(process)
        if what == "COMMIT" and world.strikes("crash before commit"):
            world.kill(process)
            process.check()
        self._fail_early(connection, process, what)
        begin = self._log_frames() if what == "COMMIT" else 0
        done = self._waiting_for_locks(connection, process, execute, *values)
        if "PRAGMA synchronous" in values[0]:
            connection.full_sync = values[0].endswith("FULL")
        if what == "COMMIT":
            self._committed(connection, process, begin)
        if what in ("BEGIN", *_WRITES) and world.strikes("write reported as failed"):
            process.troubled = True
            done.close()  # or its traceback would keep the file locked
            raise _error(sqlite3.SQLITE_IOERR, "disk I/O error")
        return done

    def _take_time(self, process: Process) -> None:
        world = self._world
        if world.strikes("disk slow"):
            process.troubled = True
            pause(world.random.uniform(0, SLOW_SECONDS))
        elif current_thread() is not None:
            pause(world.random.expovariate(200.0))

    def _fail_early(self, connection: Connection, process: Process, what: str) -> None:
        world, now = self._world, self._world.loop.now
        error = None
        if what in _WRITES and now < self.full_until:
            error = _error(sqlite3.SQLITE_FULL, "database or disk is full")
        elif what in _WRITES and now < self.read_only_until:
            error = _error(sqlite3.SQLITE_READONLY, "attempt to write a readonly database")
        elif what != "ROLLBACK" and world.strikes("disk error"):
            error = _error(sqlite3.SQLITE_IOERR, "disk I/O error")
        if error is not None:
            process.troubled = True
            world.log(process, f"{what}: {error}")
            if world.random.random() < 0.5 and connection.in_transaction:
                connection.rollback()  # as SQLite may do by itself
            raise error

    def _waiting_for_locks(
        self, connection: Connection, process: Process, execute: Callable[..., Any], *values: Any
    ) -> Any:
        """Wait for a lock as SQLite's busy handler does, but on virtual time."""
        end = self._world.loop.now + connection.busy_seconds
        while True:
            try:
                return execute(*values)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or current_thread() is None:
                    raise
                if self._world.loop.now >= end:
                    process.troubled = True
                    raise
            pause(BUSY_PAUSE)

    def _committed(self, connection: Connection, process: Process, begin: int) -> None:
        world = self._world
        salt, frames = self._log()
        if connection.full_sync or frames >= CHECKPOINT_FRAMES:
            self._synced = salt, frames
        # After a checkpoint the file has these frames, too.
        can_be_cut = self._alone(process) and begin < frames < CHECKPOINT_FRAMES
        if world.strikes("crash in commit") and can_be_cut:
            world.kill(process, cut_log=begin + (frames - begin) * 0.99 * world.random.random())
            process.check()
        self.on_commit(process)
        if world.strikes("crash after commit"):
            world.kill(process)
            process.check()

    # ── deaths ────────────────────────────────────────────────────────────────────────────────────

    def connections_of(self, process: Process | None) -> list[Connection]:
        """Return the open connections of a process, or of other programs."""
        return [each for each in self._connections if each.process is process]

    def _alone(self, process: Process) -> bool:
        return all(each.process is process for each in self._connections)

    def process_died(self, process: Process, cut_log: float | None = None) -> None:
        """Leave what a process had written: nothing of a transaction that it did not commit."""
        ours = self.connections_of(process)
        if not ours:
            return
        left = self._contents() if self._alone(process) else {}
        for connection in ours:  # closing the last one would write the log back into the file
            with suppress(sqlite3.Error):
                connection.rollback()
            connection.close()
        if left:
            self._restore(left, cut_log)

    def lose_power(self) -> None:
        """Kill every process; of the log, what was not synced may be lost, from some point on."""
        world = self._world
        left, (salt, frames) = self._contents(), self._log()
        synced = self._synced[1] if self._synced[0] == salt else 0
        # Without an index of the log, nobody has written since the last loss: all of it is synced.
        cut = world.random.uniform(synced, frames) if salt else None
        for connection in self.connections_of(None):
            connection.close()
        for process in [each for each in world.processes if not each.dead]:
            world.kill(process)
        self._restore(left, cut, holes=True)
        self.on_power_loss()

    def _contents(self) -> dict[Path, bytes]:
        files = (Path(f"{self.path}{suffix}") for suffix in _FILES[:2])
        return {file: file.read_bytes() for file in files if file.exists()}

    def _restore(
        self, left: dict[Path, bytes], cut_log: float | None = None, *, holes: bool = False
    ) -> None:
        """Put the files back as they were, with the log cut after so many frames."""
        for suffix in _FILES[1:]:
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        for file, data in left.items():
            if file != self.path and cut_log is not None and data:
                cut = round(LOG_HEADER + cut_log * self._frame_size(data))
                rest = data[cut:]
                if holes and self._world.random.random() < 0.5:  # written in another order
                    size = min(len(rest), self._frame_size(data))
                    data = data[:cut] + bytes(size) + rest[size:]
                else:
                    data = data[:cut]
            file.write_bytes(data)

    def _frame_size(self, log: bytes) -> int:
        return FRAME_HEADER + int(struct.unpack_from(">I", log, 8)[0])

    def _log_frames(self) -> int:
        return self._log()[1]

    def _log(self) -> tuple[bytes, int]:
        """Return the salt of the write-ahead log, and how many frames of it are committed."""
        try:
            with Path(f"{self.path}-shm").open("rb") as index:
                header = index.read(48)
        except FileNotFoundError:
            return b"", 0
        if len(header) < 48:
            return b"", 0
        return header[32:40], struct.unpack_from("=I", header, 16)[0]

    # ── damage ────────────────────────────────────────────────────────────────────────────────────

    def hold_lock(self, seconds: float) -> None:
        """Lock the file, as another program that writes to it."""
        other = self._connection(self.path, None, 0.0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            other.close()
        else:
            self._world.later(seconds, other.close)

    def flip_bit(self) -> str:
        """Flip a bit, a third of the time in one of the rows.

        Most of the time, what is in the log is moved to the file before, as it is sooner or later.
        """
        random, file = self._world.random, self.path
        if random.random() < 0.7:
            with suppress(sqlite3.Error), closing(connect(self.path)) as other:
                other.execute("PRAGMA wal_checkpoint")
        log = Path(f"{self.path}-wal")
        if random.random() < 0.3 and log.exists() and log.stat().st_size:
            file = log
        tables = random.choice(("%", "rows"))
        pages = table_pages(self.path, tables) if random.random() < 0.7 else []
        size = file.stat().st_size
        if file == log and size > LOG_HEADER:
            start = LOG_HEADER if random.random() < 0.5 else 0
            offset = random.randrange(start, size)
        elif pages:
            page = random.choice(pages)
            offset = used_byte(self.path, page, random)
        else:
            offset = random.randrange(max(1, size))
        self.flipped_in_file = file == self.path
        flip(file, offset, random)
        return f"a bit is flipped in {file.name} at {offset}"

    def delete_files(self) -> None:
        """Remove the store, as a cleanup does."""
        for suffix in _FILES:
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def replace_file(self) -> None:
        """Replace the store by a copy of itself, as a restored backup is."""
        copy = self.folder / "copy"
        try:
            source = connect(self.path)
            with closing(source), closing(connect(copy)) as target:
                source.backup(target)
        except sqlite3.Error:
            copy.unlink(missing_ok=True)
            return
        self.delete_files()
        copy.replace(self.path)

    def cut(self, suffix: str) -> None:
        """Cut off the end of the file, or of its log."""
        file = Path(f"{self.path}{suffix}")
        if file.exists():
            size = file.stat().st_size
            os.truncate(file, self._world.random.randrange(size + 1))


def table_pages(path: Path, names: str = "%") -> list[int]:
    """Return the pages of tables and their indexes that are in the file, from the roots down."""
    query = "SELECT rootpage FROM sqlite_master WHERE rootpage > 1 AND tbl_name LIKE ?"
    try:
        with closing(connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader:
            pages = [page for (page,) in reader.execute(query, (names,))]
    except sqlite3.Error:
        return []
    data = path.read_bytes()
    for page in pages:
        pages += [child for child in _children(data, page) if child not in pages]
    return pages


def _children(data: bytes, page: int) -> Iterator[int]:
    """Yield the pages below a page of a tree; none if it is a leaf, or not in the file."""
    size = int.from_bytes(data[16:18], "big")
    content = data[(page - 1) * size : page * size]
    if len(content) < size or content[0] not in (2, 5):  # the inner pages of indexes and tables
        return
    count = int.from_bytes(content[3:5], "big")
    cells = (int.from_bytes(content[at : at + 2], "big") for at in range(12, 12 + 2 * count, 2))
    for at in (8, *cells):
        child = int.from_bytes(content[at : at + 4], "big")
        if 1 < child <= len(data) // size:
            yield child


def used_byte(path: Path, page: int, random: Random) -> int:
    """Return the offset of a byte in the cells of a page."""
    with path.open("rb") as opened:
        size = int.from_bytes(opened.read(18)[16:18], "big")
        size = 65536 if size == 1 else size
        opened.seek((page - 1) * size)
        data = opened.read(size)
    begin = int.from_bytes(data[5:7], "big") if len(data) == size else 0
    return (page - 1) * size + random.randrange(min(begin, size - 1), size)


def flip(path: Path, offset: int, random: Random) -> None:
    """Flip a bit of a byte, if there is one."""
    with path.open("r+b") as opened:
        opened.seek(offset)
        if byte := opened.read(1):
            opened.seek(offset)
            opened.write(bytes([byte[0] ^ 1 << random.randrange(8)]))


def _error(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error
