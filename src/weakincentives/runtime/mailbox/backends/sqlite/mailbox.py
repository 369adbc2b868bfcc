"""A mailbox in a file, for the processes of one machine. It needs no server.

Messages survive the crash of any process; a power failure may lose the last ones. Many queues share
a file, which must be on a local disk: the locks of network file systems are not reliable.

Senders in the same process wake a waiting receiver at once. It notices those in other processes by
checking every 10 to 50 milliseconds whether the file has changed, which reads a few bytes.

Time is the machine's wall clock, which all its processes share. The file stores the latest time
that was seen, about every second while there are leases: if the clock is set back, leases continue
from there. If it is set forward, they end early: a message may be delivered twice, and is not lost.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count as counted
from pathlib import Path
from typing import Any, Generic, TypeVar

from .....clock import SYSTEM_CLOCK, Clock
from .....errors import MailboxFullError, UsageError, short_repr
from .....internal.typevars import BodyT, ReplyT
from ...core.lanes import CANCELLED_SECONDS
from ...core.mailbox import QueueMailbox
from ...core.resolvers import CompositeResolver, MailboxResolver
from ...core.types import MAX_VISIBILITY_TIMEOUT, Delivery, OutboundMessage
from .file import MailFile, mail_file

T = TypeVar("T")

DEFAULT_PATH = ".wink/mail.db"
REPLY_TTL_SECONDS = 7 * 24 * 3600.0

_MIN_POLL, _MAX_POLL = 0.01, 0.05  # seconds between two checks for other processes
_MAX_LEASE = MAX_VISIBILITY_TIMEOUT * 1_000_000  # microseconds
_MAX_REQUEUED = 1000  # messages whose lease has ended, per call
_NOTE_TIME_EVERY = 1_000_000  # microseconds, while there are leases

# Start-time fair queueing: a message gets the place after the last one of its lane, but no earlier
# one than the next to be delivered. So the lanes of a priority take turns by one order of places.
_END_OF_LANE = """SELECT max(
    coalesce((SELECT max(place) + 1 FROM letters AS l
        WHERE l.queue = {queue} AND l.lane = {lane} AND l.priority = {priority}), 0),
    coalesce(
        (SELECT min(place) + 0 FROM letters AS l
            WHERE l.queue = {queue} AND l.due = 0 AND l.priority = {priority}),
        (SELECT max(place) + 0 FROM letters AS l
            WHERE l.queue = {queue} AND l.due > 0 AND l.priority = {priority}),
        0))"""
_NEXT_PLACE = _END_OF_LANE.format(queue="?1", lane="?2", priority="?3")
_OWN_NEXT_PLACE = _END_OF_LANE.format(
    queue="letters.queue", lane="letters.lane", priority="letters.priority"
)
_PUT = """INSERT INTO letters
    (queue, id, lane, priority, place, enqueued, kept_until, reply_to, content)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, id) DO NOTHING"""
_CANCEL = "INSERT OR REPLACE INTO cancelled VALUES (?, ?, ?)"
_CANCELLED = "SELECT 1 FROM cancelled WHERE queue = ? AND lane = ?"
_COUNT = "SELECT count(*) FROM letters WHERE queue = ?"
_TIME = """SELECT coalesce(CAST((SELECT shift FROM clock) AS INTEGER), 0),
    coalesce(CAST((SELECT seen FROM clock) AS INTEGER), 0)"""
_LOOK = f"""{_TIME}, CAST((SELECT min(due) FROM letters WHERE queue = ?) AS INTEGER),
    CAST((SELECT max(due) FROM letters WHERE queue = ?) AS INTEGER)"""
_NOTE_TIME = "UPDATE clock SET shift = ?, seen = ?"
_SHORTEN = "UPDATE letters SET due = ? WHERE queue = ? AND due > ?"
_ENDED = f"""SELECT number FROM letters WHERE queue = ? AND due > 0 AND due <= ?
    ORDER BY due, number LIMIT {_MAX_REQUEUED}"""
_REQUEUE = f"UPDATE letters SET due = 0, held = 0, place = ({_OWN_NEXT_PLACE}) WHERE number = ?"
# With casts, so that a damaged value is delivered anyway.
_NEXT = """SELECT number, CAST(id AS BLOB), coalesce(CAST(content AS BLOB), x''),
    coalesce(CAST(times AS INTEGER), 0) + 1, coalesce(CAST(enqueued AS INTEGER), 0),
    CAST(reply_to AS BLOB), coalesce(CAST(untried AS INTEGER), 0)
    FROM letters WHERE queue = ? AND due = 0 ORDER BY priority DESC, place, number LIMIT ?"""
_LEASE = "UPDATE letters SET due = ?, held = 1, times = ? WHERE number = ?"

_HELD = "WHERE number = ? AND times = ? AND queue = ? AND held = 1 AND due > ?"
_REMOVE = f"DELETE FROM letters {_HELD}"
_RELEASE = f"""UPDATE letters SET held = 0, due = ?, untried = untried + ?,
    place = ({_OWN_NEXT_PLACE}) {_HELD}"""
_EXTEND = f"UPDATE letters SET due = max(due, ?) {_HELD}"


class SqliteQueue:
    """Messages in a table; the next `take` finds the leases that have ended.

    Messages that are sent through a queue with a `ttl` expire after that many seconds.
    """

    blocking = True
    batch = 1000
    can_uncount_delivery = True
    has_lanes = True

    def __init__(
        self, name: str, path: Path, *, ttl: float | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.name = name
        self._file: MailFile | None = mail_file(path)
        self.path = self._file.path  # absolute: the process may change its directory
        self.clock = clock
        self._key = _bytes(str(name))
        self._ttl = ttl
        self._woken = self._handled_wakes = 0  # calls of `wake`, and how many of them ended a wait
        # If the file cannot be opened, this raises.
        if self._file.read("SELECT 1 FROM letters WHERE kept_until <= ? LIMIT 1", (self._now(),)):
            with self._file.transaction() as cursor:
                cursor.execute("DELETE FROM letters WHERE kept_until <= ?", (self._now(),))

    def put(self, messages: Sequence[OutboundMessage], max_size: int | None) -> None:
        file = self._opened()
        now = self._now()
        kept_until = None if self._ttl is None else now + _microseconds(self._ttl)
        with file.transaction() as cursor:
            places: dict[tuple[bytes, int], Iterator[int] | None] = {}  # None: is cancelled
            rows = []
            for message in messages:
                lane = _bytes(message.group), message.priority
                if lane not in places:
                    places[lane] = self._free_places(cursor, *lane)
                if (free := places[lane]) is not None:
                    rows.append(
                        (
                            *(self._key, _bytes(message.id), *lane, next(free), now, kept_until),
                            *(message.reply_to and _bytes(message.reply_to), message.content),
                        )
                    )
            new = cursor.executemany(_PUT, rows).rowcount
            if max_size is not None and new > 0:
                ((count,),) = cursor.execute(_COUNT, (self._key,))
                if count > max_size:
                    raise MailboxFullError(
                        f"expected room for {new} more in the mailbox {self.name!r}, got "
                        f"{count - new} of {max_size} - receive some, or raise `max_size`"
                    )
        file.notify()

    def _free_places(
        self, cursor: sqlite3.Cursor, lane: bytes, priority: int
    ) -> Iterator[int] | None:
        """Yield the places after the last message of a lane; None if its group is cancelled."""
        if cursor.execute(_CANCELLED, (self._key, lane)).fetchone():
            return None
        ((place,),) = cursor.execute(_NEXT_PLACE, (self._key, lane, priority))
        return counted(place)

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        end = time.monotonic() + wait
        handled = self._handled_wakes
        while (file := self._file) is not None:
            # Read before `_take`, or a message that arrives in between would be missed.
            changes, version = file.changes, file.version() if wait > 0 else 0
            taken, due = self._take(file, count, lease)
            if taken or not self._wait(file, changes, version, due, handled, end):
                return taken
        return []

    def _take(self, file: MailFile, count: int, lease: float) -> tuple[list[Delivery], int]:
        """Return what is queued; if nothing is, also the time of the next lease's end."""
        machine = self._now()
        ((shift, seen, first, last),) = file.read(_LOOK, (self._key, self._key))
        now = max(machine + shift, seen)
        if first is None:
            return [], machine + _MAX_LEASE
        noted = now == machine + shift < seen + _NOTE_TIME_EVERY
        if first > now and last <= now + _MAX_LEASE and noted:
            return [], machine + first - now
        with file.transaction() as cursor:
            machine = self._now()  # again: another process may have locked the file for long
            now = _lease_time(cursor, machine)
            cursor.execute(_SHORTEN, (now + _MAX_LEASE, self._key, now + _MAX_LEASE))
            cursor.executemany(_REQUEUE, cursor.execute(_ENDED, (self._key, now)).fetchall())
            rows = cursor.execute(_NEXT, (self._key, count)).fetchall()
            until = now + _microseconds(lease)
            cursor.executemany(_LEASE, [(until, row[3], row[0]) for row in rows])
        return [_delivery(row) for row in rows], machine

    def _wait(
        self, file: MailFile, changes: int, version: int, due: int, handled: int, end: float
    ) -> bool:
        """Wait until a message may have arrived; return False at the end, or after `wake`."""
        pause = _MIN_POLL
        next_check = time.monotonic() + _NOTE_TIME_EVERY / 1e6  # the clock may have been set back
        while (left := end - time.monotonic()) > 0:
            if self._woken != handled:
                self._handled_wakes = self._woken
                return False
            file.wait(changes, min(left, pause))
            if file.changes != changes or file.version() != version:
                return True
            if self._now() >= due or time.monotonic() >= next_check:
                return True
            pause = min(pause * 1.5, _MAX_POLL)
        return False

    def remove(self, handles: Sequence[str]) -> list[bool]:
        return self._by_handle(_REMOVE, handles, lambda now: ())

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        later = _microseconds(delay)
        done = self._by_handle(
            _RELEASE, handles, lambda now: (now + later if later else 0, untried)
        )
        self._opened().notify()
        return done

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        return self._by_handle(_EXTEND, handles, lambda now: (now + _microseconds(seconds),))

    def _by_handle(
        self, query: str, handles: Sequence[str], values: Callable[[int], tuple[Any, ...]]
    ) -> list[bool]:
        """Change each message that is held; a handle that occurs twice counts once."""
        done = dict.fromkeys(handles, False)
        with self._opened().transaction() as cursor:
            now = _lease_time(cursor, self._now())
            for handle in done:
                if (held := _parsed(handle)) is not None:
                    cursor.execute(query, (*values(now), *held, self._key, now))
                    done[handle] = cursor.rowcount == 1
        return [done[handle] for handle in handles]

    def count(self) -> int:
        return int(self._opened().read(_COUNT, (self._key,))[0][0])

    def purge(self) -> int:
        with self._opened().transaction() as cursor:
            return cursor.execute("DELETE FROM letters WHERE queue = ?", (self._key,)).rowcount

    def cancel(self, group: str) -> int:
        lane = self._key, _bytes(group)
        with self._opened().transaction() as cursor:
            cursor.execute("DELETE FROM cancelled WHERE until < ?", (self._now(),))
            cursor.execute(_CANCEL, (*lane, self._now() + _microseconds(CANCELLED_SECONDS)))
            delete = "DELETE FROM letters WHERE queue = ? AND lane = ?"
            return cursor.execute(delete, lane).rowcount

    def cancelled(self, groups: Collection[str]) -> set[str]:
        read = self._opened().read
        return {each for each in groups if read(_CANCELLED, (self._key, _bytes(each)))}

    def wake(self) -> None:
        self._woken += 1
        if (file := self._file) is not None:
            file.notify()

    def close(self) -> None:
        self.wake()
        self._file = None

    def _opened(self) -> MailFile:
        """Return the file; after `close`, open it again for messages that are still leased."""
        return self._file or mail_file(self.path)

    def _now(self) -> int:
        return _microseconds(self.clock.now().timestamp())


