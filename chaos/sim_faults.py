"""What goes wrong in a simulation: which faults a seed turns on, and the wires they act on.

Each seed turns on some of the faults, each at a rate of its own: what only happens when two faults
meet, and no third hides it, is found that way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import anyio

from weakincentives.errors import MailboxConnectionError, StoreError
from weakincentives.runtime.mailbox import Delivery, Letter, MemoryQueue, QueueMailbox
from weakincentives.runtime.mailbox._resolvers import CompositeResolver

from .sim_loop import Process
from .sim_world import World

__all__ = ["FaultyQueue", "FaultyStore", "Plan", "SimMailbox"]

# How often at most, for every operation on a server.
ON_A_CALL = {
    "request lost": 0.05,
    "reply lost": 0.05,
    "call repeated": 0.1,  # by a client library that heard nothing
    "answer late": 0.05,
    "crash before": 0.02,
    "crash after": 0.02,
    "lease cut short": 0.1,  # the same message goes to a second receiver
    "delivered again": 0.1,  # after it was acknowledged, as SQS may
    "message lost": 0.05,  # of replies and results
}
# How many seconds apart at least, on average.
FROM_TIME_TO_TIME = {
    "kill": 5.0,
    "pause": 10.0,
    "partition": 10.0,
    "clock forward": 20.0,
    "clock back": 20.0,
    "queue wiped": 10.0,
    "store away": 10.0,
    "graceful stop": 10.0,
}
# What share of the samples at most.
IN_THE_WORK = {"slow": 0.5, "raises": 0.2, "kills": 0.1, "odd": 0.1}


@dataclass(frozen=True)
class Plan:
    """What a seed stands for."""

    rates: dict[str, float] = field(default_factory=dict)
    samples: int = 20
    epochs: int = 1
    eval_workers: int = 2
    main_workers: int = 0  # none: the agent runs in the eval workers
    concurrency: int = 4
    lease: float = 30.0
    wait: float = 20.0  # for a message; longer than a lease, or not at all
    whole: bool = False  # as on SQS: leases in whole seconds, and every delivery counts
    extends: bool = True
    policy: int | None = None  # `max_delivery_count` of a `DLQPolicy`
    stores: bool = True  # the workers share an outcome store
    resubmits: bool = True  # the collector sends again what is missing
    poison: int = 0
    trouble: float = 300.0  # seconds until all faults end
    patience: float = 200.0  # for a main loop

    @property
    def calm(self) -> bool:
        """True where nothing goes wrong, so that nothing need be given up."""
        return self.extends and self.lease > 1 and self.rates.keys() <= {"slow"}

    @classmethod
    def of(cls, random: Random) -> Plan:
        """One seed's plan; some are calm."""
        swarm = random.choice((0.0, 0.2, 0.5, 0.5, 0.8))
        rates = {
            name: most * random.random() ** 2
            for name, most in (ON_A_CALL | IN_THE_WORK).items()
            if random.random() < swarm
        }
        for name, least in FROM_TIME_TO_TIME.items():
            if random.random() < swarm:
                rates[name] = least * random.uniform(1, 10)
        loses = rates.keys() & {"message lost", "queue wiped"}
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
            patience=random.choice((2.0, 60.0, 200.0, 1000.0)),
        )


