"""One process at a time runs a run: it holds a lock and writes a heartbeat.

Rules of this file:
1. On one machine a kernel lock decides. It ends with its process, so the run of a process that was
   killed can be taken over at once.
2. Between machines the heartbeat decides: an owner is dead if its heartbeat does not change while
   the process that wants the run watches it for `STALE_SECONDS`. Clocks are never compared: those
   of two machines may differ by minutes. So taking a run over takes that long, and those who only
   read cannot tell: they say when the last heartbeat was.
3. An owner whose run was taken over or removed can no longer write: every transaction of an owner
   begins with a heartbeat, which then fails.
4. Time counts as active from heartbeat to heartbeat, by the owner's monotonic clock, so the time
   between two resumes does not.
5. A run without a claim, such as one that workers write to, has no owner and accepts any process.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakSet

from .... import serde
from ....clock import Clock
from ....errors import StoreError, UsageError, WinkError
from ....internal.forks import process_id
from ....internal.sqlite import open_private
from ....secrets import logger_for
from ..deaths import Deaths, InFlightFile, read_in_flight
from ..run_store import RunClaim
from .database import Database

try:
    import fcntl
except ImportError:  # Windows, where the heartbeat alone decides
    fcntl = None  # type: ignore[assignment]

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 30.0
_POLL_SECONDS = 0.5  # while the heartbeat of another machine is watched
# A reader that checks whether the owner is alive holds the lock briefly, and an owner that was
# killed until the kernel has freed its memory.
_LOCK_TRIES = 100
_LOCK_PAUSE = 0.01

logger = logger_for(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs a run; times are in microseconds since 1970."""

    pid: int
    host: str
    machine: str  # equal for processes on one kernel
    since: int
    token: str  # distinguishes two claims of one process

    def __str__(self) -> str:
        this = ", this one" if self.pid == process_id() and self.machine == _machine() else ""
        return f"process {self.pid} on {self.host}{this}, since {local_time(self.since)}"


