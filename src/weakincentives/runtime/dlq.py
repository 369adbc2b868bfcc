"""Dead letters: messages that are set aside with the reason, looked at, and sent again.

Rules of this file:
1. Nothing leaves one mailbox before it is in the other: a crash between the two repeats, and never
   loses.
2. A dead letter is never dead-lettered again: it stays until somebody acknowledges it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Generic, TypeVar, cast

from .._checks import whole_or_none
from .._frozen import truly_frozen
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import MailboxError, UsageError, shown
from ..secrets import logger_for, scrub_message
from .leases import Heartbeat, LeaseExtender, LeaseExtenderConfig
from .mailbox import (
    MAX_VISIBILITY_TIMEOUT,
    Delivery,
    Letter,
    Message,
    QueueMailbox,
)

__all__ = ["Backoff", "DLQConsumer", "DLQPolicy", "DeadLetter", "dead_letters_of", "replay"]

T = TypeVar("T")
logger = logger_for(__name__)

_LONGEST_ERROR = 4000  # characters: the letter must fit where its message did
_LEASE = 300.0  # seconds in which a look or one step of a replay is over
_BATCH = 100  # letters that are looked at together
_BEAT = 5.0  # seconds between signs of life
_WAKE = 0.02  # seconds between two attempts to wake a consumer


@truly_frozen
@dataclass(frozen=True, slots=True)
class DeadLetter(Generic[T]):
    """A message that nobody could work on, and why.

    `first_received_at` is when its mailbox got it. A body that could not be read is None, and
    `raw` is its content, byte for byte.
    """

    message_id: str
    body: T | None
    source_mailbox: str
    delivery_count: int
    last_error: str
    last_error_type: str
    dead_lettered_at: datetime
    first_received_at: datetime
    request_id: str | None = None
    reply_to: str | None = None
    raw: bytes | None = None
    trace_id: str | None = None

    @classmethod
    def of(
        cls, message: Message[T], error: BaseException | str, *, clock: Clock = SYSTEM_CLOCK
    ) -> DeadLetter[T]:
        """The letter for a message, with the error or the words that say why it is dead."""
        readable = message.problem is None
        body = message.body if readable else None
        request_id = getattr(body, "request_id", None)
        kind = type(error)
        said = error if isinstance(error, str) else str(error) or kind.__qualname__
        text = scrub_message(said)
        return cls(
            message_id=message.id,
            body=body,
            source_mailbox=message._mailbox.name,
            delivery_count=message.delivery_count,
            last_error=text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}…",
            last_error_type=""
            if isinstance(error, str)
            else f"{kind.__module__}.{kind.__qualname__}",
            dead_lettered_at=clock.now(),
            first_received_at=message.enqueued_at,
            request_id=None if request_id is None else str(request_id),
            reply_to=message.reply_address,
            raw=None if readable else message.raw,
            trace_id=_trace_id(message.headers.get("traceparent", "")),
        )


def _trace_id(traceparent: str) -> str | None:
    """The second part of the W3C header: `version-trace-span-flags`."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 else None


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next try: `base`, then each time `factor` as long.

    With `jitter=1.0` a wait is anything from zero to that, so that many that failed together do
    not come back together; with `jitter=0.0` it is exactly that.
    """

    base: float = 1.0
    factor: float = 2.0
    longest: float = 900.0
    jitter: float = 1.0

    def __post_init__(self) -> None:
        ranges = {
            "base": (0.0, MAX_VISIBILITY_TIMEOUT),
            "factor": (1.0, 1000.0),
            "longest": (0.0, MAX_VISIBILITY_TIMEOUT),
            "jitter": (0.0, 1.0),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not least <= value <= most:
                raise UsageError(
                    f"expected a number from {least:g} to {most:g} for `Backoff.{name}`, "
                    f"got {shown(value)}"
                )

    def delay(self, attempt: int, chance: float) -> float:
        """Seconds to wait after the n-th try, from 1; `chance` is a random number from 0 to 1."""
        try:
            full = min(self.longest, self.base * self.factor ** (max(1, attempt) - 1))
        except OverflowError:
            full = self.longest
        return full * (1.0 - self.jitter * (1.0 - chance))


@dataclass(frozen=True)
class DLQPolicy(Generic[T]):
    """When a message that failed is set aside, where to, and how long it waits before that.

    `include_errors` are set aside at once, `exclude_errors` never, with their subclasses; all
    others with the delivery that is the `max_delivery_count`-th.
    """

    mailbox: QueueMailbox[DeadLetter[T]]
    max_delivery_count: int = 5
    include_errors: Collection[type[BaseException]] | None = None
    exclude_errors: Collection[type[BaseException]] | None = None
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if not hasattr(self.mailbox, "send"):
            raise UsageError(
                f"expected a mailbox for `DLQPolicy.mailbox`, got {shown(self.mailbox)}"
            )
        if self.max_delivery_count is None:
            raise UsageError("expected a whole number >= 1 for `DLQPolicy.max_delivery_count`")
        whole_or_none(self, "max_delivery_count", least=1)
        for name in ("include_errors", "exclude_errors"):
            object.__setattr__(self, name, _error_types(name, getattr(self, name)))

    def should_dead_letter(self, message: Message[T], error: BaseException) -> bool:
        """Whether a message that failed so is set aside now; override it to decide otherwise."""
        if isinstance(error, cast(tuple[type[BaseException], ...], self.exclude_errors)):
            return False
        if isinstance(error, cast(tuple[type[BaseException], ...], self.include_errors)):
            return True
        return message.delivery_count >= self.max_delivery_count


def _error_types(name: str, given: Any) -> tuple[type[BaseException], ...]:
    found = (given,) if isinstance(given, type) else tuple(given or ())
    for each in found:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise UsageError(f"expected exception types in `DLQPolicy.{name}`, got {shown(each)}")
    return found


# ── looking and sending again ───────────────────────────────────────────────────────────────────


def dead_letters_of(mailbox: QueueMailbox[DeadLetter[T]], limit: int = 100) -> list[DeadLetter[T]]:
    """Up to so many dead letters, without taking them.

    They are leased and handed back, so that for a moment nobody else sees them, their delivery
    count grows, and they may change places. One that cannot be read is shown as a letter of its
    own, with what is wrong with it.
    """
    with _held(mailbox, limit) as taken:
        return [_opened(message) for message in islice(taken, limit)]


def _opened(message: Message[Any]) -> DeadLetter[Any]:
    problem = message.problem
    return message.body if problem is None else DeadLetter.of(message, problem)


def replay(
    dead_letters: QueueMailbox[DeadLetter[T]],
    target: QueueMailbox[T],
    *,
    limit: int | None = None,
    where: Callable[[DeadLetter[T]], bool] | None = None,
) -> int:
    """Send dead letters back to work, up to `limit` and only those `where` says so; how many.

    Each goes with its own message id and reply address, and is acknowledged after it was sent: a
    crash in between sends it twice. One whose body could not be read goes back byte for byte.
    """
    sent = 0
    with _held(dead_letters, limit) as taken:
        for message in taken:
            if limit is not None and sent >= limit:
                break
            if message.problem is not None:
                logger.warning("left %r where it is: %s", message, message.problem)
                continue
            letter = message.body
            if where is None or where(letter):
                _send_again(letter, target)
                sent += 1
                _acknowledge(message)
    return sent


def _send_again(letter: DeadLetter[T], target: QueueMailbox[T]) -> None:
    if letter.raw is None:
        target.send(cast(T, letter.body), id=letter.message_id, reply_to=letter.reply_to)
    else:
        again = Letter(letter.message_id, letter.raw, target._address(letter.reply_to))
        target.queue.put([again], target.max_size)


def _acknowledge(message: Message[Any]) -> None:
    try:
        message.acknowledge()
    except MailboxError as error:
        logger.warning("could not acknowledge %r, it will come again: %s", message, error)


@contextmanager
def _held(mailbox: QueueMailbox[T], limit: int | None) -> Iterator[Iterator[Message[T]]]:
    """Every message of a mailbox once; those not acknowledged are handed back at the end."""
    held: list[Message[T]] = []
    some = _BATCH if limit is None else max(1, min(limit, _BATCH))

    def each() -> Iterator[Message[T]]:
        seen: set[tuple[str, float]] = set()  # on SQS, several may have the same id
        while found := mailbox.receive(max_messages=some, visibility_timeout=_LEASE):
            held.extend(found)
            for message in found:
                key = message.id, message._delivery.enqueued
                if key in seen:  # its lease is over: this is the second time round
                    return
                seen.add(key)
                yield message

    try:
        yield each()
    finally:
        left = [message for message in held if not message.is_finalized]
        try:
            if left:
                mailbox.release_all(left)
        except MailboxError as error:
            logger.warning("letters of %r come back when their leases end: %s", mailbox, error)


# ── a worker for dead letters ───────────────────────────────────────────────────────────────────


_RECONNECT = Backoff(base=0.1, longest=30.0)


class DLQConsumer(Generic[T]):
    """Hands each dead letter to a function: acknowledged where it returns, kept where it raises.

    A letter whose handler raised comes back later and later, by `backoff`.
    """

    def __init__(
        self,
        *,
        mailbox: QueueMailbox[DeadLetter[T]],
        handler: Callable[[DeadLetter[T]], object],
        visibility_timeout: float = 300,
        backoff: Backoff | None = None,
    ) -> None:
        if not callable(handler):
            raise UsageError(f"expected a function as `handler`, got {shown(handler)}")
        LeaseExtenderConfig().for_lease(visibility_timeout)  # refuses what is no lease
        self.heartbeat = Heartbeat()
        self._mailbox = mailbox
        self._handler = handler
        self._lease = visibility_timeout
        self._backoff = Backoff(base=60.0, longest=3600.0) if backoff is None else backoff
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._handled = self._failed = 0

    @property
    def running(self) -> bool:
        """True while `run` runs."""
        return not self._idle.is_set()

    def metrics(self) -> dict[str, float]:
        """How many letters were handled, and how often a handler raised."""
        return {"dead_letters_handled_total": self._handled, "failures_total": self._failed}

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float | None = None,
        wait_time_seconds: float = 20,
    ) -> None:
        """Work until `shutdown`, until the mailbox is closed, or for so many looks into it.

        Letters are leased as the consumer was told, unless another `visibility_timeout` is given.
        """
        lease = self._lease if visibility_timeout is None else visibility_timeout
        extender = LeaseExtender(LeaseExtenderConfig().for_lease(lease))
        if self.running:
            raise UsageError("expected a consumer that is not running, got one that is")
        self._idle.clear()
        try:
            looks = failures = 0
            while not self._stopping.is_set() and not self._mailbox.closed:
                if max_iterations is not None and looks >= max_iterations:
                    break
                looks += 1
                try:
                    found = self._take(lease, wait_time_seconds)
                    failures = 0
                except MailboxError as error:
                    failures += 1
                    logger.warning("cannot receive from %r: %s", self._mailbox, error)
                    self._stopping.wait(_RECONNECT.delay(failures, random.random()))
                    continue
                for delivery in found:
                    self._handle(Message(self._mailbox, delivery), extender)
        finally:
            self._stopping.clear()
            self._idle.set()

    def _take(self, lease: float, wait: float) -> list[Delivery]:
        """One letter, or none after so many seconds; none early at a shutdown."""
        end = SYSTEM_CLOCK.monotonic() + wait
        while True:
            self.heartbeat.beat()
            left = max(0.0, end - SYSTEM_CLOCK.monotonic())
            found = self._mailbox.queue.take(1, lease, min(left, _BEAT))
            if found or not left or self._stopping.is_set() or self._mailbox.closed:
                return found

    def _handle(self, message: Message[DeadLetter[T]], extender: LeaseExtender) -> None:
        self.heartbeat.beat()
        try:
            with extender.attach(message):
                self._handler(message.body)
        except Exception:
            self._failed += 1
            logger.exception("could not handle the dead letter %r, keeping it", message)
            delay = self._backoff.delay(message.delivery_count, random.random())
            try:
                message.nack(visibility_timeout=delay)
            except MailboxError as error:
                logger.warning("could not hand back %r: %s", message, error)
        else:
            self._handled += 1
            _acknowledge(message)

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Take no more, finish what is at work; True where that was done in time.

        One that does not run yet will return at once when it is asked to run.
        """
        self._stopping.set()
        end = SYSTEM_CLOCK.monotonic() + timeout
        while not self._idle.is_set():
            self._mailbox.wake()  # more than once: a wake just before the wait is not heard
            if not self._idle.wait(_WAKE) and SYSTEM_CLOCK.monotonic() >= end:
                return False
        return True
