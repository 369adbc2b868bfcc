"""The faults of a simulation: which ones a seed enables, and the connections they act on.

Each seed enables some of the faults, each at a random rate (swarm testing): that finds bugs that
need two faults at once, and that a third would hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import anyio

from weakincentives.errors import MailboxConnectionError, StoreError
from weakincentives.runtime.mailbox import Delivery, MemoryQueue, OutboundMessage, QueueMailbox
from weakincentives.runtime.mailbox.core.resolvers import CompositeResolver

from .sim_loop import Process
from .sim_world import World

__all__ = ["FaultyQueue", "FaultyStore", "Plan", "SimMailbox"]

# Highest probability per call of a server.
CALL_FAULTS = {
    "request lost": 0.05,
    "reply lost": 0.05,
    "call repeated": 0.1,  # by a client library that got no reply
    "answer late": 0.05,
    "crash before": 0.02,
    "crash after": 0.02,
    "lease cut short": 0.1,  # the same message goes to a second receiver
    "delivered again": 0.1,  # after it was acknowledged, as SQS may
    "message lost": 0.05,  # replies and results only
}
# Shortest mean interval, in seconds.
TIMED_FAULTS = {
    "kill": 5.0,
    "pause": 10.0,
    "partition": 10.0,
    "clock forward": 20.0,
    "clock back": 20.0,
    "queue wiped": 10.0,
    "store away": 10.0,
    "graceful stop": 10.0,
}
# Invalid results: the probability that one is damaged (a flipped bit, or truncated), and the mean
# interval of forged ones, in seconds.
RESULT_FAULTS = {"result damaged": 0.1, "forged result": 10.0}
# Highest share of the samples.
SAMPLE_FAULTS = {
    "slow": 0.5,
    "raises": 0.2,
    "kills": 0.1,
    "odd": 0.1,
    "cancels": 0.2,  # its own task
    "stale": 0.2,  # likewise, but catches the cancellation and answers
    "stops": 0.1,  # its worker, as by a signal to its own process
    "hangs": 0.1,  # in a thread that never ends
}


@dataclass(frozen=True)
class Plan:
    """The parameters of a simulation, drawn from a seed."""

    rates: dict[str, float] = field(default_factory=dict)
    samples: int = 20
    epochs: int = 1
    eval_workers: int = 2
    main_workers: int = 0  # 0: the agent runs in the eval workers
    concurrency: int = 4
    lease: float = 30.0
    wait: float = 20.0  # for a message, in seconds
    whole: bool = False  # as on SQS: whole seconds, and every delivery counts
    extends: bool = True
    policy: int | None = None  # `max_delivery_count` of a `DLQPolicy`
    stores: bool = True  # the workers share an outcome store
    resubmits: bool = True  # the collector resubmits missing samples
    poison: int = 0
    trouble: float = 300.0  # seconds until all faults end
    mainloop_timeout: float = 200.0  # seconds
    other_runs: bool = False  # in the same queue, see `sim_cancel.py`

    @property
    def calm(self) -> bool:
        """Return whether nothing goes wrong, so that no sample may fail."""
        return self.extends and self.lease > 1 and self.rates.keys() <= {"slow"}

    @classmethod
    def of(cls, random: Random) -> Plan:
        """Draw a plan; some have no faults."""
        swarm = random.choice((0.0, 0.2, 0.5, 0.5, 0.8))
        rates = {
            name: highest * random.random() ** 2
            for name, highest in (CALL_FAULTS | SAMPLE_FAULTS).items()
            if random.random() < swarm
        }
        for name, shortest in TIMED_FAULTS.items():
            if random.random() < swarm:
                rates[name] = shortest * random.uniform(1, 10)
        # From another generator, so that old seeds without these faults mean what they did.
        extra = Random(repr(rates))
        if extra.random() < swarm / 2:
            rates["result damaged"] = RESULT_FAULTS["result damaged"] * extra.random()
            rates["forged result"] = RESULT_FAULTS["forged result"] * extra.uniform(1, 10)
        loses = rates.keys() & {"message lost", "queue wiped", "result damaged", "forged result"}
        return cls(
            rates,
            samples=random.randint(8, 30),
            epochs=random.choice((1, 1, 1, 2)),
            eval_workers=random.randint(1, 4),
            main_workers=random.choice((0, 0, 1, 3)),
            concurrency=random.choice((1, 3, 8)),
            lease=random.choice((1.0, 2.5, 10.0, 30.0, 60.0)),
            wait=random.choice((0.0, 1.0, 20.0, 100.0)),
            whole=random.random() < 0.2,
            extends=random.random() < 0.7,
            policy=random.choice((None, 1, 3, 5)),
            stores=random.random() < 0.6,
            resubmits=bool(loses) or random.random() < 0.5,
            poison=random.randint(1, 4) if random.random() < swarm else 0,
            trouble=random.uniform(30, 300),
            mainloop_timeout=random.choice((2.0, 60.0, 200.0, 1000.0)),
            other_runs=extra.random() < 0.5,
        )


class FaultyQueue:
    """The connection of one process to one queue of the broker."""

    blocking = True
    batch = 25

    def __init__(self, world: World, process: Process, queue: MemoryQueue) -> None:
        self.name = queue.name
        self._world = world
        self._process = process
        self._queue = queue
        self.can_uncount_delivery = self.has_lanes = not world.plan.whole
        self.refused: list[str] = []
        self._woken = False
        self._changed = anyio.Event()
        self._loses = "replies" in self.name or self.name == "results"

    def put(self, letters: Sequence[OutboundMessage], max_size: int | None) -> None:
        world = self._world

        def put() -> None:
            if not self._loses:
                self._queue.put(letters, max_size)
                return
            surviving = [each for each in letters if not world.strikes("message lost")]
            if self.name == "results":
                damaged = [each for each in surviving if world.strikes("result damaged")]
                surviving = [each for each in surviving if each not in damaged]
                for each in damaged:
                    world.inject_among_results(each.id, _damaged(each.content, world.random))
            self._queue.put(surviving, max_size)

        self._call("put", [letter.id for letter in letters], put)

    def take(self, count: int, lease: float, wait: float) -> Any:
        """Return an awaitable, which stands for blocking in a thread."""
        return self._take(count, lease, wait)

    async def _take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        world, queue = self._world, self._queue
        end, lease = world.loop.now + wait, self._seconds(lease)
        while True:
            deliveries: list[Delivery] = self._call("take", (), lambda: queue.take(count, lease, 0))
            for delivery in deliveries:
                world.delivered(self, delivery)
            if deliveries or self._woken or world.loop.now >= end:
                self._woken = False
                return deliveries
            self._changed = anyio.Event()
            listener = self._changed.set
            queue.listen(listener)
            try:
                seconds_left = min(end - world.loop.now, queue.until_next())
                with anyio.move_on_after(max(seconds_left, 0.001)):
                    await self._changed.wait()
            finally:
                queue.unlisten(listener)

    def remove(self, handles: Sequence[str]) -> list[bool]:
        done = self._call("remove", handles, lambda: self._queue.remove(handles))
        self._world.acknowledged(self, handles)
        return done

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        untried = untried and self.can_uncount_delivery
        release = partial(self._queue.release, handles, self._seconds(delay), untried=untried)
        return self._call("release", handles, release)

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        longer = self._seconds(seconds)
        done = self._call("extend", handles, lambda: self._queue.extend(handles, longer))
        self.refused += [handle for handle, ours in zip(handles, done, strict=True) if not ours]
        return done

    def count(self) -> int:
        return self._call("count", (), self._queue.count)

    def purge(self) -> int:
        return self._call("purge", (), self._queue.purge)

    def cancel(self, group: str) -> int:
        def cancel() -> int:
            if self.has_lanes:
                return self._queue.cancel(group)
            self._queue._cancelled.add(group)  # as on SQS: only noted, and still delivered
            return 0

        return self._call("cancel", [group], cancel)

    def cancelled(self, groups: Collection[str]) -> set[str]:
        return self._call("cancelled", sorted(groups), lambda: self._queue.cancelled(groups))

    def wake(self) -> None:
        self._woken = True
        self._changed.set()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    @property
    def process(self) -> Process:
        """Return the process at this end."""
        return self._process

    def _seconds(self, seconds: float) -> float:
        return math.ceil(seconds) if self._world.plan.whole else seconds

    def _call(self, what: str, about: Sequence[str], call: Callable[[], Any]) -> Any:
        return self._world.call_server(
            self._process, f"{self.name}.{what}", about, call, MailboxConnectionError
        )


def _damaged(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content))
    if random.random() < 0.5:
        return content[:at]
    return content[:at] + bytes([content[at] ^ (1 << random.randrange(8))]) + content[at + 1 :]


class SimMailbox(QueueMailbox[Any]):
    """A mailbox of one process on the simulated broker. Bodies are envelopes."""

    queue: FaultyQueue

    def __init__(self, world: World, process: Process, name: str, body_type: Any = None) -> None:
        super().__init__(FaultyQueue(world, process, world.queue(name)), body_type=body_type)
        self._world = world
        self._process = process

    async def run_blocking(self, call: Callable[[], Any]) -> Any:
        """Record a lost lease when the caller learns of it, not when the broker decides it."""
        refused: list[str] = []

        def noting() -> Any:
            self.queue.refused = refused
            return call()

        done = await super().run_blocking(noting)
        for handle in refused:
            self._world.refused(self.queue, handle)
        return done

    def sibling(self, name: str, body_type: Any = None, **more: Any) -> SimMailbox:
        return SimMailbox(self._world, self._process, name, body_type)

    def _own_resolver(self) -> CompositeResolver:
        return CompositeResolver(factory=self)

    def create(self, identifier: str) -> SimMailbox:
        """Return the mailbox at this address."""
        return self.sibling(identifier)


class FaultyStore:
    """The connection of one process to the outcome store that all workers share."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def find(self, key: str) -> bytes | None:
        return self._call("find", key, lambda: self._world.outcomes.get(key))

    def keep(self, key: str, value: bytes) -> bytes:
        return self._call("keep", key, lambda: self._world.outcomes.setdefault(key, value))

    def _call(self, what: str, key: str, call: Callable[[], Any]) -> Any:
        world = self._world
        if world.loop.now < world.store_unavailable_until:
            raise StoreError("expected a store to write to, got a full disk")
        return world.call_server(self._process, f"store.{what}", [key], call, StoreError)