def local_time(microseconds: int) -> str:
    """Return a time as text, in the time zone of the reader."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(microseconds / 1e6))


def owner_of(stored: Any) -> Owner | None:
    """Decode the owner of a run; None if it has none."""
    if stored is None:
        return None
    try:
        return serde.decode(stored, Owner)
    except (WinkError, TypeError):  # damaged: the lock and the rows decide
        return None


def is_alive(path: Path, run_id: bytes, owner: Owner) -> bool | None:
    """Return whether the owner still runs its run; None if only its heartbeat could tell."""
    if owner.machine == _machine() and fcntl is not None:
        try:
            with lock_path(path, run_id).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False  # closing the file releases the lock
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            pass
    return None


class SqliteRunClaim(RunClaim):
    """A run that belongs to this process until `release`. Made by `SqliteRunStore.claim`."""

    def __init__(
        self, database: Database, run_id: str, stored_id: bytes, *, new: bool, clock: Clock
    ) -> None:
        self.new = new
        self._database, self._run_id, self._stored_id = database, run_id, stored_id
        self._clock = clock
        self.owner = Owner(
            process_id(), socket.gethostname(), _machine(), self._now(), uuid.uuid4().hex
        )
        self._path = lock_path(database.absolute, stored_id)
        self._ended = threading.Event()
        self._active: float | None = None  # seconds, those of earlier owners included
        self._counted_until = 0.0
        self._in_flight: InFlightFile | None = None
        self._file: int | None = self._lock()
        # How the last owner ended, and the samples that it left in flight.
        self._left = (b"", []) if self._file is None else read_in_flight(self._file)
        _claims.add(self)
        try:
            self._take()
            if self._file is not None:
                # Not cut: a stalled owner on another machine may have it mapped, and would crash.
                os.pwrite(self._file, bytes(os.fstat(self._file).st_size), 0)
        except BaseException:
            self.release()
            raise
        threading.Thread(target=self._beat, name="wink-run-heartbeat", daemon=True).start()

    def track(self, slots: int) -> InFlightFile | None:
        """Return where to note the samples in flight, at most `slots`, until the release.

        None without file locks, or if the disk is full.
        """
        with suppress(OSError):
            if self._file is not None and self._in_flight is None:
                self._in_flight = InFlightFile(self._file, slots)
        return self._in_flight

    @property
    def columns(self) -> tuple[bytes, int]:
        """The owner and its heartbeat, as they are stored."""
        return serde.encode(self.owner), self._now()

    def begin(self, cursor: sqlite3.Cursor) -> None:
        """Count time as active from now on, in addition to that of earlier owners."""
        ((active,),) = cursor.execute(
            "SELECT active FROM runs WHERE run_id = ?", (self._stored_id,)
        ).fetchall()
        self._active, self._counted_until = (active or 0) / 1e6, self._clock.monotonic()

    def check(self, cursor: sqlite3.Cursor) -> None:
        """Raise if the run is no longer that of this process; otherwise write a heartbeat.

        What is written after the release is that of a run which nobody has taken over.
        """
        if not self._ended.is_set():
            self._write_heartbeat(cursor)
        elif self._stored_owner(cursor) not in ([(None,)], [(serde.encode(self.owner),)]):
            raise self._lost(cursor)

    def _write_heartbeat(self, cursor: sqlite3.Cursor) -> None:
        if self._active is not None:
            now = self._clock.monotonic()
            self._active += min(now - self._counted_until, STALE_SECONDS)
            self._counted_until = now
        active = None if self._active is None else int(self._active * 1e6)
        # It changes even if this clock does not, since others watch whether it does.
        cursor.execute(
            "UPDATE runs SET heartbeat = max(?, coalesce(heartbeat, 0) + 1), "
            "active = iif(finished IS NULL, coalesce(?, active), active) "
            "WHERE run_id = ? AND owner = ?",
            (self._now(), active, self._stored_id, serde.encode(self.owner)),
        )
        if cursor.rowcount == 0:
            raise self._lost(cursor)

    def release(self) -> None:
        """Release the run. Releasing twice is fine."""
        if self._ended.is_set() or self.owner.pid != process_id():
            return
        self._ended.set()
        is_free, owner = False, serde.encode(self.owner)
        # A run that could not be finished keeps its owner, so that it is listed as interrupted.
        with suppress(WinkError), self._database.transaction() as cursor:
            is_free = self._stored_owner(cursor) in ([], [(None,)], [(owner,)])
            cursor.execute(
                "UPDATE runs SET owner = NULL, heartbeat = NULL "
                "WHERE run_id = ? AND owner = ? AND status <> 'running'",
                (self._stored_id, owner),
            )
        if self._file is not None:
            # Of machines with a common folder but locks of their own, another may use the file.
            if is_free:
                with suppress(OSError):  # such as a folder that was removed, which the run reports
                    self._path.unlink()
            self.close_file()

    def close_file(self) -> None:
        """Close the lock's file; the lock ends when every process has."""
        if self._in_flight is not None:  # it has a descriptor of its own
            self._in_flight.close()
            self._in_flight = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _take(self) -> None:
        """Make this process the owner, once the present one is known to be dead."""
        seen = self._take_unless_owned()
        if seen is None:
            return
        logger.warning(
            "run %r belongs to %s: watching its heartbeat for up to %g seconds, to take the run "
            "over if that process is dead",
            *(self._run_id, owner_of(seen[0]), STALE_SECONDS),
        )
        left = STALE_SECONDS
        while seen is not None:
            # Time in which this process stalls does not count: it may have locked the owner out.
            time.sleep(pause := min(_POLL_SECONDS, left))
            left -= pause
            before, seen = seen, self._take_unless_owned(dead=seen if left <= 0 else None)
            if seen not in (None, before):
                raise self._refused(owner_of(seen[0]))

    def _take_unless_owned(self, dead: Any = None) -> Any:
        """Return the owner and its heartbeat, unless there is none or it is known to be dead."""
        with self._database.transaction() as cursor:
            if self.new:
                self.check_new(cursor)
            query = "SELECT owner, heartbeat FROM runs WHERE run_id = ?"
            for seen in cursor.execute(query, (self._stored_id,)).fetchall():
                owner = owner_of(seen[0])
                if owner is not None and not self._locks_out(owner) and seen != dead:
                    return seen
                cursor.execute(
                    "UPDATE runs SET owner = ?, heartbeat = ? WHERE run_id = ?",
                    (*self.columns, self._stored_id),
                )
                count_deaths(cursor, self._stored_id, *self._left)
        return None

    def _locks_out(self, owner: Owner) -> bool:
        """Return whether our lock proves that the owner is dead."""
        return self._file is not None and owner.machine == self.owner.machine

    def _lock(self) -> int | None:
        """Return the open file that holds the lock; None without file locks."""
        if fcntl is None:
            return None
        path = self._path
        for _ in range(_LOCK_TRIES):
            try:
                file = open_private(path)
            except OSError as error:
                raise StoreError(
                    f"cannot create a lock next to the run store: {error} - give this user write "
                    "permission there"
                ) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file), path.stat()):
                    return file
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE)
            except FileNotFoundError:  # the owner released it and deleted the file
                pass
            except OSError:  # a file system without locks
                os.close(file)
                return None
            os.close(file)
        owners = self._database.read("SELECT owner FROM runs WHERE run_id = ?", (self._stored_id,))
        raise self._refused(owner_of(owners[0][0]) if owners else None)

    def _refused(self, owner: Owner | None) -> UsageError:
        name = "another process, which has just begun it" if owner is None else str(owner)
        return UsageError(
            f"expected a run that no process is running, got {self._run_id!r}, which belongs to "
            f"{name} - wait for it to end, or stop it, then resume"
        )

    def check_new(self, cursor: sqlite3.Cursor) -> None:
        """Raise if the run is stored: the rows of two runs would be mixed."""
        if cursor.execute("SELECT 1 FROM runs WHERE run_id = ?", (self._stored_id,)).fetchall():
            raise UsageError(
                f"expected the id of a new run, got {self._run_id!r}, which is stored - "
                f"continue it with resume={self._run_id!r}, or choose another"
            )

    def _stored_owner(self, cursor: sqlite3.Cursor) -> list[Any]:
        query = "SELECT owner FROM runs WHERE run_id = ?"
        return cursor.execute(query, (self._stored_id,)).fetchall()

    def _lost(self, cursor: sqlite3.Cursor) -> StoreError:
        rows = self._stored_owner(cursor)
        if not rows:
            return run_removed(self._run_id)
        owner, why = owner_of(rows[0][0]), ""
        if self._ended.is_set():
            why = ", after this process had released it"
        elif owner is not None and self._locks_out(owner):
            why = ", because the lock file of this process was removed or closed"
        elif owner is not None:
            why = f", because it saw no heartbeat of this process for {STALE_SECONDS:g} seconds"
        return StoreError(
            f"expected to own the run {self._run_id!r}, but {owner or 'another process'} took it "
            f"over{why} - nothing more is stored here: stop this process, the other one continues "
            "the run"
        )

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1e6)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            with suppress(StoreError):  # such as a full disk, which the next row reports
                try:
                    with self._database.transaction() as cursor:
                        self._write_heartbeat(cursor)
                except UsageError:  # the store was closed
                    return


