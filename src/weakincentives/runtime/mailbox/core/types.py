"""The protocols of mailboxes: messages are queued, leased to one receiver, and acknowledged.

    queued ── receive ──▶ leased ── acknowledge ──▶ removed
       ▲                     │
       └── nack, or the lease ends (the next receive increments delivery_count)

Rules of every mailbox:
1. Delivery is at least once: a message is leased to one receiver at a time, and is redelivered if
   the lease ends before it is acknowledged. A handler may see it twice.
2. A lease is only ever extended, and its time is the server's.
3. Only the handle of the newest delivery is valid. (SQS promises that less strictly; see there.)
4. A body that cannot be decoded is delivered anyway: `body` raises, `problem` says why.
5. Higher priorities are delivered first; groups of one priority take turns, and within a group the
   order is that of sending. (`core/lanes.py`; a queue without lanes ignores both.)
6. Once a group is cancelled none of its messages is delivered, and leases of it have ended. No
   message of another group is delivered again, or counted, because of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from ....errors import (
    MessageFinalizedError,
    ReceiptHandleExpiredError,
    ReplyNotAvailableError,
    SerializationError,
)
from ....internal.typevars import ReplyT

T = TypeVar("T")

MAX_VISIBILITY_TIMEOUT = 43_200  # seconds, 12 hours: what SQS allows


class OutboundMessage(NamedTuple):
    """A message to send. `content` is bytes; in memory, the body and headers themselves."""

    id: str
    content: Any
    reply_to: Any = None  # an address; in memory, the mailbox
    group: str = ""  # with the priority, its lane: see `core/lanes.py`
    priority: int = 0


class Delivery(NamedTuple):
    """A message from a queue, valid while its lease lasts."""

    id: str
    content: Any
    handle: str
    times: int  # delivery count: 1 the first time
    enqueued: float  # seconds since 1970, by the server's clock
    reply_to: Any = None


class Queue(Protocol):
    """The operations of a back-end; `QueueMailbox` makes a mailbox of them.

    Every operation is atomic, and idempotent for a client that repeats it because it got no
    response. If the server is unavailable or refuses, it raises a `MailboxConnectionError`.
    """

    name: str
    blocking: bool  # False if every operation returns at once, so that no thread is needed
    batch: int  # maximum messages or handles per call
    can_uncount_delivery: bool  # False if a delivery counts although it was released `untried`
    has_lanes: bool  # False if it has no priorities, and may deliver what was cancelled

    def put(self, messages: Sequence[OutboundMessage], max_size: int | None) -> None:
        """Add the messages whose id is not queued already; all, or none if there is no room.

        Messages of a cancelled group are dropped.
        """
        ...

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        """Lease up to `count` messages; wait for the first one, or return early with none."""
        ...

    def remove(self, handles: Sequence[str]) -> list[bool]:
        """Acknowledge; return False for each handle whose lease has ended."""
        ...

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        """Return messages to the queue, for redelivery after `delay`; return False as above.

        With `untried` this delivery does not count, if the back-end can do that (SQS cannot).
        """
        ...

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        """Let leases last at least `seconds` from now; return False as above."""
        ...

    def count(self) -> int:
        """Return how many messages are queued or leased; on SQS, an estimate."""
        ...

    def purge(self) -> int:
        """Remove all messages, leased ones too; return how many."""
        ...

    def cancel(self, group: str) -> int:
        """Remove the messages of this group, leased ones too, and drop those that are sent later.

        Return how many were removed; 0 from a queue without lanes, which cannot.
        """
        ...

    def cancelled(self, groups: Collection[str]) -> set[str]:
        """Return which of these groups are cancelled. Workers ask every few seconds."""
        ...

    def wake(self) -> None:
        """End a waiting `take` of this object from any thread; if none waits, the next one."""
        ...

    def close(self) -> None:
        """Release the resources of this object. The messages stay."""
        ...


def body_and_reply(cls: Any, types: Any) -> Any:
    """Return the type arguments of a class of bodies and replies; that of replies may be left out.

    Python has defaults of type parameters since 3.13.
    """
    is_body = not isinstance(types, tuple) and len(cls.__parameters__) == 2
    return (types, Any) if is_body else types


class Mailbox(Protocol[T, ReplyT]):
    """A queue of messages of one type: a `QueueMailbox` on each back-end, or a test double.

    `Mailbox[Question]`, or with the type of what its messages are replied with:
    `Mailbox[Question, Answer]`.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            return super().__class_getitem__(body_and_reply(cls, types))

    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def send(
        self,
        body: T,
        *,
        reply_to: Mailbox[Any] | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str: ...
    def send_all(
        self,
        bodies: Iterable[T],
        *,
        reply_to: Mailbox[Any] | str | None = None,
        ids: Iterable[str] | None = None,
        headers: Iterable[Mapping[str, str] | None] | None = None,
    ) -> int: ...
    def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[Message[T, ReplyT]]: ...
    def purge(self) -> int: ...
    def approximate_count(self) -> int: ...
    def close(self) -> None: ...


class MessageOwner(Protocol):
    """The operations that a message needs from its mailbox."""

    body_type: Any

    @property
    def name(self) -> str: ...
    def acknowledge_all(self, messages: Sequence[Message[Any]]) -> list[bool]: ...
    def release_all(self, messages: Sequence[Message[Any]], delay: float = 0) -> list[bool]: ...
    def extend_all(self, messages: Sequence[Message[Any]], timeout: float) -> list[bool]: ...
    def _read(self, content: Any) -> tuple[Any, Mapping[str, str]]: ...
    def _resolve(self, address: Any) -> Mailbox[Any] | None: ...


_UNREAD: Any = object()


class Message(Generic[T, ReplyT]):
    """One delivery of a message: handle it, then `acknowledge` it or return it with `nack`."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            return super().__class_getitem__(body_and_reply(cls, types))

    __slots__ = ("_body", "_delivery", "_finalized", "_headers", "_mailbox")

    def __init__(self, mailbox: MessageOwner, delivery: Delivery) -> None:
        self._mailbox = mailbox
        self._delivery = delivery
        self._body: Any = _UNREAD
        self._headers: Mapping[str, str] = {}
        self._finalized = False

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self._mailbox.name!r}, delivery {self.delivery_count}>"

    @property
    def id(self) -> str:
        """The id of the message, the same in every delivery."""
        return self._delivery.id

    @property
    def receipt_handle(self) -> str:
        """The handle that identifies this delivery to the mailbox."""
        return self._delivery.handle

    @property
    def delivery_count(self) -> int:
        """The number of deliveries so far: 1 the first time."""
        return self._delivery.times

    @property
    def enqueued_at(self) -> datetime:
        """The time of sending, by the server's clock; 1970 if it is damaged."""
        try:
            return datetime.fromtimestamp(self._delivery.enqueued, UTC)
        except (OverflowError, OSError, ValueError):  # damaged
            return datetime.fromtimestamp(0, UTC)

    @property
    def body(self) -> T:
        """The body. Raises a `SerializationError` if it cannot be decoded; see `problem`."""
        if self._body is _UNREAD:
            self._body, self._headers = self._mailbox._read(self._delivery.content)
        return cast(T, self._body)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, such as the context of a trace."""
        return self._headers if self.problem is None else {}

    @property
    def problem(self) -> str | None:
        """The reason why the body cannot be decoded; None if it can."""
        try:
            _ = self.body
        except SerializationError as error:
            return str(error)
        return None

    @property
    def raw(self) -> Any:
        """The undecoded content: bytes, except in memory."""
        return self._delivery.content

    @property
    def reply_to(self) -> Mailbox[Any] | None:
        """The mailbox to reply to; None if there is no address, or no mailbox at the address."""
        return self._mailbox._resolve(self._delivery.reply_to)

    @property
    def reply_address(self) -> str | None:
        """The address to reply to, whether or not there is a mailbox."""
        address = self._delivery.reply_to
        return address if address is None or isinstance(address, str) else str(address.name)

    def resolve(self, address: str) -> Mailbox[Any] | None:
        """Return the mailbox at an address, found in the same way as `reply_to`."""
        return self._mailbox._resolve(address)

    @property
    def is_finalized(self) -> bool:
        """True once it was acknowledged or released."""
        return self._finalized

    def reply(self, body: ReplyT, *, id: str | None = None) -> str:
        """Send a reply, any number of times until the message is finalized."""
        if self._finalized:
            raise MessageFinalizedError(f"expected a reply before {self!r} was finalized")
        target = self.reply_to
        if target is None:
            address = self.reply_address
            raise ReplyNotAvailableError(
                f"expected an address to reply to, got none in {self!r} - pass `reply_to` to send"
                if address is None
                else f"expected a mailbox at {address!r}, found none ({self!r}) - "
                "give the mailbox a `reply_resolver` that knows it"
            )
        return target.send(body, id=id)

    def acknowledge(self) -> None:
        """Remove the message: it is done."""
        self._check(self._mailbox.acknowledge_all([self]))

    def nack(self, *, visibility_timeout: float = 0) -> None:
        """Return the message to its queue, for redelivery after `visibility_timeout` seconds."""
        self._check(self._mailbox.release_all([self], visibility_timeout))

    def extend_visibility(self, timeout: float) -> None:
        """Let the lease last at least `timeout` seconds from now; a lease never gets shorter."""
        self._check(self._mailbox.extend_all([self], timeout))

    def _check(self, done: Sequence[bool]) -> None:
        if not done[0]:
            raise ReceiptHandleExpiredError(
                f"expected a delivery with a valid lease, got {self!r} - it was redelivered or "
                "acknowledged"
            )
