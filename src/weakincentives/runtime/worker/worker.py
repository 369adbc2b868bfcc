"""A mailbox worker: receives messages, handles several concurrently, keeps their leases.

Rules of this file:
1. A handler acknowledges its message as the very last step. Whatever ends the handling earlier
   releases the message to its queue, or lets its lease expire.
2. An unavailable mailbox never ends the worker. A finished result is kept for `retry_timeout` and
   sent again, so that the work need not be repeated.
3. A lost lease cancels the work on its message; the worker does nothing more with that message.
4. An undecodable body and a message that was delivered too often never reach the handler.
5. `shutdown` wakes the worker. Messages in flight get time to finish, then they are released.
   A delivery that reached the agent counts, whatever ended it: the agent may be the reason.
6. A message that was delivered often and never finished may crash its workers. On its last two
   deliveries it runs alone, so that no other message fails with it.
7. A message of a cancelled group is removed: it is neither started nor finished, retried or
   dead-lettered. What is in flight is cancelled within seconds.
"""

# Theory of operation
#
# A message goes through these steps, in this order:
#
#   receive      The worker asks for as many messages as it has free slots. The mailbox leases each
#                of them to this worker: until the lease ends, no other worker gets the message. The
#                end of the lease is counted from before the call, so it is never overestimated.
#   lease        Each message becomes an `InFlight` entry with a cancel scope. One background task,
#                `keep_leases`, extends all leases in one call. If an extension is refused, another
#                worker may have the message: its scope is cancelled and it is left alone.
#   run          `_run_message` calls the handler inside that scope. The handler calls `start` when
#                the agent gets the message; from then on this delivery counts.
#   release slot When the agent has returned, the handler calls `release_slot`. The message still
#                has to be answered, but the next one may run. `MAX_HELD_FACTOR` bounds how many
#                messages are held in all, so an unavailable result mailbox causes back-pressure.
#   send         `send` retries while the target is full or unreachable, until `retry_timeout`.
#   acknowledge  The message leaves its queue. A crash before this point redelivers it, so all steps
#                before it must be idempotent, and the results are deduplicated by key.
#
# Redelivery. A message that could not be handled is released with a delay that grows with its
# delivery count. A message that was received but not started is released as `untried`: this
# delivery does not count, if the back-end can do that (SQS cannot).
#
# Isolation. A worker that is killed cannot say which message killed it: all of its messages are
# redelivered together. So a message on its last two deliveries is a suspect. It runs when nothing
# else is in flight. Of several suspects one is chosen at random and the others are released
# untried; where that would cost a delivery, they run one after the other.
#
# Cancellation. A queue with lanes delivers nothing of a cancelled group, so only the messages in
# flight remain: `watch_cancellations` asks for their groups every two seconds, in one call. What a
# queue may still deliver (on SQS; a message that names no group) is checked when it is received.
#
# Shutdown. `stop` sets a flag, stores the shortest grace period that anyone gave, and wakes the
# mailbox. The worker receives nothing more and waits for the messages in flight; after the grace
# period it cancels them, and each releases its message on the way out.

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import (
    MailboxConnectionError,
    MailboxError,
    ProviderError,
    SerializationError,
    StoreError,
    UsageError,
    WorkerEndedError,
)
from ...internal.checks import check_number, check_whole
from ...internal.concurrency import unwrap_exception_group
from ...secrets import logger_for
from ..mailbox import Message, QueueMailbox
from ..mailbox.backends.adapted import sending_mailbox
from ..mailbox.core.envelope import body_of
from ..mailbox.core.lanes import GROUP_HEADER, current_lane, lane_part
from .batching import Batcher, BatchingSender
from .dead_letters import Backoff, DeadLetter, DLQPolicy
from .heartbeat import Heartbeat, beating
from .in_flight import (
    InFlight,
    MaxDeliveriesExceeded,
    group_of,
    keep_leases,
    watch_cancellations,
)
from .leases import LeaseExtenderConfig
from .retry import (
    DEFAULT_RETRY_TIMEOUT,
    MAX_PAUSE_SECONDS,
    MIN_PAUSE_SECONDS,
    TRANSIENT,
    call_store,
    permanent_failure,
    retry,
)