def _lease_time(cursor: sqlite3.Cursor, machine: int) -> int:
    """Return the time by which leases end, and note it: the machine's, unless that was set back."""
    ((shift, seen),) = cursor.execute(_TIME)
    now = int(max(machine + shift, seen))
    if now > machine + shift or now >= seen + _NOTE_TIME_EVERY:
        cursor.execute(_NOTE_TIME, (now - machine, now))
    return now


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _bytes(text: str) -> bytes:
    """Encode text: SQLite's own text cannot hold a lone surrogate, and an id may."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # damaged
        return data.decode("utf-8", "backslashreplace")


def _delivery(row: Sequence[Any]) -> Delivery:
    number, id, content, times, enqueued, reply_to, untried = row
    address = None if reply_to is None else _text(reply_to)
    tried = times - untried
    return Delivery(_text(id), content, f"{number}.{times}", tried, enqueued / 1e6, address)


def _parsed(handle: str) -> tuple[int, int] | None:
    number, _, times = handle.partition(".")
    if number.isdecimal() and times.isdecimal() and len(number) < 19 and len(times) < 19:
        return int(number), int(times)
    return None


class SqliteMailbox(QueueMailbox[T, ReplyT]):
    """Messages in a file, between the processes of one machine: no server, nothing to install.

        requests = SqliteMailbox("requests", "mail.db")

    The same file and name are the same mailbox, in every process. With a `ttl`, messages that are
    sent through this object expire after that many seconds.
    """

    queue: SqliteQueue

    def __init__(
        self,
        name: str = "default",
        path: Path | str = DEFAULT_PATH,
        body_type: Any = None,
        max_size: int | None = None,
        reply_resolver: MailboxResolver | None = None,
        *,
        ttl: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not isinstance(path, str | Path) or str(path) in ("", ".", ":memory:"):
            raise UsageError(
                f"expected the path of a file for the mailbox, got {short_repr(path)} - in memory, "
                "use `InMemoryMailbox`"
            )
        super().__init__(
            SqliteQueue(name, Path(path), ttl=ttl, clock=clock),
            body_type=body_type,
            max_size=max_size,
            reply_resolver=reply_resolver,
        )

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> SqliteMailbox[Any]:
        ttl = REPLY_TTL_SECONDS if ephemeral else None
        queue = self.queue
        mailbox: SqliteMailbox[Any] = SqliteMailbox(
            name, queue.path, body_type, ttl=ttl, clock=queue.clock
        )
        mailbox._ephemeral = ephemeral
        return mailbox

    def _own_resolver(self) -> MailboxResolver:
        factory = SqliteMailboxFactory(self.queue.path, clock=self.queue.clock)
        return CompositeResolver(factory=factory)


class SqliteMailboxFactory(Generic[BodyT]):
    """Creates mailboxes for replies in one file: an address is the name of a mailbox.

    Replies that are not received within `ttl` seconds expire; with None they are kept.
    """

    def __init__(
        self,
        path: Path | str = DEFAULT_PATH,
        *,
        body_type: Any = None,
        ttl: float | None = REPLY_TTL_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._path = path
        self._options: dict[str, Any] = {"body_type": body_type, "ttl": ttl, "clock": clock}

    def create(self, identifier: str) -> SqliteMailbox[Any]:
        """Return the mailbox of this name."""
        return SqliteMailbox(identifier, self._path, **self._options)
