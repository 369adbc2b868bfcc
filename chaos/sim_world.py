"""The simulated world: a broker, processes, and one random generator for everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any

from weakincentives.errors import (
    MailboxError,
    MessageFinalizedError,
    SerializationError,
    StoreError,
)
from weakincentives.evals.distributed.submission import Key, key_id
from weakincentives.runtime.mailbox import Delivery, MemoryQueue, OutboundMessage
from weakincentives.runtime.mailbox.core.envelope import unpack
from weakincentives.runtime.mailbox.core.lanes import Lane, lane_of

from .sim_loop import Crash, Process, SimClock, VirtualLoop, current_process, finished

if TYPE_CHECKING:
    from .sim_cancel import OtherRun
    from .sim_faults import FaultyQueue, Plan

__all__ = ["RUN", "World", "request_id"]

POLL_SECONDS = 5.0  # between two checks whether all is done
MAX_VIOLATIONS = 20  # after which a simulation ends early
RUN = "run"

Main = Callable[[Process], Coroutine[Any, Any, Any]]


def request_id(sample_id: str, epoch: int, run: str = RUN) -> str:
    """Return the message id of a sample's request."""
    return key_id(run, "baseline", sample_id, epoch).hex


class World:
    """The state of one simulation."""

    downtimes = 30.0, 5.0  # at most, until a dead process is started again; the second in recovery

    def __init__(self, plan: Plan, random: Random, *, trace: bool = False) -> None:
        self.plan = plan
        self.random = random
        self.loop = VirtualLoop()
        self.clock = SimClock(self.loop)
        self.broker_clock = SimClock(self.loop)
        self.healed = False
        self.store_unavailable_until = 0.0
        self.pending_events = 0  # scheduled by the world itself
        self.outcomes: dict[str, bytes] = {}  # the store that the workers share
        self.rows: dict[Key, bytes] = {}  # the collector's own store
        self.other_runs: dict[str, OtherRun] = {}
        self.poison: set[str] = set()
        self.strange: set[bytes] = set()  # injected among the results
        self.wiped: set[bytes] = set()  # of these, lost with a wiped queue
        self.faults: Counter[str] = Counter()
        self.executions: Counter[str] = Counter()
        self.deliveries: dict[str, int] = {}  # highest delivery count, by request
        self.violations: list[str] = []
        self.trace: list[str] | None = [] if trace else None
        self.mains: dict[str, Main] = {}  # the main coroutine of each role
        self.processes: list[Process] = []
        self.workers: dict[Process, Any] = {}
        self.leaving: set[Process] = set()
        self._queues: dict[str, MemoryQueue] = {}
        self._held: dict[str, dict[str, Delivery]] = {}  # by queue and handle
        self._refused: dict[tuple[str, str, int], float] = {}
        self._root_context = copy_context()

    def log(self, process: Process | None, what: str) -> None:
        """Add a line to the trace, if there is one."""
        if self.trace is not None:
            name = "world" if process is None else process.name
            self.trace.append(f"{self.loop.now:10.3f} {name:12} {what}")

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Call it later, even if the current process dies."""
        self.loop.call_later(seconds, call, *args, context=self._root_context)

    def call_within(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Call it at a random moment within `seconds`, and keep the simulation running."""

        def call_and_count() -> None:
            self.pending_events -= 1
            call(*args)

        self.pending_events += 1
        self.later(self.random.uniform(0, seconds), call_and_count)

    async def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait up to `seconds`; return whether it is done."""
        end = self.loop.now + seconds
        while not done() and self.loop.now < end and len(self.violations) < MAX_VIOLATIONS:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        return done()

    # ── faults ────────────────────────────────────────────────────────────────────────────────────

    def strikes(self, fault: str) -> bool:
        """Draw whether a fault of this kind happens now."""
        rate = self.plan.rates.get(fault)
        if rate is None or self.healed or self.random.random() >= rate:
            return False
        self.faults[fault] += 1
        self.log(current_process(), f"! {fault}")
        return True

    def call_server(
        self,
        process: Process,
        what: str,
        about: Sequence[str],
        call: Callable[[], Any],
        error: type[Exception],
    ) -> Any:
        """Call a server, with faults before and after."""
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

    async def run_in_thread(self, call: Callable[[], Any]) -> Any:
        """Run a blocking call with random delays before and after it."""
        await asyncio.sleep(self.random.expovariate(20.0))
        process = current_process()
        if process is not None:
            process.check()
        try:
            done = await finished(call())
        except MessageFinalizedError:  # raised by the client, without a server
            raise
        except (MailboxError, StoreError):
            await asyncio.sleep(self.random.uniform(0, 5))
            raise
        if self.strikes("answer late"):
            await asyncio.sleep(self.random.uniform(0, 2 * self.plan.lease))
        return done

    # ── the broker ────────────────────────────────────────────────────────────────────────────────

    def queue(self, name: str) -> MemoryQueue:
        """Return the broker's queue of this name."""
        if name not in self._queues:
            self._queues[name] = MemoryQueue(name, self.broker_clock)
        return self._queues[name]

    def inject_among_results(self, id: str, content: bytes) -> None:
        """Put an invalid message into the results, unless one with this id is there."""
        results = self.queue("results")
        before = results.count()
        results.put([OutboundMessage(id, content)], None)
        if results.count() > before:
            self.strange.add(content)
            self.log(None, f"injects {len(content)} bytes among the results as {id}")

    def contents(self, name: str) -> list[bytes]:
        """Return the contents of a queue, leased or not."""
        return [entry.message.content for entry in self.queue(name)._entries.values()]

    def delivered(self, queue: FaultyQueue, delivery: Delivery) -> None:
        """Record a delivery; perhaps deliver it to a second receiver too."""
        id, times = delivery.id, delivery.times
        self._held.setdefault(queue.name, {})[delivery.handle] = delivery
        if queue.name == "requests":
            self._refused.pop((queue.process.name, id, times), None)
            self.deliveries[id] = max(self.deliveries.get(id, 0), times)
        if self.strikes("lease cut short"):
            self.queue(queue.name).release([delivery.handle], 0)

    def acknowledged(self, queue: FaultyQueue, handles: Sequence[str]) -> None:
        """Perhaps redeliver an acknowledged message."""
        for handle in handles:
            delivery = self._held.get(queue.name, {}).get(handle)
            if delivery is not None and self.strikes("delivered again"):
                id, content, _, _, _, reply_to = delivery
                letter = OutboundMessage(id, content, reply_to, *_lane_in(content))
                self.call_within(60.0, self.queue(queue.name).put, [letter], None)

    def refused(self, queue: FaultyQueue, handle: str) -> None:
        """Record that a worker learned of a lost lease: it must stop soon."""
        delivery = self._held.get(queue.name, {}).get(handle)
        if queue.name == "requests" and delivery is not None:
            delivered = (queue.process.name, delivery.id, delivery.times)
            self._refused[delivered] = self.loop.now

    def work_finished(self, process: Process, id: str, times: int) -> None:
        """Check that the work on a delivery was not finished after its lease was lost."""
        refused_at = self._refused.get((process.name, id, times))
        if refused_at is not None and self.loop.now > refused_at + 1.0:
            self.violations.append(f"{id} was worked on after its lease was lost")

    # ── processes ─────────────────────────────────────────────────────────────────────────────────

    def start(self, role: str, number: int = 0, life: int = 1) -> None:
        """Start a process, and restart it when it dies."""
        process = Process(f"{role}-{number}.{life}")
        self.processes.append(process)
        self.log(process, "starts")

        def again() -> None:
            soon = self.random.uniform(0.5, self.downtimes[1 if self.healed else 0])
            self.later(soon, self.start, role, number, life + 1)

        def ended(task: asyncio.Task[Any]) -> None:
            error = None if task.cancelled() else task.exception()
            if not process.dead and not isinstance(error, Crash):
                self._ended(process, role, error)

        process.on_death = again
        task = process.start(self.loop, self.mains[role](process))
        task.add_done_callback(ended, context=self._root_context)

    def _ended(self, process: Process, role: str, error: BaseException | None) -> None:
        """Handle a process that ended by itself; only some may."""
        process.dead = True
        self.workers.pop(process, None)
        self.log(process, f"ends: {error!r}")
        if role.partition(":")[0] in ("submit", "collect", "cancel"):
            expected = error is None or isinstance(error, StoreError)
            restarts = error is not None
        else:
            expected = error is None and process in self.leaving
            restarts = True
        if not expected:
            self.violations.append(f"{process.name} ended by itself: {error!r}")
        if restarts:
            process.on_death()

    def kill(self, process: Process) -> None:
        """Crash a process."""
        if not process.dead:
            process.dead = True
            self.workers.pop(process, None)
            self.log(process, "dies")
            process.on_death()


def _lane_in(content: bytes) -> Lane:
    try:
        return lane_of(unpack(content)[1])
    except SerializationError:  # poison
        return Lane()


def _brief(done: Any) -> str:
    if isinstance(done, list) and done and isinstance(done[0], Delivery):
        return " ".join(f"{each.handle} ({each.times})" for each in done)
    return f"{len(done)} bytes" if isinstance(done, bytes) else repr(done)