logger = logger_for(__name__)

T = TypeVar("T")
R = TypeVar("R")
MAX_HELD_FACTOR = 3  # messages held (running and sending), as a multiple of `max_concurrent`
STOP_POLL_SECONDS = 0.25  # `stop` comes from another thread, so waits check for it this often
WAKE_INTERVAL_SECONDS = 0.02  # between two attempts of `shutdown` to wake the mailbox
MIN_REFUSAL_SECONDS, MAX_REFUSAL_SECONDS = 0.25, 15.0  # wait after a message that others take
DEFAULT_MAX_DELIVERIES = 5  # without a `DLQPolicy`

Handle = Callable[[Message[T]], Awaitable[None]]
GiveUp = Callable[[Message[T], BaseException], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Set concurrency, lease extension and backoff; the configurations of all loops share these.

    `backoff` is the pause before an unreachable mailbox is asked again, and before a message that
    could not be handled is redelivered. A finished result that cannot be stored or sent is kept and
    tried again for `retry_timeout` seconds; then its message returns to its queue.
    """

    max_concurrent: int = 10
    lease_extender: LeaseExtenderConfig = field(default_factory=LeaseExtenderConfig)
    backoff: Backoff = field(default_factory=Backoff)
    clock: Clock = SYSTEM_CLOCK
    retry_timeout: float = DEFAULT_RETRY_TIMEOUT

    def __post_init__(self) -> None:
        check_whole(self.max_concurrent, 1, "max_concurrent")
        check_number(self.retry_timeout, "retry_timeout", least=0)


class Worker(Generic[T]):
    """Handles the messages of a mailbox.

    `handle` gets each message, `give_up` those that were delivered too often; both end by calling
    `acknowledge`, `release` or `dead_letter`. Without `give_up` there is no limit of deliveries,
    and `handle` gets undecodable messages too.
    """

    def __init__(
        self,
        requests: QueueMailbox[T],
        handle: Handle[T],
        give_up: GiveUp[T] | None,
        *,
        config: WorkerConfig,
        dlq: DLQPolicy[T] | None = None,
    ) -> None:
        self.requests = requests
        self.heartbeat = Heartbeat(clock=config.clock)
        self.counts: Counter[str] = Counter()
        self.policy = dlq
        self.clock = config.clock
        self._handle = handle
        self._give_up = give_up
        self._config = config
        self._dead_letters: Any = None
        if dlq is not None:
            self._dead_letters = sending_mailbox(dlq.mailbox, "DLQPolicy.mailbox")
        self._max_deliveries = DEFAULT_MAX_DELIVERIES if dlq is None else dlq.max_delivery_count
        self._in_flight: dict[str, InFlight] = {}  # by receipt handle
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._ended.set()
        self._grace = math.inf  # the shortest grace period given to `stop`
        self._receive_failures = 0  # in a row
        # Messages for other workers since the last one that ran: how often each was refused.
        self.refused: Counter[str] = Counter()
        self.random = random.Random()  # for jitter; seed it to make a run repeatable

    @property
    def running(self) -> bool:
        """True while `run` is active."""
        return not self._ended.is_set()

    @property
    def dead_letters(self) -> Any:
        """The mailbox for dead letters: the policy's, or `NAME-dlq` next to the requests."""
        if self._dead_letters is None:
            name = f"{self.requests.name}-dlq"
            self._dead_letters = self.requests.sibling(name, DeadLetter)
        return self._dead_letters

    def metrics(self) -> Mapping[str, float]:
        """Return all counters and the number of messages in flight."""
        return {
            **{f"{name}_total": count for name, count in sorted(self.counts.items())},
            "in_flight": len(self._in_flight),
        }

    # ── running ─────────────────────────────────────────────────────────────────────────────────

    async def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> None:
        """Handle messages until `shutdown`, until the mailbox is closed, or for some iterations.

        An iteration waits for a message, handles all that are queued, and ends when they are done.
        """
        if not self._ended.is_set():
            raise UsageError("expected a worker that is not running, got one that is")
        if not wait_time_seconds >= 0:
            raise UsageError(f"expected `wait_time_seconds` >= 0, got {wait_time_seconds!r}")
        self._ended.clear()
        self._in_flight.clear()  # left over if an earlier run was cancelled
        self._acknowledge = Batcher(self._acknowledge_all)
        self._send = BatchingSender()
        self.heartbeat.beat()
        finished = False
        try:
            async with anyio.create_task_group() as group:
                leases = self._config.lease_extender.for_lease(visibility_timeout)
                signs = (self.heartbeat, self.counts)
                group.start_soon(keep_leases, self._in_flight, self.requests, leases, *signs)
                group.start_soon(watch_cancellations, self._in_flight, self.requests, self.counts)
                await self._work(group, max_iterations, visibility_timeout, wait_time_seconds)
                finished = True
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            raise unwrap_exception_group(errors) from None
        finally:
            self._stopping.clear()
            self._grace = math.inf
            self._ended.set()
        if not finished:  # a task group ends without an error if one of its tasks was cancelled
            raise WorkerEndedError

    async def _work(
        self, group: TaskGroup, iterations: int | None, lease: float, wait: float
    ) -> None:
        self._slot_freed = anyio.Event()
        done = 0
        if iterations is None:  # with a wait of 0 it would poll at full speed forever
            wait = max(wait, STOP_POLL_SECONDS)
        while not self._is_over() and (iterations is None or done < iterations):
            received = await self._receive_batch(group, lease, wait)
            # Refused messages return again and again: an iteration does not wait for their worker.
            while received and iterations is not None and not self.refused and not self._is_over():
                received = await self._receive_batch(group, lease, 0)
                # Messages in flight may be released, and then belong to this iteration too.
                while not received and self._in_flight and not self._is_over():
                    await self._wait_for_slot(all_free=True)
                    received = await self._receive_batch(group, lease, 0)
            done += 1
        await self._wait_for_slot(all_free=True)
        grace = end = math.inf
        while self._in_flight and (now := anyio.current_time()) < end:
            if self._grace < grace:  # `stop` was called again, with a shorter grace period
                grace, end = self._grace, min(end, now + self._grace)
            with anyio.move_on_after(min(STOP_POLL_SECONDS, end - now)):
                await self._one_finished()
        for each in list(self._in_flight.values()):
            each.scope.cancel()
        while self._in_flight:
            await self._one_finished()

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self.requests.closed

    async def _receive_batch(self, group: TaskGroup, lease: float, wait: float) -> bool:
        """Receive messages for the free slots and start them; return whether there were any."""
        await anyio.lowlevel.checkpoint()  # a mailbox in memory may answer without one
        await self._wait_for_slot()
        if self._stopping.is_set():
            return False
        try:
            messages, lease_end = await self._receive(lease, wait)
            messages = await self._without_cancelled(messages)
        except MailboxConnectionError as error:
            self.counts["unreachable"] += 1
            logger.warning("cannot receive from %r: %s", self.requests.name, error)
            await self._pause()
            return False
        self._receive_failures = 0
        self.heartbeat.beat()
        self.counts["received"] += len(messages)
        suspects = [message for message in messages if self._is_suspect(message)]
        others = [message for message in messages if message not in suspects]
        released = []
        if suspects and self.requests.queue.can_uncount_delivery:
            chosen = self.random.choice(suspects)
            released = [message for message in messages if message is not chosen]
            suspects, others = [chosen], []
        isolated = [InFlight(message, lease_end, isolated=True) for message in suspects]
        concurrent = [InFlight(message, lease_end) for message in others]
        for each in (*concurrent, *isolated):
            self._in_flight[each.message.receipt_handle] = each
        if released:
            await self._release(released, 0.0, untried=True)
        for each in concurrent:
            group.start_soon(self._run_message, each)
        await self._run_isolated(group, isolated)
        return bool(messages)

    async def _receive(self, lease: float, wait: float) -> tuple[list[Message[T]], float]:
        """Return messages and a time by which their leases have certainly ended.

        That time is counted from before the call, so one call waits for at most half a lease: a
        message that arrives at its end can still be handled.
        """
        end = anyio.current_time() + wait
        while True:
            begin = anyio.current_time()
            messages = await self.requests.receive_async(
                max_messages=self._free_slots(),
                visibility_timeout=lease,
                wait_time_seconds=max(0.0, min(end - begin, lease / 2)),
            )
            if messages or anyio.current_time() >= end or self._is_over():
                return messages, begin + lease

    async def _without_cancelled(self, messages: list[Message[T]]) -> list[Message[T]]:
        """Remove the messages of cancelled groups that the queue itself cannot drop.

        While the queue cannot be asked, none of its groups begins: their messages go back.
        """
        if self.requests.has_lanes:
            unsure = [each for each in messages if GROUP_HEADER not in each.headers]
        else:
            unsure = messages
        if not (groups := {group_of(each) for each in unsure} - {""}):
            return messages
        try:
            cancelled = await self._cancelled(groups)
        except TRANSIENT:
            doubtful = [each for each in unsure if group_of(each)]
            await self._release(doubtful, 0.0, untried=True)
            return [each for each in messages if each not in doubtful]
        except MailboxError:  # it never answers; `watch_cancellations` asks again
            return messages
        if dropped := [each for each in unsure if group_of(each) in cancelled]:
            self.counts["cancelled"] += len(dropped)
            await self._discard(dropped)
        return [each for each in messages if each not in dropped]

    async def _cancelled(self, groups: set[str]) -> set[str]:
        return await self.requests.run_blocking(partial(self.requests.cancelled, groups))

    async def _discard(self, messages: list[Message[T]]) -> None:
        """Remove messages of a cancelled group, which mostly are gone already."""
        with suppress(MailboxError):
            await self._acknowledge_all(messages)

    def _is_suspect(self, message: Message[T]) -> bool:
        """Return whether this is one of the last two deliveries; see "Isolation" above."""
        limit = self._max_deliveries
        return self._give_up is not None and max(2, limit - 1) <= message.delivery_count <= limit

    async def _run_isolated(self, group: TaskGroup, suspects: list[InFlight]) -> None:
        """Run one suspect after the other, each when nothing else is in flight."""
        for waiting, suspect in zip(range(len(suspects), 0, -1), suspects, strict=True):
            while len(self._in_flight) > waiting and not self._stopping.is_set():
                with anyio.move_on_after(STOP_POLL_SECONDS):
                    await self._one_finished()
            if len(self._in_flight) > waiting:  # stopping: release it
                suspect.scope.cancel()
            group.start_soon(self._run_message, suspect)

    async def _pause(self) -> None:
        """Wait before the mailbox is asked again, or until `stop`."""
        self._receive_failures += 1
        delay = max(MIN_PAUSE_SECONDS, self._delay(self._receive_failures))
        await self._wait(min(MAX_PAUSE_SECONDS, delay))

    async def _wait(self, seconds: float) -> None:
        """Wait, or until `stop`."""
        end = anyio.current_time() + seconds
        while (left := end - anyio.current_time()) > 0:
            if self._stopping.is_set():
                break
            await anyio.sleep(min(STOP_POLL_SECONDS, left))

    def _delay(self, attempt: int) -> float:
        return self._config.backoff.delay(attempt, self.random.random())

    async def _wait_for_slot(self, *, all_free: bool = False) -> None:
        """Wait until a slot is free, or until all are, or until `stop`."""
        while not self._stopping.is_set():
            if not self._in_flight if all_free else self._free_slots() > 0:
                return
            with anyio.move_on_after(STOP_POLL_SECONDS):
                await self._one_finished()

    async def _one_finished(self) -> None:
        self._slot_freed = anyio.Event()
        await self._slot_freed.wait()
        await anyio.lowlevel.checkpoint()  # messages that finish together free slots together

    def _free_slots(self) -> int:
        """Return how many more messages may run; one whose result is being sent needs no slot."""
        if any(each.isolated for each in self._in_flight.values()):
            return 0
        limit = self._config.max_concurrent
        running = sum(not each.finished for each in self._in_flight.values())
        return min(limit - running, MAX_HELD_FACTOR * limit - len(self._in_flight))

    async def _run_message(self, this: InFlight) -> None:
        message = this.message
        if anyio.current_time() >= this.lease_end:  # this process was suspended in the meantime
            self.counts["lease_lost"] += 1
            logger.warning("the lease of %r ended before its work began", message)
            this.lease_lost = True
            this.scope.cancel()
        cancelled = False
        current_lane.set(lane_part(message.headers))
        try:
            with this.scope, beating(self.heartbeat):
                await anyio.lowlevel.checkpoint_if_cancelled()
                await self._dispatch(message)
            cancelled = this.scope.cancelled_caught
        except (MailboxError, ProviderError, StoreError) as error:
            self.counts["unreachable"] += 1
            logger.warning("a message of %r will be redelivered: %s", self.requests.name, error)
        except anyio.get_cancelled_exc_class():  # the whole run is cancelled
            cancelled = True
            raise
        finally:
            if not message.is_finalized and not this.lease_lost:
                with anyio.CancelScope(shield=True):
                    if this.cancelled:
                        await self._discard([message])
                    else:
                        delay = 0.0 if cancelled else self._delay(message.delivery_count)
                        untried = cancelled and not this.started
                        await self._release([message], delay, untried=untried)
            del self._in_flight[message.receipt_handle]
            self._slot_freed.set()
            self.heartbeat.beat()

    async def _dispatch(self, message: Message[T]) -> None:
        if self._give_up is None:
            await self._handle(message)
        elif message.problem is not None:
            self.counts["undecodable"] += 1
            await self.dead_letter(message, SerializationError(message.problem))
        elif message.delivery_count > self._max_deliveries:
            await self._give_up(message, MaxDeliveriesExceeded(message.delivery_count - 1))
        else:
            try:
                await self._handle(message)
            except SerializationError as error:  # the result cannot be encoded
                await self._give_up(message, error)
            except StoreError as error:
                if message.delivery_count < self._max_deliveries:
                    raise
                await self._give_up(message, error)  # now, since the next delivery knows no reason

    def start(self, message: Message[T]) -> None:
        """Record that the agent gets the message: from now on this delivery counts."""
        self._in_flight[message.receipt_handle].started = True
        self.refused.clear()
        self.heartbeat.beat()

    def release_slot(self, message: Message[T]) -> None:
        """Free the message's slot: the work is done, only its result has yet to be sent."""
        self._in_flight[message.receipt_handle].finished = True
        self._slot_freed.set()
        self.heartbeat.beat()

    # ── for handlers ────────────────────────────────────────────────────────────────────────────

    async def acknowledge(self, message: Message[T]) -> None:
        """Remove the message from its queue. If its lease has ended, it will be redelivered."""
        if await self._acknowledge(message):
            self.counts["acknowledged"] += 1
        else:
            self.counts["late"] += 1
            self._in_flight[message.receipt_handle].lease_lost = True

    async def _acknowledge_all(self, messages: list[Message[T]]) -> list[bool]:
        return await self.requests.run_blocking(partial(self.requests.acknowledge_all, messages))

    async def refuse(self, message: Message[T]) -> None:
        """Return a message that only other workers can handle to its queue.

        This delivery does not count. Its slot stays taken for a while, longer with each refusal in
        a row, so that the others get their messages. Where every delivery counts (SQS), a copy of
        the message takes its place.
        """
        self.counts["refused"] += 1
        rounds = self.refused.total() // self._config.max_concurrent
        self.refused[message.id] += 1
        delay = min(MAX_REFUSAL_SECONDS, MIN_REFUSAL_SECONDS * 2 ** min(rounds, 16))
        can_uncount = self.requests.queue.can_uncount_delivery
        if can_uncount:  # for longer than this worker waits, so that it gets others first
            await self._release([message], 2 * delay, untried=True)
        await self._wait(delay * self.random.uniform(0.5, 1.0))
        if not can_uncount:
            again = partial(
                self.requests.send,
                message.body,
                id=message.id,
                reply_to=message.reply_address,
                headers=message.headers,
            )
            await self.requests.run_blocking(again)
            await self.acknowledge(message)

    async def release(
        self, message: Message[T], *, untried: bool = False, backoff: Backoff | None = None
    ) -> None:
        """Return the message to its queue, for redelivery after a backoff.

        With `untried` it is redelivered at once, and this delivery does not count.
        """
        if untried:
            await self._release([message], 0.0, untried=True)
            return
        self.counts["retried"] += 1
        if backoff is None:
            backoff = self._config.backoff if self.policy is None else self.policy.backoff
        delay = backoff.delay(message.delivery_count, self.random.random())
        await self._release([message], delay)

    async def _release(
        self, messages: list[Message[T]], delay: float, *, untried: bool = False
    ) -> None:
        release = partial(self.requests.release_all, messages, delay, untried=untried)
        # If it fails, the leases expire by themselves, or an acknowledgement has just arrived.
        with suppress(MailboxError):
            await self.requests.run_blocking(release)

    async def dead_letter(
        self,
        message: Message[T],
        error: BaseException,
        report: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Send the message to the dead letters with the reason, `report` it, and acknowledge it.

        While the dead letters are unreachable nobody is told, and the message stays in its queue.
        If they will never take it, the sender is told, and the message stays too. A message of a
        cancelled group is removed instead.
        """
        groups = {group_of(message)} - {""}
        if groups and await self.retry(lambda: self._cancelled(groups), *TRANSIENT):
            self.counts["cancelled"] += 1
            await self._discard([message])
            return
        letter = DeadLetter.of(message, error, clock=self.clock)
        sending = self.send(self.dead_letters, letter, message.id)
        problem = await permanent_failure(sending)
        if report is not None:
            await report()
        if problem is not None:
            raise problem
        self.counts["dead"] += 1
        logger.warning("dead-lettered a message of %r: %s", self.requests.name, letter.last_error)
        await self.acknowledge(message)

    async def retry(self, call: Callable[[], Awaitable[R]], *errors: type[Exception]) -> R:
        """Return what the call returns; until the retry timeout, retry it after these errors."""
        return await retry(call, *errors, delay=self._delay, timeout=self._config.retry_timeout)

    async def call_store(self, method: Callable[..., Any], *args: Any, abandon: bool = True) -> Any:
        """Call a method of a user's store; raise a `StoreError` if it keeps failing."""
        timeout = self._config.retry_timeout
        return await call_store(method, *args, delay=self._delay, timeout=timeout, abandon=abandon)

    async def send(self, mailbox: Any, body: Any, id: str | None = None) -> None:
        """Send; until the retry timeout, retry while the mailbox is full or unreachable."""
        kind = type(mailbox)
        own = getattr(kind, "send", None), getattr(kind, "send_all", None)
        if own != (QueueMailbox.send, QueueMailbox.send_all):  # a user's code
            body = body_of(body)
        send = partial(self._send, mailbox, body, id)
        await self.retry(send, *TRANSIENT)

    # ── stopping ────────────────────────────────────────────────────────────────────────────────

    def stop(self, *, grace: float = 30.0) -> None:
        """Receive nothing more, and end when the messages in flight are done; does not wait.

        Messages that are not done after `grace` seconds are released.
        """
        self._grace = min(self._grace, grace)
        self._stopping.set()
        self.requests.wake()

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Stop from any thread and wait; return whether `run` has ended.

        A worker that is not running will return at once from its next `run`.
        """
        self.stop(grace=timeout)
        end = time.monotonic() + timeout + 1.0
        while not self._ended.wait(WAKE_INTERVAL_SECONDS) and time.monotonic() < end:
            self.requests.wake()
        return self._ended.is_set()
