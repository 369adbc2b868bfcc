"""Dead letters: messages that could not be handled, with the reason; list and replay them.

Rules of this file:
1. A message is acknowledged in one mailbox only after it was sent to the other: a crash in between
   repeats it and never loses it.
2. A dead letter is never dead-lettered again: it stays until it is acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Generic, TypeVar, cast

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import MailboxError, UsageError, short_repr
from ...internal.backoff import backoff_delay
from ...internal.checks import whole_or_none
from ...internal.frozen import frozen_generic
from ...internal.wire_names import wire_name
from ...secrets import logger_for, redact_message, shorten
from ..mailbox import MAX_VISIBILITY_TIMEOUT, Message, OutboundMessage, QueueMailbox

T = TypeVar("T")
logger = logger_for(__name__)

_MAX_ERROR_CHARS = 4000  # the dead letter must fit into a queue that its message fitted into
_LEASE_SECONDS = 300.0  # for listing, or for one step of a replay
_BATCH_SIZE = 100


@wire_name("wink:DeadLetter", "weakincentives.runtime.dlq:DeadLetter")
@frozen_generic
@dataclass(frozen=True, slots=True)
class DeadLetter(Generic[T]):
    """A message that could not be handled, and why.

    `first_received_at` is when it was first enqueued. A body that could not be decoded is None, and
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
        """Return the dead letter for a message, with an error or a text as the reason."""
        decodable = message.problem is None
        body = message.body if decodable else None
        request_id = getattr(body, "request_id", None)
        kind = type(error)
        reason = error if isinstance(error, str) else str(error) or kind.__qualname__
        return cls(
            message_id=message.id,
            body=body,
            source_mailbox=message._mailbox.name,
            delivery_count=message.delivery_count,
            last_error=shorten(redact_message(reason), _MAX_ERROR_CHARS),
            last_error_type=""
            if isinstance(error, str)
            else f"{kind.__module__}.{kind.__qualname__}",
            dead_lettered_at=clock.now(),
            first_received_at=message.enqueued_at,
            request_id=None if request_id is None else str(request_id),
            reply_to=message.reply_address,
            raw=None if decodable else message.raw,
            trace_id=_trace_id(message.headers.get("traceparent", "")),
        )


