"""A mailbox in a file, for the processes of one machine. It needs no server.

What was sent survives the death of any process; a loss of power may take the last messages. Many
queues share a file, which lies on a local disk: the locks of network file systems are not enough.

A receiver that waits is told at once by senders in its own process. Those in others it notices by
looking every 10 to 50 milliseconds whether the file changed, which reads a few bytes.

Time is the machine's wall clock, the one that its processes share. Where it is set back, a lease
that would now last longer than any may is cut; where it is set forward, leases end early. Either
way, a message may come twice, and is not lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import (
    MailboxError,
    MailboxFullError,
    MailboxResolutionError,
    UsageError,
    shown,
)
from ._mailbox import QueueMailbox
from ._resolvers import CompositeResolver, MailboxResolver
from ._sqlite_file import MailFile, mail_file
from ._types import MAX_VISIBILITY_TIMEOUT, Delivery, Letter

__all__ = ["SqliteMailbox", "SqliteMailboxFactory", "SqliteQueue"]

T = TypeVar("T")

DEFAULT_PATH = ".wink/mail.db"
REPLIES_KEPT = 7 * 24 * 3600.0  # seconds for which an answer waits for whoever asked

_LOOKS = (0.01, 0.05)  # seconds between two looks for other processes: at first, and at last
_LONGEST = MAX_VISIBILITY_TIMEOUT * 1_000_000
_RETURNED = 1000  # letters whose lease ended that one call brings back

_LAST_PLACE = "SELECT coalesce(max(place) + 0, 0) FROM letters WHERE queue = ? AND due = 0"
_PUT = """INSERT INTO letters (queue, id, place, enqueued, kept_until, reply_to, content)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, id) DO NOTHING"""
_COUNT = "SELECT count(*) FROM letters WHERE queue = ?"
_LOOK = """SELECT CAST((SELECT min(due) FROM letters WHERE queue = ?) AS INTEGER),
    CAST((SELECT max(due) FROM letters WHERE queue = ?) AS INTEGER)"""
_SHORTEN = "UPDATE letters SET due = ? WHERE queue = ? AND due > ?"
_ENDED = f"""SELECT number FROM letters WHERE queue = ? AND due > 0 AND due <= ?
    ORDER BY due, number LIMIT {_RETURNED}"""
_BRING_BACK = "UPDATE letters SET due = 0, held = 0, place = ? WHERE number = ?"
# The casts: whatever damage made of a value, it is delivered.
_NEXT = """SELECT number, CAST(id AS BLOB), coalesce(CAST(content AS BLOB), x''),
    coalesce(CAST(times AS INTEGER), 0) + 1, coalesce(CAST(enqueued AS INTEGER), 0),
    CAST(reply_to AS BLOB), coalesce(CAST(untried AS INTEGER), 0)
    FROM letters WHERE queue = ? AND due = 0 ORDER BY place LIMIT ?"""
_LEASE = "UPDATE letters SET due = ?, held = 1, times = ? WHERE number = ?"

_HELD = "WHERE number = ? AND times = ? AND queue = ? AND held = 1 AND due > ?"
_REMOVE = f"DELETE FROM letters {_HELD}"
_RELEASE = f"""UPDATE letters SET held = 0, due = ?, untried = untried + ?,
    place = ({_LAST_PLACE}) + 1 {_HELD}"""
_EXTEND = f"UPDATE letters SET due = max(due, ?) {_HELD}"


class SqliteQueue:
    """Letters in a table. What ran out is found by whoever takes next.

    What is sent through a queue with a `ttl` goes after so many seconds, taken or not.
    """

    waits = True
    batch = 1000
    uncounts = True

    def __init__(
        self, name: str, path: Path, *, ttl: float | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.name = name
        self._file: MailFile | None = mail_file(path)
        self.path = self._file.path  # the same one wherever the process goes
        self.clock = clock
        self._key = _bytes(str(name))
        self._ttl = ttl
        self._woken = self._heard = 0  # how often it was woken, and how much of that ended a wait
        # Where the file cannot be opened, this says so.
        if self._file.read("SELECT 1 FROM letters WHERE kept_until <= ? LIMIT 1", (self._now(),)):
            with self._file.transaction() as cursor:
                cursor.execute("DELETE FROM letters WHERE kept_until <= ?", (self._now(),))

    def put(self, letters: Sequence[Letter], max_size: int | None) -> None:
        file = self._opened()
        now = self._now()
        kept_until = None if self._ttl is None else now + _microseconds(self._ttl)
        with file.transaction() as cursor:
            ((place,),) = cursor.execute(_LAST_PLACE, (self._key,))
            rows = [
                (
                    *(self._key, _bytes(letter.id), place + index, now, kept_until),
                    *(letter.reply_to and _bytes(letter.reply_to), letter.content),
                )
                for index, letter in enumerate(letters, 1)
            ]
            new = cursor.executemany(_PUT, rows).rowcount
            if max_size is not None and new > 0:
                ((count,),) = cursor.execute(_COUNT, (self._key,))
                if count > max_size:
                    raise MailboxFullError(
                        f"expected room for {new} more in the mailbox {self.name!r}, got "
                        f"{count - new} of {max_size} - receive some, or raise `max_size`"
                    )
        file.ring()

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        end = time.monotonic() + wait
        heard = self._heard
        while (file := self._file) is not None:
            # Before the look, or one that comes between is missed.
            changes, version = file.changes, file.version() if wait > 0 else 0
            found, due = self._take(file, count, lease)
            if found or not self._rest(file, changes, version, due, heard, end):
                return found
        return []

    def _take(self, file: MailFile, count: int, lease: float) -> tuple[list[Delivery], int]:
        """What is there; and where that is nothing, when there may be something."""
        now = self._now()
        ((first, last),) = file.read(_LOOK, (self._key, self._key))
        if first is None:
            return [], now + _LONGEST
        if first > now and last <= now + _LONGEST:
            return [], first
        with file.transaction() as cursor:
            now = self._now()  # again: others may have had the file for long
            cursor.execute(_SHORTEN, (now + _LONGEST, self._key, now + _LONGEST))
            if ended := cursor.execute(_ENDED, (self._key, now)).fetchall():
                ((place,),) = cursor.execute(_LAST_PLACE, (self._key,))
                back = [(place + index, number) for index, (number,) in enumerate(ended, 1)]
                cursor.executemany(_BRING_BACK, back)
            rows = cursor.execute(_NEXT, (self._key, count)).fetchall()
            until = now + _microseconds(lease)
            cursor.executemany(_LEASE, [(until, row[3], row[0]) for row in rows])
        return [_delivery(*row) for row in rows], now

    def _rest(
        self, file: MailFile, changes: int, version: int, due: int, heard: int, end: float
    ) -> bool:
        """Wait until something may have come; False where the time is up, or `wake` ended it."""
        pause, longest = _LOOKS
        while (left := end - time.monotonic()) > 0:
            if self._woken != heard:
                self._heard = self._woken
                return False
            file.rest(changes, min(left, pause))
            if file.changes != changes or file.version() != version or self._now() >= due:
                return True
            pause = min(pause * 1.5, longest)
        return False

    def remove(self, handles: Sequence[str]) -> list[bool]:
        return self._by_handle(_REMOVE, handles, lambda now: ())

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        later = _microseconds(delay)
        done = self._by_handle(
            _RELEASE, handles, lambda now: (now + later if later else 0, untried, self._key)
        )
        self._opened().ring()
        return done

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        return self._by_handle(_EXTEND, handles, lambda now: (now + _microseconds(seconds),))

    def _by_handle(
        self, query: str, handles: Sequence[str], values: Callable[[int], tuple[Any, ...]]
    ) -> list[bool]:
        """Do it to each that is held; one that is named twice is meant once."""
        done = dict.fromkeys(handles, False)
        with self._opened().transaction() as cursor:
            now = self._now()
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

    def wake(self) -> None:
        self._woken += 1
        if (file := self._file) is not None:
            file.ring()

    def close(self) -> None:
        self.wake()
        self._file = None

    def _opened(self) -> MailFile:
        """The file; for messages that are ended after `close`, for that long."""
        return self._file or mail_file(self.path)

    def _now(self) -> int:
        return _microseconds(self.clock.now().timestamp())


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _bytes(text: str) -> bytes:
    """SQLite's own text has no room for a lone surrogate, and ids may hold one."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # damaged
        return data.decode("utf-8", "backslashreplace")


