"""A mailbox in memory, for the threads and tasks of one process. Bodies are not copied."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import anyio

from ....clock import SYSTEM_CLOCK, Clock
from ....errors import MailboxFullError, MailboxResolutionError
from ....internal.typevars import BodyT, ReplyT
from ..core.envelope import body_of, unpack
from ..core.lanes import Lane
from ..core.mailbox import QueueMailbox
from ..core.resolvers import CompositeResolver, MailboxResolver
from ..core.types import Delivery, Mailbox, OutboundMessage

T = TypeVar("T")

_FOREVER = float("inf")
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class _Entry:
    """A message in the queue: leased by `handle` until `until`, or waiting without a handle."""

    message: OutboundMessage
    enqueued: float
    count: int = 0
    handle: str = ""
    until: float = 0.0


@dataclass(slots=True, eq=False)
class _LaneQueue:
    """The queued messages of one group and priority, in order."""

    key: Lane
    entries: deque[_Entry] = field(default_factory=deque)


class MemoryQueue:
    """Messages in lanes, leases in a heap; the next `take` finds the leases that have ended.

    The lanes of a priority are a ring that turns with each message, so that they take turns.

    Several mailbox objects may share one queue.
    """

    blocking = False
    batch = 1000
    can_uncount_delivery = True
    has_lanes = True

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.clock = clock
        self.family: dict[str, MemoryQueue] = {name: self}  # queues that find each other by name
        self._changed = threading.Condition()
        self._lanes: dict[Lane, _LaneQueue] = {}  # those that are not empty
        self._rings: dict[int, deque[_LaneQueue]] = {}  # the same, by priority
        self._cancelled: set[str] = set()
        self._entries: dict[str, _Entry] = {}  # by id
        self._leases: list[tuple[float, list[str]]] = []  # a heap: when to check which handles
        self._noted = 0  # handles in the heap; many may be outdated
        self._deliveries = 0
        self._listeners: list[Callable[[], object]] = []

    def sibling(self, name: str) -> MemoryQueue:
        """Return the queue of that name in this family."""
        if name not in self.family:
            queue = MemoryQueue(name, self.clock)
            queue.family = self.family
            self.family.setdefault(name, queue)
        return self.family[name]

    def put(self, messages: Sequence[OutboundMessage], max_size: int | None) -> None:
        with self._changed:
            entries = self._entries
            new: dict[str, OutboundMessage] = {}
            for message in messages:
                if message.id not in entries and message.group not in self._cancelled:
                    new.setdefault(message.id, message)
            if new and max_size is not None and len(entries) + len(new) > max_size:
                raise MailboxFullError(
                    f"expected room for {len(new)} more in the mailbox {self.name!r}, "
                    f"got {len(entries)} of {max_size} - receive some, or raise `max_size`"
                )
            now = self.clock.now().timestamp()
            for id, message in new.items():
                entries[id] = entry = _Entry(message, now)
                self._enqueue(entry)
            self.notify()

    def _enqueue(self, entry: _Entry) -> None:
        _, _, _, group, priority = entry.message
        key = group, priority
        lane = self._lanes.get(key)  # type: ignore[call-overload]  # a tuple is faster to make
        if lane is None:
            lane = self._lanes[Lane(*key)] = _LaneQueue(Lane(*key))
            self._rings.setdefault(priority, deque()).append(lane)
        lane.entries.append(entry)

    def _dequeue(self) -> _Entry:
        """Return the next message of the first lane of the highest priority; turn to the next."""
        ring = self._rings[max(self._rings)]
        lane = ring[0]
        entry = lane.entries.popleft()
        if not lane.entries:
            self._remove_lane(lane)
        elif len(ring) > 1:
            ring.rotate(-1)
        return entry

    def _remove_lane(self, lane: _LaneQueue) -> None:
        del self._lanes[lane.key]
        ring = self._rings[lane.key.priority]
        ring.remove(lane)  # mostly the first one
        if not ring:
            del self._rings[lane.key.priority]

    def take(
        self, count: int, lease: float, wait: float, stop: Callable[[], bool] = lambda: False
    ) -> list[Delivery]:
        """Take as in `Queue`; a wait ends, or does not begin, if `stop` is true after `notify`."""
        with self._changed:
            taken = self._take(count, lease)
            if not taken and wait > 0 and not stop():
                self._changed.wait(min(wait, self.until_next(), threading.TIMEOUT_MAX))
                if not stop():
                    taken = self._take(count, lease)
            return taken

    def _take(self, count: int, lease: float) -> list[Delivery]:
        now = self.clock.monotonic()
        if self._leases:
            self._requeue_ended(now)
        taken: list[Delivery] = []
        lanes, until, number = self._lanes, now + lease, self._deliveries
        while lanes and len(taken) < count:
            entry = self._dequeue()
            id, content, reply_to, _, _ = entry.message
            number += 1
            entry.count = times = entry.count + 1
            entry.handle = handle = f"{number}:{id}"
            entry.until = until
            taken.append(Delivery(id, content, handle, times, entry.enqueued, reply_to))
        self._deliveries = number
        if taken:
            self._note(until, [delivery.handle for delivery in taken])
            if self._noted > 2 * len(self._entries) + self.batch:
                self._forget_ended()
        return taken

    def _note(self, until: float, handles: list[str]) -> None:
        heapq.heappush(self._leases, (until, handles))
        self._noted += len(handles)

    def _forget_ended(self) -> None:
        """Drop the handles of acknowledged messages, which would stay until their leases end."""
        leased = [entry for entry in self._entries.values() if entry.handle]
        self._leases = [(entry.until, [entry.handle]) for entry in leased]
        heapq.heapify(self._leases)
        self._noted = len(leased)

    def _requeue_ended(self, now: float) -> None:
        """Queue messages again whose lease has ended and was not extended."""
        while self._leases and self._leases[0][0] <= now:
            _, handles = heapq.heappop(self._leases)
            self._noted -= len(handles)
            for handle in handles:
                entry = self._entries.get(handle.partition(":")[2])
                if entry is None or entry.handle != handle:
                    continue
                if entry.until > now:
                    self._note(entry.until, [handle])
                else:
                    self._requeue(entry)

    def _requeue(self, entry: _Entry) -> None:
        entry.handle = ""
        self._enqueue(entry)

    def until_next(self) -> float:
        """Return the seconds until a lease may end; infinity if there is none."""
        return max(0.0, self._leases[0][0] - self.clock.monotonic()) if self._leases else _FOREVER

    def remove(self, handles: Sequence[str]) -> list[bool]:
        return self._each(handles, lambda entry: self._entries.pop(entry.message.id))

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        until = self.clock.monotonic() + delay

        def release(entry: _Entry) -> None:
            entry.count -= untried
            if delay > 0:
                self._deliveries += 1
                entry.handle = f"{self._deliveries}:{entry.message.id}"  # no receiver has it
                entry.until = until
                self._note(until, [entry.handle])
            else:
                self._requeue(entry)

        done = self._each(handles, release)
        self.wake()
        return done

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        until = self.clock.monotonic() + seconds

        def extend(entry: _Entry) -> None:
            entry.until = max(entry.until, until)

        return self._each(handles, extend)

    def _each(self, handles: Sequence[str], change: Callable[[_Entry], object]) -> list[bool]:
        """Change each entry whose lease is valid; return False for the others."""
        done = []
        with self._changed:
            now = self.clock.monotonic()
            for handle in handles:
                entry = self._entries.get(handle.partition(":")[2])
                held = entry is not None and entry.handle == handle and entry.until > now
                if held:
                    change(cast(_Entry, entry))
                done.append(held)
        return done

    def count(self) -> int:
        return len(self._entries)

    def purge(self) -> int:
        with self._changed:
            count = len(self._entries)
            self._entries.clear()
            self._lanes.clear()
            self._rings.clear()
            self._leases.clear()
            self._noted = 0
            return count

    def cancel(self, group: str) -> int:
        with self._changed:
            self._cancelled.add(group)
            for lane in [each for key, each in self._lanes.items() if key.group == group]:
                self._remove_lane(lane)
            gone = [id for id, each in self._entries.items() if each.message.group == group]
            for id in gone:
                del self._entries[id]
            return len(gone)

    def cancelled(self, groups: Collection[str]) -> set[str]:
        return self._cancelled.intersection(groups)

    def wake(self) -> None:
        with self._changed:
            self.notify()

    def close(self) -> None:
        """Do nothing: a queue in memory holds no resources."""

    # ── listeners ───────────────────────────────────────────────────────────────────────────────

    def listen(self, listener: Callable[[], object]) -> None:
        """Call the listener, from any thread, when a message may have arrived."""
        with self._changed:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], object]) -> None:
        with self._changed:
            self._listeners.remove(listener)

    def notify(self) -> None:
        self._changed.notify_all()
        for listener in self._listeners:
            listener()


class InMemoryMailbox(QueueMailbox[T, ReplyT]):
    """Messages between the threads and tasks of one process, gone when the process ends.

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
        if ephemeral:  # not in the family, so it is freed with the object
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
        taken = self.queue.take(count, lease, 0)
        if taken or wait <= 0:
            return taken
        changed, call_soon = anyio.Event(), _call_soon_threadsafe()

        def listener() -> None:
            call_soon(changed.set)

        self.queue.listen(listener)
        try:
            taken = self.queue.take(count, lease, 0)  # it may have arrived before `listen`
            if not taken and not self._stopped():
                with anyio.move_on_after(min(wait, self.queue.until_next())):
                    await changed.wait()
                if not self._stopped():
                    taken = self.queue.take(count, lease, 0)
        finally:
            self.queue.unlisten(listener)
        return taken

    def _write(self, body: T, headers: Mapping[str, str] | None) -> Any:
        return body_of(body), headers or _NO_HEADERS

    def _read(self, content: Any) -> tuple[Any, Mapping[str, str]]:
        if isinstance(content, bytes):  # copied from another back-end
            return unpack(content)
        return cast(tuple[Any, Mapping[str, str]], content)

    def _address(self, reply_to: Mailbox[Any] | str | None) -> Any:
        return reply_to

    def _own_resolver(self) -> MailboxResolver:
        return CompositeResolver(factory=_Family(self.queue))


@dataclass(frozen=True, slots=True)
class _Family:
    """Returns existing mailboxes only: a new one in memory would have no receiver."""

    queue: MemoryQueue

    def create(self, identifier: str) -> Mailbox[Any]:
        if identifier not in self.queue.family:
            raise MailboxResolutionError(
                f"expected the name of a mailbox next to {self.queue.name!r}, got {identifier!r}",
                identifier,
            )
        return InMemoryMailbox(queue=self.queue.family[identifier])


class InMemoryMailboxFactory(Generic[BodyT]):
    """Creates mailboxes in memory, the same one for the same address."""

    def __init__(self, registry: dict[str, Mailbox[Any]] | None = None) -> None:
        self.registry = {} if registry is None else registry

    def create(self, identifier: str) -> Mailbox[Any]:
        """Return the mailbox of this name."""
        return self.registry.setdefault(identifier, InMemoryMailbox(identifier))


def _call_soon_threadsafe() -> Callable[[Callable[[], object]], object]:
    """Return the function by which any thread schedules a call on this event loop."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        token: Any = trio.lowlevel.current_trio_token()
        return cast(Callable[[Callable[[], object]], object], token.run_sync_soon)
