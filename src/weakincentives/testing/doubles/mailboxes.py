"""Mailboxes for tests: they fail on request, record what was sent, or drop it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from ...clock import SYSTEM_CLOCK, Clock
from ...internal.typevars import ReplyT
from ...runtime.mailbox import (
    InMemoryMailbox,
    Mailbox,
    MailboxResolver,
    MemoryQueue,
    OutboundMessage,
)

T = TypeVar("T")


_OPERATIONS = {
    *("put", "take", "remove", "release", "extend", "count", "purge", "cancel", "cancelled")
}


class _FragileQueue(MemoryQueue):
    """A queue whose operations raise `error`, if there is one."""

    error: Exception | None = None

    def __getattribute__(self, name: str) -> Any:
        if name in _OPERATIONS and self.error is not None:
            raise self.error
        return super().__getattribute__(name)

    def inject(self, message: OutboundMessage, delivered: int) -> None:
        """Add a message with a delivery count, also while the server is unavailable."""
        with self._changed:
            super().put([message], None)
            self._entries[message.id].count = delivered

    def expire(self, handle: str) -> None:
        """End this lease, also while the server is unavailable."""
        super().release([handle], 0)


class FakeMailbox(InMemoryMailbox[T, ReplyT]):
    """A mailbox in memory whose leases end and whose server fails when a test says so.

    >>> mailbox = FakeMailbox()
    >>> _ = mailbox.inject_message("hello", delivery_count=3)
    >>> (message,) = mailbox.receive()
    >>> message.delivery_count
    3
    >>> mailbox.expire_handle(message.receipt_handle)
    >>> [again.delivery_count for again in mailbox.receive()]
    [4]
    """

    queue: _FragileQueue

    def __init__(
        self,
        name: str = "fake",
        *,
        max_size: int | None = None,
        reply_resolver: MailboxResolver | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(
            queue=_FragileQueue(name, clock), max_size=max_size, reply_resolver=reply_resolver
        )

    def expire_handle(self, receipt_handle: str) -> None:
        """End the lease of this delivery now; the message is queued again."""
        self.queue.expire(receipt_handle)

    def set_connection_error(self, error: Exception) -> None:
        """Raise this from every call to the mailbox and its messages, until it is cleared."""
        self.queue.error = error
        self.queue.wake()

    def clear_connection_error(self) -> None:
        """Work again."""
        self.queue.error = None

    def inject_message(
        self,
        body: T | bytes,
        *,
        id: str | None = None,
        delivery_count: int = 1,
        reply_to: Mailbox[Any] | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Add a message whose next delivery has this count; return its id.

        Bytes are added unchanged, so `b"garbage"` is a body that cannot be decoded.
        """
        id = uuid4().hex if id is None else id
        content = body if isinstance(body, bytes) else self._write(body, headers)
        self.queue.inject(OutboundMessage(id, content, self._address(reply_to)), delivery_count - 1)
        return id


class _Sink(MemoryQueue):
    """A queue that delivers nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.bodies: list[Any] = []

    def put(self, messages: Sequence[OutboundMessage], max_size: int | None) -> None:
        self.bodies += [message.content[0] for message in messages]


class CollectingMailbox(InMemoryMailbox[T, ReplyT]):
    """Records what is sent in `sent`, and delivers nothing.

    >>> mailbox = CollectingMailbox()
    >>> _ = mailbox.send("hello")
    >>> mailbox.sent, mailbox.receive()
    (['hello'], [])
    """

    queue: _Sink

    def __init__(self, name: str = "collecting") -> None:
        super().__init__(queue=_Sink(name))

    @property
    def sent(self) -> list[T]:
        """The bodies, in the order of sending."""
        return self.queue.bodies


class NullMailbox(InMemoryMailbox[T, ReplyT]):
    """Drops what is sent, and delivers nothing."""

    queue: _Sink

    def __init__(self, name: str = "null") -> None:
        super().__init__(queue=_Sink(name))

    def _put(self, messages: Sequence[OutboundMessage]) -> None:
        super()._put([])