def _delivery(
    number: int,
    id: bytes,
    content: bytes,
    times: int,
    enqueued: int,
    reply_to: bytes | None,
    untried: int,
) -> Delivery:
    address = None if reply_to is None else _text(reply_to)
    tried = times - untried
    return Delivery(_text(id), content, f"{number}.{times}", tried, enqueued / 1e6, address)


def _parsed(handle: str) -> tuple[int, int] | None:
    number, _, times = handle.partition(".")
    if number.isdecimal() and times.isdecimal() and len(number) < 19 and len(times) < 19:
        return int(number), int(times)
    return None


class SqliteMailbox(QueueMailbox[T]):
    """Messages in a file, between the processes of one machine: no server, nothing to install.

        requests = SqliteMailbox("requests", "mail.db")

    Whoever opens the same file under the same name has the same mailbox. With a `ttl`, what is sent
    through this object goes after so many seconds, also where nobody has read it.
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
                f"expected the path of a file for the mailbox, got {shown(path)} - in memory, "
                "use `InMemoryMailbox`"
            )
        super().__init__(
            SqliteQueue(name, Path(path), ttl=ttl, clock=clock),
            body_type=body_type,
            max_size=max_size,
            reply_resolver=reply_resolver,
        )
        self._ephemeral = False

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> SqliteMailbox[Any]:
        ttl = REPLIES_KEPT if ephemeral else None
        queue = self.queue
        made: SqliteMailbox[Any] = SqliteMailbox(
            name, queue.path, body_type, ttl=ttl, clock=queue.clock
        )
        made._ephemeral = ephemeral
        return made

    def close(self) -> None:
        if self._ephemeral and not self.closed:
            with suppress(MailboxError):  # then what is left goes in time
                self.purge()
        super().close()

    def _own_resolver(self) -> MailboxResolver:
        factory = SqliteMailboxFactory(self.queue.path, clock=self.queue.clock)
        return CompositeResolver(factory=factory)


class SqliteMailboxFactory:
    """Makes mailboxes in one file, to reply to: an address is a name there.

    What waits unread for `ttl` seconds goes, since whoever asked may be gone; None keeps it.
    """

    def __init__(
        self,
        path: Path | str = DEFAULT_PATH,
        *,
        body_type: Any = None,
        ttl: float | None = REPLIES_KEPT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._path = path
        self._options: dict[str, Any] = {"body_type": body_type, "ttl": ttl, "clock": clock}

    def create(self, identifier: str) -> SqliteMailbox[Any]:
        """The mailbox of this name."""
        try:
            return SqliteMailbox(identifier, self._path, **self._options)
        except UsageError as error:  # an address in a message is data, not misuse
            raise MailboxResolutionError(str(error), identifier) from None
