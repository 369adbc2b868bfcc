"""The simulated world: a broker, processes, and chance, which all comes from one generator."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any

from weakincentives.errors import MailboxError, MessageFinalizedError, StoreError
from weakincentives.evals._helpers import Key
from weakincentives.evals._mailbox_agent import key_id
from weakincentives.runtime.mailbox import Delivery, Letter, MemoryQueue

from .sim_loop import Crash, Process, SimClock, VirtualLoop, current_process, finished

if TYPE_CHECKING:
    from .sim_faults import FaultyQueue, Plan

__all__ = ["RUN", "World", "request_id"]

SETTLE = 5.0  # seconds between two looks at whether all is done
ENOUGH = 20  # complaints, after which nothing more is to be learnt
RUN = "run"

Main = Callable[[Process], Coroutine[Any, Any, Any]]


def request_id(sample_id: str, epoch: int) -> str:
    """What a sample's request is known by."""
    return key_id(RUN, "baseline", sample_id, epoch).hex


class World:
    """Everything that there is in one simulation."""

    def __init__(self, plan: Plan, random: Random, *, trace: bool = False) -> None:
        self.plan = plan
        self.random = random
        self.loop = VirtualLoop()
        self.clock = SimClock(self.loop)
        self.broker_clock = SimClock(self.loop)
        self.healed = False
        self.store_away_until = 0.0
        self.to_come = 0  # what will happen without anybody's doing
        self.outcomes: dict[str, bytes] = {}  # the store that the workers share
        self.rows: dict[Key, bytes] = {}  # the collector's own store
        self.poison: set[str] = set()
        self.faults: Counter[str] = Counter()
        self.executions: Counter[str] = Counter()
        self.deliveries: dict[str, int] = {}  # the most, by request
        self.complaints: list[str] = []
        self.trace: list[str] | None = [] if trace else None
        self.mains: dict[str, Main] = {}  # what each role does
        self.processes: list[Process] = []
        self.workers: dict[Process, Any] = {}
        self.leaving: set[Process] = set()
        self._queues: dict[str, MemoryQueue] = {}
        self._held: dict[str, dict[str, Delivery]] = {}  # by queue and handle
        self._refused: dict[tuple[str, str, int], float] = {}
        self._outside = copy_context()

    def log(self, process: Process | None, what: str) -> None:
        """Note what happened, where somebody reads it."""
        if self.trace is not None:
            who = "world" if process is None else process.name
            self.trace.append(f"{self.loop.now:10.3f} {who:12} {what}")

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Have it called, whatever becomes of the process that is running now."""
        self.loop.call_later(seconds, call, *args, context=self._outside)

    def sometime(self, most: float, call: Callable[..., object], *args: Any) -> None:
        """Have it called within so many seconds; the simulation does not end before."""

        def happens() -> None:
            self.to_come -= 1
            call(*args)

        self.to_come += 1
        self.later(self.random.uniform(0, most), happens)

    async def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait so long at most; whether it is done."""
        end = self.loop.now + seconds
        while not done() and self.loop.now < end and len(self.complaints) < ENOUGH:  # noqa: ASYNC110
            await asyncio.sleep(SETTLE)
        return done()

    # ── chance ──────────────────────────────────────────────────────────────────────────────────

    def strikes(self, fault: str) -> bool:
        """Whether a fault of this kind happens now."""
        rate = self.plan.rates.get(fault)
        if rate is None or self.healed or self.random.random() >= rate:
            return False
        self.faults[fault] += 1
        self.log(current_process(), f"! {fault}")
        return True

    def over_the_wire(
        self,
        process: Process,
        what: str,
        about: Sequence[str],
        call: Callable[[], Any],
        error: type[Exception],
    ) -> Any:
        """Have a server do something, or nearly."""
        process.check()
        if self.strikes("crash before"):
            self.kill(process)
            process.check()
        if self.loop.now < process.cut_until:
            self.log(process, f"{what} cut off")
            raise error(f"{what}: no route")
        if self.strikes("request lost"):
            raise error(f"{what}: the request was lost")
        done = call()
        if self.strikes("call repeated"):
            done = call()
        if self.trace is not None and (about or done):
            self.log(process, f"{what} {' '.join(about)} -> {_brief(done)}")
        if self.strikes("crash after"):
            self.kill(process)
            process.check()
        if self.strikes("reply lost"):
            raise error(f"{what}: the reply was lost")
        return done

    async def in_a_thread(self, call: Callable[[], Any]) -> Any:
        """A call that takes its time, before and after."""
        await asyncio.sleep(self.random.expovariate(20.0))
        process = current_process()
        if process is not None:
            process.check()
        try:
            done = await finished(call())
        except MessageFinalizedError:  # which no server said
            raise
        except (MailboxError, StoreError):
            await asyncio.sleep(self.random.uniform(0, 5))
            raise
        if self.strikes("answer late"):
            await asyncio.sleep(self.random.uniform(0, 2 * self.plan.lease))
        return done

    # ── the broker ──────────────────────────────────────────────────────────────────────────────

    def queue(self, name: str) -> MemoryQueue:
        """The broker's queue of this name."""
        if name not in self._queues:
            self._queues[name] = MemoryQueue(name, self.broker_clock)
        return self._queues[name]

    def delivered(self, queue: FaultyQueue, delivery: Delivery) -> None:
        """Note a delivery; perhaps let a second receiver have it too."""
        id, times = delivery.id, delivery.times
        self._held.setdefault(queue.name, {})[delivery.handle] = delivery
        if queue.name == "requests":
            self._refused.pop((queue.process.name, id, times), None)
            self.deliveries[id] = max(self.deliveries.get(id, 0), times)
        if self.strikes("lease cut short"):
            self.queue(queue.name).release([delivery.handle], 0)

    def acknowledged(self, queue: FaultyQueue, handles: Sequence[str]) -> None:
        """Perhaps deliver once more what was acknowledged."""
        for handle in handles:
            delivery = self._held.get(queue.name, {}).get(handle)
            if delivery is not None and self.strikes("delivered again"):
                letter = Letter(delivery.id, delivery.content, delivery.reply_to)
                self.sometime(60.0, self.queue(queue.name).put, [letter], None)

    def refused(self, queue: FaultyQueue, handle: str) -> None:
        """A worker was told that a lease is lost: it must stop soon."""
        delivery = self._held.get(queue.name, {}).get(handle)
        if queue.name == "requests" and delivery is not None:
            told = (queue.process.name, delivery.id, delivery.times)
            self._refused[told] = self.loop.now

    def worked(self, process: Process, id: str, times: int) -> None:
        """The work on a delivery came to its end, which a lost lease should have prevented."""
        told = self._refused.get((process.name, id, times))
        if told is not None and self.loop.now > told + 1.0:
            self.complaints.append(f"{id} was worked on after its lease was lost")

    # ── processes ───────────────────────────────────────────────────────────────────────────────

    def start(self, role: str, number: int = 0, life: int = 1) -> None:
        """Start a process, which is started again when it ends before its time."""
        process = Process(f"{role}-{number}.{life}")
        self.processes.append(process)
        self.log(process, "starts")

        def again() -> None:
            soon = self.random.uniform(0.5, 5.0 if self.healed else 30.0)
            self.later(soon, self.start, role, number, life + 1)

        def ended(task: asyncio.Task[Any]) -> None:
            error = None if task.cancelled() else task.exception()
            if not process.dead and not isinstance(error, Crash):
                self._ended(process, role, error)

        process.on_death = again
        task = process.start(self.loop, self.mains[role](process))
        task.add_done_callback(ended, context=self._outside)

    def _ended(self, process: Process, role: str, error: BaseException | None) -> None:
        """A process ended by itself, which few may."""
        process.dead = True
        self.workers.pop(process, None)
        self.log(process, f"ends: {error!r}")
        if role in ("submit", "collect"):
            expected = error is None or isinstance(error, StoreError)
            restarts = error is not None
        else:
            expected = error is None and process in self.leaving
            restarts = True
        if not expected:
            self.complaints.append(f"{process.name} ended by itself: {error!r}")
        if restarts:
            process.on_death()

    def kill(self, process: Process) -> None:
        """End a process where it stands."""
        if not process.dead:
            process.dead = True
            self.workers.pop(process, None)
            self.log(process, "dies")
            process.on_death()


def _brief(done: Any) -> str:
    if isinstance(done, list) and done and isinstance(done[0], Delivery):
        return " ".join(f"{each.handle} ({each.times})" for each in done)
    return f"{len(done)} bytes" if isinstance(done, bytes) else repr(done)
