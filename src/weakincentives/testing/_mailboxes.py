"""Mailboxes for tests of what stands on them: one that fails on request, one that shows what was
sent, one that drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from ..clock import SYSTEM_CLOCK, Clock
from ..runtime.mailbox import (
    Delivery,
    InMemoryMailbox,
    Letter,
    Mailbox,
    MailboxResolver,
    MemoryQueue,
)

__all__ = ["CollectingMailbox", "FakeMailbox", "NullMailbox"]

T = TypeVar("T")


class _FragileQueue(MemoryQueue):
    """A queue whose server goes away when a test says so."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(name, clock)
        self.error: Exception | None = None

    def inject(self, letter: Letter, delivered: int) -> None:
        """Put in a letter that was delivered so often before, also while the server is away."""
        with self._changed:
            super().put([letter], None)
            self._kept[letter.id].count = delivered

    def expire(self, handle: str) -> None:
        """End this lease, also while the server is away."""
        super().release([handle], 0)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def put(self, letters: Sequence[Letter], max_size: int | None) -> None:
        self._check()
        super().put(letters, max_size)

    def take(
        self, count: int, lease: float, wait: float, stop: Callable[[], bool] = lambda: False
    ) -> list[Delivery]:
        self._check()
        return super().take(count, lease, wait, stop)

    def remove(self, handles: Sequence[str]) -> list[bool]:
        self._check()
        return super().remove(handles)

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        self._check()
        return super().release(handles, delay, untried=untried)

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        self._check()
        return super().extend(handles, seconds)

    def count(self) -> int:
        self._check()
        return super().count()

    def purge(self) -> int:
        self._check()
        return super().purge()


class FakeMailbox(InMemoryMailbox[T]):
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
        """End the lease of this delivery now; the message waits again."""
        self.queue.expire(receipt_handle)

    def set_connection_error(self, error: Exception) -> None:
        """Raise this from every call to the mailbox and its messages, until it is cleared."""
        self.queue.error = error
        self.queue.wake()

    def clear_connection_error(self) -> None:
        """Be well again."""
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
        """Put in a message whose next delivery is this one by count; its id.

        Bytes are laid in as they are, so that `b"garbage"` is a body that nobody can read.
        """
        id = uuid4().hex if id is None else id
        content = body if isinstance(body, bytes) else self._write(body, headers)
        self.queue.inject(Letter(id, content, self._address(reply_to)), delivery_count - 1)
        return id


class _Sink(MemoryQueue):
    """A queue from which nothing comes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.bodies: list[Any] = []

    def put(self, letters: Sequence[Letter], max_size: int | None) -> None:
        self.bodies += [letter.content[0] for letter in letters]


class CollectingMailbox(InMemoryMailbox[T]):
    """Keeps what is sent in `sent`, and gives nothing to receivers.

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
        """The bodies, in the order in which they were sent."""
        return self.queue.bodies


class NullMailbox(InMemoryMailbox[T]):
    """Drops what is sent, and gives nothing to receivers."""

    queue: _Sink

    def __init__(self, name: str = "null") -> None:
        super().__init__(queue=_Sink(name))

    def _put(self, letters: Sequence[Letter]) -> None:
        super()._put([])
