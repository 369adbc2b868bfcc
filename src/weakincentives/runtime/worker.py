"""A mailbox worker: takes messages, has so many handled at once, keeps their leases.

Rules of this file:
1. A message is acknowledged by whoever handled it, after everything else. Whatever ends the
   handling before that hands the message back, or lets its lease end.
2. A mailbox that cannot be reached is waited for; it never ends the worker. What is done waits in
   hand, some minutes, rather than be done again.
3. A lease that is lost ends the work on its message, and nothing more is done with it.
4. A body that cannot be read, and a message that was delivered too often, never reach the handler.
5. `shutdown` wakes the worker. What is under way gets its time to end, then it is handed back.
6. A message that was often delivered and never finished may be what ends its workers. On its last
   two deliveries it is worked on alone, so that none goes down with it time and again.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import (
    MailboxConnectionError,
    MailboxError,
    ProviderError,
    SerializationError,
    StoreError,
    UsageError,
)
from ..secrets import logger_for
from ._batching import Batcher, Senders
from ._flights import Flight, Overdelivered, keep_leases, only_one
from ._patience import LONGEST_PAUSE, PASSING, insist
from ._worker_config import WorkerConfig
from .dlq import DeadLetter, DLQPolicy
from .leases import Heartbeat
from .mailbox import Message, QueueMailbox

__all__ = ["Worker", "WorkerConfig"]

logger = logger_for(__name__)

T = TypeVar("T")
R = TypeVar("R")
TELLING = 3  # how many times as many messages as are worked on may be in hand
GLANCE = 0.25  # seconds between two looks at whether to stop, which comes from another thread
WAKE = 0.02  # seconds between two attempts to wake it
MOST_DELIVERIES = 5  # where no policy says otherwise


Handle = Callable[[Message[T]], Awaitable[None]]
GiveUp = Callable[[Message[T], BaseException], Awaitable[None]]


class Worker(Generic[T]):
    """Works off a mailbox. `handle` gets each message; `give_up` those that nobody could finish.

    Both end by `acknowledge`, `hand_back` or `bury`.
    """

    def __init__(
        self,
        requests: QueueMailbox[T],
        handle: Handle[T],
        give_up: GiveUp[T],
        *,
        config: WorkerConfig,
        dlq: DLQPolicy[T] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.requests = requests
        self.heartbeat = Heartbeat(clock=clock)
        self.counts: Counter[str] = Counter()
        self.policy = dlq
        self.clock = clock
        self._handle = handle
        self._give_up = give_up
        self._config = config
        self._dead_letters: Any = dlq.mailbox if dlq is not None else None
        self._most = MOST_DELIVERIES if dlq is None else dlq.max_delivery_count
        self._flights: dict[str, Flight] = {}
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._ended.set()
        self._grace = math.inf  # the shortest that anybody gave
        self._failures = 0  # to receive, in a row
        self.random = random.Random()  # draws how long to wait; a seeded one repeats itself

    @property
    def running(self) -> bool:
        """True while `run` is under way."""
        return not self._ended.is_set()

    @property
    def dead_letters(self) -> Any:
        """Where dead letters go: the policy's mailbox, or `NAME-dlq` beside the requests."""
        if self._dead_letters is None:
            name = f"{self.requests.name}-dlq"
            self._dead_letters = self.requests.sibling(name, DeadLetter)
        return self._dead_letters

    def metrics(self) -> Mapping[str, float]:
        """Counters so far, and what is under way."""
        return {
            **{f"{name}_total": count for name, count in sorted(self.counts.items())},
            "in_flight": len(self._flights),
        }

    # ── running ─────────────────────────────────────────────────────────────────────────────────

    async def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> None:
        """Work until `shutdown`, or for so many iterations.

        An iteration waits for a message, works off all that is there, and ends when it is done.
        """
        if not self._ended.is_set():
            raise UsageError("expected a worker that is not running, got one that is")
        if not wait_time_seconds >= 0:
            raise UsageError(f"expected `wait_time_seconds` >= 0, got {wait_time_seconds!r}")
        self._ended.clear()
        self._flights.clear()  # of a run that was cancelled
        self._acknowledge = Batcher(self._acknowledge_all)
        self._send = Senders()
        try:
            async with anyio.create_task_group() as group:
                leases = self._config.lease_extender.for_lease(visibility_timeout)
                signs = (self.heartbeat, self.counts)
                group.start_soon(keep_leases, self._flights, self.requests, leases, *signs)
                await self._work(group, max_iterations, visibility_timeout, wait_time_seconds)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as group_error:
            raise only_one(group_error) from None
        finally:
            self._stopping.clear()
            self._grace = math.inf
            self._ended.set()

    async def _work(
        self, group: TaskGroup, iterations: int | None, lease: float, wait: float
    ) -> None:
        self._room = anyio.Event()
        done = 0
        wait = max(wait, GLANCE if iterations is None else 0.0)  # for ever, but not at full speed
        while not self._stopping.is_set() and (iterations is None or done < iterations):
            found = await self._fill(group, lease, wait)
            while found and iterations is not None and not self._stopping.is_set():
                found = await self._fill(group, lease, 0)
                # They may hand messages back.
                while not found and self._flights and not self._stopping.is_set():
                    await self._wait_for_room(everything=True)
                    found = await self._fill(group, lease, 0)
            done += 1
        await self._wait_for_room(everything=True)
        grace = end = math.inf
        while self._flights and (now := anyio.current_time()) < end:
            if self._grace < grace:  # somebody is in more of a hurry
                grace, end = self._grace, min(end, now + self._grace)
            with anyio.move_on_after(min(GLANCE, end - now)):
                await self._end_of_one()
        for flight in list(self._flights.values()):
            flight.scope.cancel()
        while self._flights:
            await self._end_of_one()

    async def _fill(self, group: TaskGroup, lease: float, wait: float) -> bool:
        """Take messages for the places that are free; whether any came."""
        await anyio.lowlevel.checkpoint()  # a mailbox in memory may answer without one
        await self._wait_for_room()
        if self._stopping.is_set():
            return False
        try:
            messages, until = await self._receive(lease, wait)
        except MailboxConnectionError as error:
            self.counts["unreachable"] += 1
            logger.warning("cannot receive from %r: %s", self.requests.name, error)
            await self._pause()
            return False
        self._failures = 0
        self.heartbeat.beat()
        self.counts["received"] += len(messages)
        suspects = [message for message in messages if self._is_suspect(message)]
        others = [message for message in messages if message not in suspects]
        if suspects and self.requests.queue.uncounts:  # all but one go back, for anybody
            chosen = self.random.choice(suspects)
            back = [message for message in messages if message is not chosen]
            suspects, others = [chosen], []
        else:  # or to go back would cost each of them a delivery
            back = []
        alone = [Flight(message, until, alone=True) for message in suspects]
        flights = [Flight(message, until) for message in others]
        self._flights.update({each.message.receipt_handle: each for each in (*flights, *alone)})
        if back:
            await self._try_to_hand_back(back, 0.0, untried=True)
        for flight in flights:
            group.start_soon(self._fly, flight)
        await self._fly_alone(group, alone)
        return bool(messages)

    async def _receive(self, lease: float, wait: float) -> tuple[list[Message[T]], float]:
        """Messages, and when the lease of each has ended for certain.

        That counts from before the call, so a call waits at most half a lease: what comes at its
        end can still be worked on.
        """
        end = anyio.current_time() + wait
        while True:
            begin = anyio.current_time()
            messages = await self.requests.receive_async(
                max_messages=self._places(),
                visibility_timeout=lease,
                wait_time_seconds=max(0.0, min(end - begin, lease / 2)),
            )
            if messages or anyio.current_time() >= end or self._stopping.is_set():
                return messages, begin + lease

    def _is_suspect(self, message: Message[T]) -> bool:
        """True on its last two deliveries: it may be what ended its workers."""
        return max(2, self._most - 1) <= message.delivery_count <= self._most

    async def _fly_alone(self, group: TaskGroup, suspects: list[Flight]) -> None:
        """One after the other, each when everything else that was under way has ended."""
        for waiting, flight in zip(range(len(suspects), 0, -1), suspects, strict=True):
            while len(self._flights) > waiting and not self._stopping.is_set():
                with anyio.move_on_after(GLANCE):
                    await self._end_of_one()
            if len(self._flights) > waiting:  # it goes back
                flight.scope.cancel()
            group.start_soon(self._fly, flight)

    async def _pause(self) -> None:
        """Before a mailbox is asked again; `shutdown` is noticed meanwhile."""
        self._failures += 1
        end = anyio.current_time() + min(LONGEST_PAUSE, max(0.05, self._delay(self._failures)))
        while (left := end - anyio.current_time()) > 0:
            if self._stopping.is_set():
                break
            await anyio.sleep(min(GLANCE, left))

    def _delay(self, attempt: int) -> float:
        return self._config.backoff.delay(attempt, self.random.random())

    async def _wait_for_room(self, *, everything: bool = False) -> None:
        """Until a place is free, or all are, or it is asked to stop."""
        while (self._flights if everything else self._places() < 1) and not self._stopping.is_set():
            with anyio.move_on_after(GLANCE):
                await self._end_of_one()

    async def _end_of_one(self) -> None:
        self._room = anyio.Event()
        await self._room.wait()
        await anyio.lowlevel.checkpoint()  # those that end together make room together

    def _places(self) -> int:
        """How many more may be worked on; one whose result is on its way needs no place."""
        if any(flight.alone for flight in self._flights.values()):
            return 0
        most = self._config.max_concurrent
        working = sum(not flight.worked for flight in self._flights.values())
        return min(most - working, TELLING * most - len(self._flights))

    async def _fly(self, flight: Flight) -> None:
        message = flight.message
        if anyio.current_time() >= flight.until:  # it stood still since; somebody else has it
            self.counts["lease_lost"] += 1
            logger.warning("the lease of %r was over before its work began", message)
            flight.lost = True
            flight.scope.cancel()
        untried = False
        try:
            with flight.scope:
                await anyio.lowlevel.checkpoint_if_cancelled()
                await self._attend(message)
            untried = flight.scope.cancelled_caught
        except (MailboxError, ProviderError, StoreError) as error:
            self.counts["unreachable"] += 1
            logger.warning("a message of %r comes back later: %s", self.requests.name, error)
        except anyio.get_cancelled_exc_class():  # the whole run
            untried = True
            raise
        finally:
            if not message.is_finalized and not flight.lost:
                with anyio.CancelScope(shield=True):
                    # At a shutdown it comes back at once, as if it had not been delivered.
                    delay = 0.0 if untried else self._delay(message.delivery_count)
                    await self._try_to_hand_back([message], delay, untried=untried)
            del self._flights[message.receipt_handle]
            self._room.set()
            self.heartbeat.beat()

    async def _attend(self, message: Message[T]) -> None:
        if message.problem is not None:
            self.counts["undecodable"] += 1
            await self.bury(message, SerializationError(message.problem))
        elif message.delivery_count > self._most:
            await self._give_up(message, Overdelivered(message.delivery_count - 1))
        else:
            try:
                await self._handle(message)
            except SerializationError as error:  # of what came of it, which nobody can be sent
                await self._give_up(message, error)

    def worked(self, message: Message[T]) -> None:
        """The work on it is done, and its place free; its result is still to be told."""
        self._flights[message.receipt_handle].worked = True
        self._room.set()

    # ── what handlers end by ────────────────────────────────────────────────────────────────────

    async def acknowledge(self, message: Message[T]) -> None:
        """The message is done. Where its lease was over, somebody else will find it done."""
        if await self._acknowledge(message):
            self.counts["acknowledged"] += 1
        else:
            self.counts["late"] += 1
            self._flights[message.receipt_handle].lost = True

    async def _acknowledge_all(self, messages: list[Message[T]]) -> list[bool]:
        return await self.requests.aside(partial(self.requests.acknowledge_all, messages))

    async def hand_back(self, message: Message[T], *, untried: bool = False) -> None:
        """Let it be tried again, after a pause that grows with its deliveries.

        At once where it is `untried`: this delivery does not count then.
        """
        if untried:
            await self._try_to_hand_back([message], 0.0, untried=True)
            return
        self.counts["retried"] += 1
        backoff = self.policy.backoff if self.policy is not None else self._config.backoff
        delay = backoff.delay(message.delivery_count, self.random.random())
        await self._try_to_hand_back([message], delay)

    async def _try_to_hand_back(
        self, messages: list[Message[T]], delay: float, *, untried: bool = False
    ) -> None:
        release = partial(self.requests.release_all, messages, delay, untried=untried)
        # Or their leases end by themselves, or an acknowledgement on its way has arrived.
        with suppress(MailboxError):
            await self.requests.aside(release)

    async def bury(self, message: Message[T], error: BaseException) -> None:
        """Set it aside with the reason, and acknowledge it."""
        letter = DeadLetter.of(message, error, clock=self.clock)
        await self.send(self.dead_letters, letter, message.id)
        self.counts["dead"] += 1
        logger.warning("a message of %r is dead: %s", self.requests.name, letter.last_error)
        await self.acknowledge(message)

    async def insist(self, call: Callable[[], Awaitable[R]], *away: type[Exception]) -> R:
        """What the call gives; while it raises one of these, it is made again, for some minutes."""
        return await insist(call, *away, delay=self._delay)

    async def send(self, mailbox: Any, body: Any, id: str | None = None) -> None:
        """Send; where the mailbox is full or cannot be reached, again, for some minutes."""
        send = partial(self._send, mailbox, body, id)
        await self.insist(send, *PASSING)

    # ── stopping ────────────────────────────────────────────────────────────────────────────────

    def stop(self, *, grace: float = 30.0) -> None:
        """Take nothing new, and end with what is under way; for handlers, which cannot wait.

        What is not done after `grace` seconds is handed back.
        """
        self._grace = min(self._grace, grace)
        self._stopping.set()
        self.requests.wake()

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Stop, from any thread, in time; whether it has. One that has not begun will not begin."""
        self.stop(grace=timeout)
        end = time.monotonic() + timeout + 1.0
        while not self._ended.wait(WAKE) and time.monotonic() < end:
            self.requests.wake()
        return self._ended.is_set()