def count_deaths(
    cursor: sqlite3.Cursor, run_id: bytes, how: bytes, running: Sequence[tuple[bytes, int]]
) -> None:
    """Count one more death for each of the samples that were in flight."""
    cursor.executemany(
        "INSERT INTO deaths SELECT id, ?, ?, 1, ?, ? FROM runs WHERE run_id = ? "
        "ON CONFLICT (run, sample, epoch) DO UPDATE SET "
        "count = count + 1, alone = alone + excluded.alone, how = excluded.how",
        [(*sample, int(len(running) == 1), how, run_id) for sample in running],
    )


def read_deaths(database: Database, run_key: int) -> dict[tuple[bytes, int], Deaths]:
    """Return the deaths of a run by `noted_id` and epoch."""
    query = "SELECT sample, epoch, count, alone, how FROM deaths WHERE run = ?"
    with database.corruption_errors("the deaths of a run"):
        return {
            (sample, epoch): Deaths(count, alone, how.decode())
            for sample, epoch, count, alone, how in database.read(query, (run_key,))
        }


_claims: WeakSet[SqliteRunClaim] = WeakSet()


def _after_fork_in_child() -> None:
    # A child that outlives its parent would otherwise keep the lock.
    for claim in list(_claims):
        claim.close_file()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def lock_path(store: Path, run_id: bytes) -> Path:
    """Return the file with the lock of a run, and its samples in flight."""
    store = Path(os.path.realpath(store))
    return store.with_name(f"{store.name}-{blake2b(run_id, digest_size=8).hexdigest()}.lock")


def run_removed(run_id: str) -> StoreError:
    """Return the error for rows of a run that is not in the store any more."""
    return StoreError(
        f"expected the run {run_id!r} in the store, found none - it was removed while its results "
        "were being written, and they are not stored; to have them, run it again"
    )


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return an id of the running kernel; containers on one kernel share its locks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode():x}"