def _trace_id(traceparent: str) -> str | None:
    """Return the second part of the W3C header: `version-trace-span-flags`."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 else None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff in seconds: `base`, then times `factor`, at most `max_delay`.

    With `jitter=1.0` a delay is anything from zero to that, so that messages that failed together
    are not redelivered together; with `jitter=0.0` it is exactly that.
    """

    base: float = 1.0
    factor: float = 2.0
    max_delay: float = 900.0
    jitter: float = 1.0

    def __post_init__(self) -> None:
        ranges = {
            "base": (0.0, MAX_VISIBILITY_TIMEOUT),
            "factor": (1.0, 1000.0),
            "max_delay": (0.0, MAX_VISIBILITY_TIMEOUT),
            "jitter": (0.0, 1.0),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not low <= value <= high:
                raise UsageError(
                    f"expected a number from {low:g} to {high:g} for `Backoff.{name}`, "
                    f"got {short_repr(value)}"
                )

    def delay(self, attempt: int, chance: float) -> float:
        """Return the delay after the n-th attempt, from 1; `chance` is a random number in 0..1."""
        return backoff_delay(
            attempt,
            chance,
            base=self.base,
            max_delay=self.max_delay,
            factor=self.factor,
            jitter=self.jitter,
        )

    def jittered(self, attempt: int) -> float:
        """Return the delay after the n-th attempt, with a random number drawn here."""
        return self.delay(attempt, random.random())


@dataclass(frozen=True)
class DLQPolicy(Generic[T]):
    """Decides when a failed message becomes a dead letter, and how it is retried before that.

    `include_errors` and their subclasses are dead-lettered at once, `exclude_errors` never; all
    others at the `max_delivery_count`-th delivery.
    """

    mailbox: QueueMailbox[DeadLetter[T]]
    max_delivery_count: int = 5
    include_errors: Collection[type[BaseException]] | None = None
    exclude_errors: Collection[type[BaseException]] | None = None
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if not hasattr(self.mailbox, "send"):
            raise UsageError(
                f"expected a mailbox for `DLQPolicy.mailbox`, got {short_repr(self.mailbox)}"
            )
        if self.max_delivery_count is None:
            raise UsageError("expected a whole number >= 1 for `DLQPolicy.max_delivery_count`")
        whole_or_none(self, "max_delivery_count", least=1)
        for name in ("include_errors", "exclude_errors"):
            object.__setattr__(self, name, _error_types(name, getattr(self, name)))

    def should_dead_letter(self, message: Message[T], error: BaseException) -> bool:
        """Return whether this failure makes the message a dead letter; override it if needed."""
        if isinstance(error, cast(tuple[type[BaseException], ...], self.exclude_errors)):
            return False
        if isinstance(error, cast(tuple[type[BaseException], ...], self.include_errors)):
            return True
        return message.delivery_count >= self.max_delivery_count


def _error_types(name: str, value: Any) -> tuple[type[BaseException], ...]:
    types = (value,) if isinstance(value, type) else tuple(value or ())
    for item in types:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise UsageError(
                f"expected exception types in `DLQPolicy.{name}`, got {short_repr(item)}"
            )
    return types


# ── list and replay ─────── ───────────────────────────────────────────────────────────────────


def dead_letters_of(mailbox: QueueMailbox[DeadLetter[T]], limit: int = 100) -> list[DeadLetter[T]]:
    """Return up to `limit` dead letters without removing them.

    They are leased and released, so for a moment no other receiver sees them, their delivery count
    grows, and their order may change. One that cannot be decoded is returned as a dead letter of
    the dead-letter mailbox, with the reason.
    """
    with _leased(mailbox, limit) as messages:
        return [_decoded(message) for message in islice(messages, limit)]


def _decoded(message: Message[Any]) -> DeadLetter[Any]:
    problem = message.problem
    return message.body if problem is None else DeadLetter.of(message, problem)


def replay(
    dead_letters: QueueMailbox[DeadLetter[T]],
    target: QueueMailbox[T],
    *,
    limit: int | None = None,
    where: Callable[[DeadLetter[T]], bool] | None = None,
) -> int:
    """Send dead letters to `target` again, up to `limit` and if `where` is true; return how many.

    Each keeps its message id and reply address, and is acknowledged after it was sent: a crash in
    between sends it twice. One whose body could not be decoded is sent byte for byte.
    """
    sent = 0
    with _leased(dead_letters, limit) as messages:
        for message in messages:
            if limit is not None and sent >= limit:
                break
            if message.problem is not None:
                logger.warning("left %r in its mailbox: %s", message, message.problem)
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
        raw = OutboundMessage(letter.message_id, letter.raw, target._address(letter.reply_to))
        target.queue.put([raw], target.max_size)


def _acknowledge(message: Message[Any]) -> None:
    try:
        message.acknowledge()
    except MailboxError as error:
        logger.warning("could not acknowledge %r, it will be redelivered: %s", message, error)


@contextmanager
def _leased(mailbox: QueueMailbox[T], limit: int | None) -> Iterator[Iterator[Message[T]]]:
    """Give every message of a mailbox once; release those that were not acknowledged."""
    leased: list[Message[T]] = []
    batch_size = _BATCH_SIZE if limit is None else max(1, min(limit, _BATCH_SIZE))

    def messages() -> Iterator[Message[T]]:
        seen: set[tuple[str, float]] = set()  # on SQS, several may have the same id
        while batch := mailbox.receive(max_messages=batch_size, visibility_timeout=_LEASE_SECONDS):
            leased.extend(batch)
            for message in batch:
                key = message.id, message._delivery.enqueued
                if key in seen:  # its lease has ended, so all messages have been seen
                    return
                seen.add(key)
                yield message

    try:
        yield messages()
    finally:
        unfinished = [message for message in leased if not message.is_finalized]
        try:
            if unfinished:
                mailbox.release_all(unfinished)
        except MailboxError as error:
            logger.warning("messages of %r return when their leases end: %s", mailbox, error)