class FaultyQueue:
    """One process's wire to one queue of the broker."""

    waits = True
    batch = 25

    def __init__(self, world: World, process: Process, real: MemoryQueue) -> None:
        self.name = real.name
        self._world = world
        self._process = process
        self._real = real
        self.uncounts = not world.plan.whole
        self.refused: list[str] = []
        self._woken = False
        self._changed = anyio.Event()
        self._loses = "replies" in self.name or self.name == "results"

    def put(self, letters: Sequence[Letter], max_size: int | None) -> None:
        def put() -> None:
            if self._loses:
                kept = [each for each in letters if not self._world.strikes("message lost")]
                self._real.put(kept, max_size)
            else:
                self._real.put(letters, max_size)

        self._call("put", [letter.id for letter in letters], put)

    def take(self, count: int, lease: float, wait: float) -> Any:
        """A wait in a thread is an awaitable here."""
        return self._take(count, lease, wait)

    async def _take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        world, real = self._world, self._real
        end, lease = world.loop.now + wait, self._seconds(lease)
        while True:
            found: list[Delivery] = self._call("take", (), lambda: real.take(count, lease, 0))
            for delivery in found:
                world.delivered(self, delivery)
            if found or self._woken or world.loop.now >= end:
                self._woken = False
                return found
            self._changed = anyio.Event()
            listener = self._changed.set
            real.listen(listener)
            try:
                left = min(end - world.loop.now, real.until_next())
                with anyio.move_on_after(max(left, 0.001)):
                    await self._changed.wait()
            finally:
                real.unlisten(listener)

    def remove(self, handles: Sequence[str]) -> list[bool]:
        done = self._call("remove", handles, lambda: self._real.remove(handles))
        self._world.acknowledged(self, handles)
        return done

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        untried = untried and self.uncounts
        release = partial(self._real.release, handles, self._seconds(delay), untried=untried)
        return self._call("release", handles, release)

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        longer = self._seconds(seconds)
        done = self._call("extend", handles, lambda: self._real.extend(handles, longer))
        self.refused += [handle for handle, ours in zip(handles, done, strict=True) if not ours]
        return done

    def count(self) -> int:
        return self._call("count", (), self._real.count)

    def purge(self) -> int:
        return self._call("purge", (), self._real.purge)

    def wake(self) -> None:
        self._woken = True
        self._changed.set()

    def close(self) -> None:
        """There is nothing to let go of."""

    @property
    def process(self) -> Process:
        """Whose wire this is."""
        return self._process

    def _seconds(self, asked: float) -> float:
        return math.ceil(asked) if self._world.plan.whole else asked

    def _call(self, what: str, about: Sequence[str], call: Callable[[], Any]) -> Any:
        return self._world.over_the_wire(
            self._process, f"{self.name}.{what}", about, call, MailboxConnectionError
        )


class SimMailbox(QueueMailbox[Any]):
    """A mailbox on the simulated broker, as one process sees it. Bodies are envelopes."""

    queue: FaultyQueue

    def __init__(self, world: World, process: Process, name: str, body_type: Any = None) -> None:
        super().__init__(FaultyQueue(world, process, world.queue(name)), body_type=body_type)
        self._world = world
        self._process = process

    async def aside(self, call: Callable[[], Any]) -> Any:
        """As ever; the world notes when a refusal is heard, not when it is said."""
        refused: list[str] = []

        def noting() -> Any:
            self.queue.refused = refused
            return call()

        done = await super().aside(noting)
        for handle in refused:
            self._world.refused(self.queue, handle)
        return done

    def sibling(self, name: str, body_type: Any = None, **more: Any) -> SimMailbox:
        return SimMailbox(self._world, self._process, name, body_type)

    def _own_resolver(self) -> CompositeResolver:
        return CompositeResolver(factory=self)

    def create(self, identifier: str) -> SimMailbox:
        """The mailbox at this address."""
        return self.sibling(identifier)


class FaultyStore:
    """One process's wire to the store of outcomes that all workers share."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def find(self, key: str) -> bytes | None:
        return self._call("find", key, lambda: self._world.outcomes.get(key))

    def keep(self, key: str, value: bytes) -> bytes:
        return self._call("keep", key, lambda: self._world.outcomes.setdefault(key, value))

    def _call(self, what: str, key: str, call: Callable[[], Any]) -> Any:
        world = self._world
        if world.loop.now < world.store_away_until:
            raise StoreError("expected a store to write to, got a full disk")
        return world.over_the_wire(self._process, f"store.{what}", [key], call, StoreError)
