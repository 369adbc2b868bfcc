"""A mailbox in memory, for the threads and tasks of one process. Bodies are not copied."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

import anyio

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import MailboxFullError, MailboxResolutionError
from ._envelope import unpack
from ._mailbox import QueueMailbox
from ._resolvers import CompositeResolver, MailboxResolver
from ._types import Delivery, Letter, Mailbox

__all__ = ["InMemoryMailbox", "InMemoryMailboxFactory", "MemoryQueue"]

T = TypeVar("T")

_FOREVER = float("inf")
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class _Kept:
    """A letter, and where it is: leased by `handle` until `until`, or waiting with none."""

    __slots__ = ("count", "enqueued", "handle", "letter", "until")

    def __init__(self, letter: Letter, enqueued: float) -> None:
        self.letter = letter
        self.enqueued = enqueued
        self.count = 0
        self.handle = ""
        self.until = 0.0


class MemoryQueue:
    """Letters in a deque, leases in a heap; what ran out is found by whoever takes next.

    Several mailbox objects may share one.
    """

    waits = False
    batch = 1000
    uncounts = True

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.clock = clock
        self.family: dict[str, MemoryQueue] = {name: self}  # those that know each other by name
        self._changed = threading.Condition()
        self._waiting: deque[_Kept] = deque()
        self._kept: dict[str, _Kept] = {}  # by id
        self._leases: list[tuple[float, list[str]]] = []  # a heap of when to look at which handles
        self._noted = 0  # handles in there; many may be out of date
        self._deliveries = 0
        self._listeners: list[Callable[[], object]] = []

    def sibling(self, name: str) -> MemoryQueue:
        """The queue of that name in this family."""
        if name not in self.family:
            made = MemoryQueue(name, self.clock)
            made.family = self.family
            return self.family.setdefault(name, made)
        return self.family[name]

    def put(self, letters: Sequence[Letter], max_size: int | None) -> None:
        with self._changed:
            kept = self._kept
            new: dict[str, Letter] = {}
            for letter in letters:
                if letter.id not in kept:
                    new.setdefault(letter.id, letter)
            if new and max_size is not None and len(kept) + len(new) > max_size:
                raise MailboxFullError(
                    f"expected room for {len(new)} more in the mailbox {self.name!r}, "
                    f"got {len(kept)} of {max_size} - receive some, or raise `max_size`"
                )
            now = self.clock.now().timestamp()
            for id, letter in new.items():
                kept[id] = one = _Kept(letter, now)
                self._waiting.append(one)
            self.tell()

    def take(
        self, count: int, lease: float, wait: float, stop: Callable[[], bool] = lambda: False
    ) -> list[Delivery]:
        """As in `Queue`; a wait ends, or does not begin, where `stop` says so after a `tell`."""
        with self._changed:
            found = self._take(count, lease)
            if not found and wait > 0 and not stop():
                self._changed.wait(min(wait, self.until_next(), threading.TIMEOUT_MAX))
                if not stop():
                    found = self._take(count, lease)
            return found

    def _take(self, count: int, lease: float) -> list[Delivery]:
        now = self.clock.monotonic()
        if self._leases:
            self._bring_back(now)
        taken: list[Delivery] = []
        waiting, until, number = self._waiting, now + lease, self._deliveries
        while waiting and len(taken) < count:
            kept = waiting.popleft()
            id, content, reply_to = kept.letter
            number += 1
            kept.count = times = kept.count + 1
            kept.handle = handle = f"{number}:{id}"
            kept.until = until
            taken.append(Delivery(id, content, handle, times, kept.enqueued, reply_to))
        self._deliveries = number
        if taken:
            self._note(until, [delivery.handle for delivery in taken])
            if self._noted > 2 * len(self._kept) + self.batch:
                self._forget_ended()
        return taken

    def _note(self, until: float, handles: list[str]) -> None:
        heapq.heappush(self._leases, (until, handles))
        self._noted += len(handles)

    def _forget_ended(self) -> None:
        """Drop handles of what was acknowledged, which would stay until their time."""
        out = [kept for kept in self._kept.values() if kept.handle]
        self._leases = [(kept.until, [kept.handle]) for kept in out]
        heapq.heapify(self._leases)
        self._noted = len(out)

    def _bring_back(self, now: float) -> None:
        """Let leases that ended wait again; those that were extended meanwhile stay."""
        while self._leases and self._leases[0][0] <= now:
            _, handles = heapq.heappop(self._leases)
            self._noted -= len(handles)
            for handle in handles:
                kept = self._kept.get(handle.partition(":")[2])
                if kept is None or kept.handle != handle:
                    continue
                if kept.until > now:
                    self._note(kept.until, [handle])
                else:
                    self._wait_again(kept)

    def _wait_again(self, kept: _Kept) -> None:
        kept.handle = ""
        self._waiting.append(kept)

    def until_next(self) -> float:
        """Seconds until a lease may end; infinite where none is out."""
        return max(0.0, self._leases[0][0] - self.clock.monotonic()) if self._leases else _FOREVER

    def remove(self, handles: Sequence[str]) -> list[bool]:
        return self._each(handles, lambda kept: self._kept.pop(kept.letter.id))

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        until = self.clock.monotonic() + delay

        def release(kept: _Kept) -> None:
            kept.count -= untried
            if delay > 0:
                self._deliveries += 1
                kept.handle = f"{self._deliveries}:{kept.letter.id}"  # which nobody is given
                kept.until = until
                self._note(until, [kept.handle])
            else:
                self._wait_again(kept)

        done = self._each(handles, release)
        self.wake()
        return done

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        until = self.clock.monotonic() + seconds

        def extend(kept: _Kept) -> None:
            kept.until = max(kept.until, until)

        return self._each(handles, extend)

    def _each(self, handles: Sequence[str], end: Callable[[_Kept], object]) -> list[bool]:
        """Do it to each whose lease lasts; False for the others."""
        done = []
        with self._changed:
            now = self.clock.monotonic()
            for handle in handles:
                kept = self._kept.get(handle.partition(":")[2])
                held = kept is not None and kept.handle == handle and kept.until > now
                if held:
                    end(cast(_Kept, kept))
                done.append(held)
        return done

    def count(self) -> int:
        return len(self._kept)

    def purge(self) -> int:
        with self._changed:
            gone = len(self._kept)
            self._kept.clear()
            self._waiting.clear()
            self._leases.clear()
            self._noted = 0
            return gone

    def wake(self) -> None:
        with self._changed:
            self.tell()

    def close(self) -> None:
        """There is nothing to let go of."""

    # ── who is told ─────────────────────────────────────────────────────────────────────────────

    def listen(self, listener: Callable[[], object]) -> None:
        """Call the listener, from whichever thread, when something may have come."""
        with self._changed:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], object]) -> None:
        with self._changed:
            self._listeners.remove(listener)

    def tell(self) -> None:
        self._changed.notify_all()
        for listener in self._listeners:
            listener()


class InMemoryMailbox(QueueMailbox[T]):
    """Messages between the threads and tasks of one process; they go with the process.

    >>> mailbox = InMemoryMailbox(name="greetings")
    >>> _ = mailbox.send("hello")
    >>> (message,) = mailbox.receive()
    >>> message.body
    'hello'
    >>> message.acknowledge()
    """

    queue: MemoryQueue

    def __init__(
        self,
        name: str = "default",
        *,
        max_size: int | None = None,
        reply_resolver: MailboxResolver | None = None,
        clock: Clock = SYSTEM_CLOCK,
        queue: MemoryQueue | None = None,
    ) -> None:
        super().__init__(
            queue if queue is not None else MemoryQueue(name, clock),
            max_size=max_size,
            reply_resolver=reply_resolver,
        )
        self._woken = False

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> InMemoryMailbox[Any]:
        if ephemeral:  # known to those who have the object, so nothing of it stays
            return InMemoryMailbox(name, clock=self.queue.clock)
        return InMemoryMailbox(queue=self.queue.sibling(name))

    def wake(self) -> None:
        self._woken = True
        super().wake()

    def _stopped(self) -> bool:
        woken, self._woken = self._woken, False
        return woken or self._closed

    def _take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        return self.queue.take(count, lease, wait, self._stopped)

    async def _take_async(self, count: int, lease: float, wait: float) -> list[Delivery]:
        found = self.queue.take(count, lease, 0)
        if found or wait <= 0:
            return found
        changed, soon = anyio.Event(), _soon()

        def listener() -> None:
            soon(changed.set)

        self.queue.listen(listener)
        try:
            found = self.queue.take(count, lease, 0)  # came before anybody listened
            if not found and not self._stopped():
                with anyio.move_on_after(min(wait, self.queue.until_next())):
                    await changed.wait()
                if not self._stopped():
                    found = self.queue.take(count, lease, 0)
        finally:
            self.queue.unlisten(listener)
        return found

    def _write(self, body: T, headers: Mapping[str, str] | None) -> Any:
        return body, headers or _NO_HEADERS

    def _read(self, content: Any) -> tuple[Any, Mapping[str, str]]:
        if isinstance(content, bytes):  # laid here as it lay elsewhere
            return unpack(content)
        return cast(tuple[Any, Mapping[str, str]], content)

    def _address(self, reply_to: Mailbox[Any] | str | None) -> Any:
        return reply_to

    def _own_resolver(self) -> MailboxResolver:
        return CompositeResolver(factory=_Family(self.queue))


class _Family:
    """Finds mailboxes that are there already: in memory, who makes one to send to is never read."""

    def __init__(self, queue: MemoryQueue) -> None:
        self._queue = queue

    def create(self, identifier: str) -> Mailbox[Any]:
        if identifier not in self._queue.family:
            raise MailboxResolutionError(
                f"expected the name of a mailbox beside {self._queue.name!r}, got {identifier!r}",
                identifier,
            )
        return InMemoryMailbox(queue=self._queue.family[identifier])


class InMemoryMailboxFactory:
    """Makes mailboxes in memory, the same one for the same address."""

    def __init__(self, registry: dict[str, Mailbox[Any]] | None = None) -> None:
        self.registry = {} if registry is None else registry

    def create(self, identifier: str) -> Mailbox[Any]:
        """The mailbox of this name."""
        return self.registry.setdefault(identifier, InMemoryMailbox(identifier))


def _soon() -> Callable[[Callable[[], object]], object]:
    """How any thread has something called on this event loop."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        token: Any = trio.lowlevel.current_trio_token()
        return cast(Callable[[Callable[[], object]], object], token.run_sync_soon)
