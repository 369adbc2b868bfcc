"""What a mailbox is: messages wait in it, one receiver at a time has one, acknowledged ones go.

    waiting ── receive ──▶ leased ── acknowledge ──▶ gone
       ▲                     │
       └── nack, or the lease ends (delivery_count grows with the next receive)

Rules of every mailbox:
1. Delivery is at least once: a message is handed to one receiver at a time, and comes back when
   its lease ends before it is acknowledged. Whoever works on it may see it twice.
2. A lease is only ever extended, and its time is the server's.
3. Only the newest delivery's handle counts. (SQS promises that less strictly; see there.)
4. A body that cannot be read is delivered all the same: `body` raises, `problem` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from ...errors import (
    MessageFinalizedError,
    ReceiptHandleExpiredError,
    ReplyNotAvailableError,
    SerializationError,
)

if TYPE_CHECKING:
    from ._mailbox import QueueMailbox

__all__ = ["MAX_VISIBILITY_TIMEOUT", "Delivery", "Letter", "Mailbox", "Message", "Queue"]

T = TypeVar("T")

MAX_VISIBILITY_TIMEOUT = 43_200  # seconds, 12 hours: what SQS allows


class Letter(NamedTuple):
    """What goes into a queue. `content` is bytes, but in memory the body and headers themselves."""

    id: str
    content: Any
    reply_to: Any = None  # an address; in memory, the mailbox


class Delivery(NamedTuple):
    """What comes out of a queue, for as long as its lease lasts."""

    id: str
    content: Any
    handle: str
    times: int  # how often it was delivered: 1 the first time
    enqueued: float  # seconds since 1970, by the server's clock
    reply_to: Any = None


class Queue(Protocol):
    """What a back-end must be able to do; `QueueMailbox` makes a mailbox of it.

    Every operation is one step for others, and may be repeated by a client that did not hear the
    answer. What the server refuses or cannot do now is a `MailboxConnectionError`.
    """

    name: str
    waits: bool  # False where every operation answers at once, so that no thread is needed
    batch: int  # letters or handles that one call takes at most
    uncounts: bool  # False where a delivery counts though it was handed back `untried`

    def put(self, letters: Sequence[Letter], max_size: int | None) -> None:
        """Add those whose id is not here already; all or, where they are too many, none."""
        ...

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        """Up to `count`; with none there, wait, or come back early with none."""
        ...

    def remove(self, handles: Sequence[str]) -> list[bool]:
        """Acknowledge; False for each whose lease is over."""
        ...

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        """Hand back, to be delivered after so many seconds; False as above.

        What was `untried` counts as not delivered, where the back-end can do that (not on SQS).
        """
        ...

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        """Let leases last at least so many seconds from now; False as above."""
        ...

    def count(self) -> int:
        """How many are here, waiting or leased; on SQS about so many."""
        ...

    def purge(self) -> int:
        """Remove all, leased ones too; how many."""
        ...

    def wake(self) -> None:
        """End a `take` of this object that waits, soon, from any thread; with none, the next."""
        ...

    def close(self) -> None:
        """Let go of what this object holds. The messages stay."""
        ...


class Mailbox(Protocol[T]):
    """Where messages of one type wait. A `QueueMailbox` on each back-end; test doubles besides."""

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
    ) -> Sequence[Message[T]]: ...
    def purge(self) -> int: ...
    def approximate_count(self) -> int: ...
    def close(self) -> None: ...


_UNREAD: Any = object()


class Message(Generic[T]):
    """One delivery of one message: work on it, then `acknowledge` it, or hand it back by `nack`."""

    __slots__ = ("_body", "_delivery", "_finalized", "_headers", "_mailbox")

    def __init__(self, mailbox: QueueMailbox[T], delivery: Delivery) -> None:
        self._mailbox = mailbox
        self._delivery = delivery
        self._body: Any = _UNREAD
        self._headers: Mapping[str, str] = {}
        self._finalized = False

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self._mailbox.name!r}, delivery {self.delivery_count}>"

    @property
    def id(self) -> str:
        """The message's own id, the same in every delivery."""
        return self._delivery.id

    @property
    def receipt_handle(self) -> str:
        """What proves this delivery to the mailbox."""
        return self._delivery.handle

    @property
    def delivery_count(self) -> int:
        """How often it was delivered: 1 the first time."""
        return self._delivery.times

    @property
    def enqueued_at(self) -> datetime:
        """When it was sent, by the server's clock."""
        return datetime.fromtimestamp(self._delivery.enqueued, UTC)

    @property
    def body(self) -> T:
        """What was sent. Raises a `SerializationError` where it cannot be read; see `problem`."""
        if self._body is _UNREAD:
            self._body, self._headers = self._mailbox._read(self._delivery.content)
        return cast(T, self._body)

    @property
    def headers(self) -> Mapping[str, str]:
        """What was sent beside the body, such as a trace's context."""
        return self._headers if self.problem is None else {}

    @property
    def problem(self) -> str | None:
        """Why the body cannot be read; None where it can."""
        try:
            _ = self.body
        except SerializationError as error:
            return str(error)
        return None

    @property
    def raw(self) -> Any:
        """The content as it lies in the queue: bytes, for whoever must keep it as it is."""
        return self._delivery.content

    @property
    def reply_to(self) -> Mailbox[Any] | None:
        """Where to reply; None where nobody asked, or the address leads nowhere."""
        return self._mailbox._resolve(self._delivery.reply_to)

    @property
    def reply_address(self) -> str | None:
        """The address in words, also where it leads nowhere."""
        address = self._delivery.reply_to
        return address if address is None or isinstance(address, str) else str(address.name)

    @property
    def is_finalized(self) -> bool:
        """True once it was acknowledged or handed back."""
        return self._finalized

    def reply(self, body: Any, *, id: str | None = None) -> str:
        """Send to whoever asked. As often as you like, until it is finalized."""
        if self._finalized:
            raise MessageFinalizedError(f"expected to reply before the end of {self!r}")
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
        """It is done: remove it."""
        self._check(self._mailbox.acknowledge_all([self]))

    def nack(self, *, visibility_timeout: float = 0) -> None:
        """Hand it back, to be delivered again after so many seconds."""
        self._check(self._mailbox.release_all([self], visibility_timeout))

    def extend_visibility(self, timeout: float) -> None:
        """Keep it for at least so many seconds from now; a lease never gets shorter."""
        self._check(self._mailbox.extend_all([self], timeout))

    def _check(self, done: Sequence[bool]) -> None:
        if not done[0]:
            raise ReceiptHandleExpiredError(
                f"expected a delivery whose lease lasts, got {self!r} - it went to another "
                "receiver, or was acknowledged"
            )
