"""What a back-end declares about itself before the laws of a mailbox are tried on it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, Literal
from uuid import uuid4

import pytest

from ..errors import ReceiptHandleExpiredError
from ..runtime.mailbox import MAX_VISIBILITY_TIMEOUT, Letter, Message, QueueMailbox

__all__ = ["LONG", "SOON", "MailboxSetup", "Order", "Waiting"]

LONG = 600  # seconds of a lease, or of a wait, that no test outlasts
SOON = 60  # seconds in which a `LONG` wait must have ended, also on a busy machine


@dataclass(frozen=True, slots=True)
class Order:
    """A body as users have them."""

    item: str
    count: int = 1
    notes: tuple[str, ...] = ()


class MailboxSetup:
    """How a back-end is made, and which of the laws it keeps to the letter.

    What a back-end cannot promise is said here, and its law then asks for what it does promise.
    """

    stale_ack: Literal["rejected", "silent"] = "rejected"  # what an old handle meets
    dedup: Literal["id", "none"] = "id"  # whether an id that is here is put in again
    ordered = True  # new messages come in the order in which they were sent
    exact_count = True  # `approximate_count` and `purge` count exactly, at once
    bounded = True  # `max_size` is kept
    copies = True  # bodies travel as bytes; False where receivers get the object itself
    max_lease: float = MAX_VISIBILITY_TIMEOUT
    virtual_clock = True  # `advance` moves the broker's clock; False where it sleeps
    lease: float = 30  # seconds of a lease that a test waits for; short where time is real

    def make(self, name: str, **options: Any) -> QueueMailbox[Any]:
        """A new mailbox object; in one test, the same name is the same queue.

        `options` are `max_size`, `reply_resolver`, `body_type`; the last only where a back-end
        `copies`.
        """
        raise NotImplementedError(f"define `make(self, name, **options)` in {type(self).__name__}")

    def advance(self, seconds: float) -> None:
        """Let so much time pass for the broker."""
        if self.virtual_clock:
            raise NotImplementedError(f"define `advance(self, seconds)` in {type(self).__name__}")
        time.sleep(seconds + 0.1)

    @pytest.fixture
    def mailbox(self) -> Iterator[QueueMailbox[Any]]:
        """An empty mailbox of a new name."""
        with self.make(f"orders-{uuid4().hex[:8]}") as mailbox:
            yield mailbox

    # --- what the laws are written in ---------------------------------------------------------

    def take(self, mailbox: QueueMailbox[Any], lease: float = LONG) -> Message[Any]:
        """The one message that is there."""
        (message,) = self.take_all(mailbox, lease, at_least=1)
        return message

    def take_all(
        self, mailbox: QueueMailbox[Any], lease: float = LONG, *, at_least: int = 0
    ) -> list[Message[Any]]:
        """All messages that are there; a broker of several servers may give a few at a time."""
        found: list[Message[Any]] = []
        while part := mailbox.receive(
            max_messages=10,
            visibility_timeout=lease,
            wait_time_seconds=SOON if len(found) < at_least else 0,
        ):
            found += part
            assert len(found) < 10_000, "the same messages come again and again"
        return found

    def put_raw(self, mailbox: QueueMailbox[Any], content: bytes, id: str = "raw") -> None:
        """What lies in a queue when somebody else wrote there."""
        mailbox.queue.put([Letter(id, content)], None)

    def assert_empty(self, mailbox: QueueMailbox[Any]) -> None:
        assert mailbox.receive(max_messages=10) == []

    def assert_count(self, mailbox: QueueMailbox[Any], count: int) -> None:
        if self.exact_count:
            assert mailbox.approximate_count() == count

    def assert_stale(self, message: Message[Any], call: Any) -> None:
        """The call is refused; where a broker does not look, it may also pass without a word."""
        if self.stale_ack == "rejected":
            with pytest.raises(ReceiptHandleExpiredError):
                call()
            assert not message.is_finalized
        else:
            with suppress(ReceiptHandleExpiredError):
                call()


class Waiting:
    """A `receive` in a thread of its own, with a long poll that must end before its time."""

    def __init__(self, mailbox: QueueMailbox[Any], *, max_messages: int = 1) -> None:
        self.found: Sequence[Message[Any]] | None = None
        self.error: BaseException | None = None

        def receive() -> None:
            try:
                self.found = mailbox.receive(
                    max_messages=max_messages, visibility_timeout=LONG, wait_time_seconds=LONG
                )
            except BaseException as error:
                self.error = error

        self._thread = Thread(target=receive, daemon=True)
        self._thread.start()
        time.sleep(0.05)  # it most likely waits by now; every law holds also where it does not

    def result(self) -> Sequence[Message[Any]]:
        """What it received, soon."""
        self._thread.join(SOON)
        assert not self._thread.is_alive(), "the long poll went on"
        if self.error is not None:
            raise self.error
        assert self.found is not None
        return self.found
