"""What a back-end declares about itself, and helpers for the suites of a mailbox."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, Literal
from uuid import uuid4

import pytest

from ...errors import ReceiptHandleExpiredError
from ...runtime.mailbox import MAX_VISIBILITY_TIMEOUT, Message, OutboundMessage, QueueMailbox

LONG = 600  # seconds of a lease or a wait; no test takes that long
SOON = 60  # seconds in which a `LONG` wait must have ended, also on a busy machine


@dataclass(frozen=True, slots=True)
class Order:
    """A typical body."""

    item: str
    count: int = 1
    notes: tuple[str, ...] = ()


class MailboxSetup:
    """How to make a mailbox on a back-end, and what the back-end guarantees.

    Declare here what a back-end cannot guarantee; the suites then expect less.
    """

    stale_ack: Literal["rejected", "silent"] = "rejected"  # the effect of an old handle
    dedup: Literal["id", "none"] = "id"  # whether a queued id is queued again
    ordered = True  # new messages are delivered in the order of sending
    exact_count = True  # `approximate_count` and `purge` are exact and immediate
    bounded = True  # `max_size` is enforced
    lanes = True  # there are priorities, and nothing of a cancelled group is delivered
    copies = True  # bodies are sent as bytes; False if receivers get the object itself
    max_lease: float = MAX_VISIBILITY_TIMEOUT
    virtual_clock = True  # `advance` moves the broker's clock; False if it sleeps
    lease: float = 30  # seconds of a lease whose end a test waits for; short in real time

    def make(self, name: str, **options: Any) -> QueueMailbox[Any]:
        """Return a new mailbox object; in one test, the same name is the same queue.

        `options` are `max_size`, `reply_resolver` and, if a back-end `copies`, `body_type`.
        """
        raise NotImplementedError(f"define `make(self, name, **options)` in {type(self).__name__}")

    def advance(self, seconds: float) -> None:
        """Let time pass for the broker."""
        if self.virtual_clock:
            raise NotImplementedError(f"define `advance(self, seconds)` in {type(self).__name__}")
        time.sleep(seconds + 0.1)

    def set_back(self, seconds: float) -> None:
        """Set the broker's clock back; without this method, these tests are skipped."""
        pytest.skip("this backend goes by the server's clock, which a test cannot set back")

    @pytest.fixture
    def mailbox(self) -> Iterator[QueueMailbox[Any]]:
        """Yield an empty mailbox with a new name."""
        with self.make(f"orders-{uuid4().hex[:8]}") as mailbox:
            yield mailbox

    # --- helpers ------------------------------------------------------------------------------

    def deliver(self, mailbox: QueueMailbox[Any], lease: float = LONG) -> Message[Any]:
        """Send a message to an empty mailbox, and receive it."""
        mailbox.send("hello")
        return self.take(mailbox, lease)

    def take(self, mailbox: QueueMailbox[Any], lease: float = LONG) -> Message[Any]:
        """Receive the one message that is queued."""
        (message,) = self.take_all(mailbox, lease, at_least=1)
        return message

    def take_all(
        self, mailbox: QueueMailbox[Any], lease: float = LONG, *, at_least: int = 0
    ) -> list[Message[Any]]:
        """Receive all queued messages; a distributed broker may return a few at a time."""
        received: list[Message[Any]] = []
        while part := mailbox.receive(
            max_messages=10,
            visibility_timeout=lease,
            wait_time_seconds=SOON if len(received) < at_least else 0,
        ):
            received += part
            assert len(received) < 10_000, "the same messages are delivered again and again"
        return received

    def put_raw(self, mailbox: QueueMailbox[Any], content: bytes, id: str = "raw") -> None:
        """Queue content that no mailbox of ours wrote."""
        mailbox.queue.put([OutboundMessage(id, content)], None)

    def assert_empty(self, mailbox: QueueMailbox[Any]) -> None:
        assert mailbox.receive(max_messages=10) == []

    def assert_count(self, mailbox: QueueMailbox[Any], count: int) -> None:
        if self.exact_count:
            assert mailbox.approximate_count() == count

    def assert_stale(self, message: Message[Any], call: Any) -> None:
        """Assert that the call is refused; a broker that does not check may also ignore it."""
        if self.stale_ack == "rejected":
            with pytest.raises(ReceiptHandleExpiredError):
                call()
            assert not message.is_finalized
        else:
            with suppress(ReceiptHandleExpiredError):
                call()


class Waiting:
    """A `receive` in another thread, with a long poll that must end early."""

    def __init__(self, mailbox: QueueMailbox[Any], *, max_messages: int = 1) -> None:
        self.received: Sequence[Message[Any]] | None = None
        self.error: BaseException | None = None

        def receive() -> None:
            try:
                self.received = mailbox.receive(
                    max_messages=max_messages, visibility_timeout=LONG, wait_time_seconds=LONG
                )
            except BaseException as error:
                self.error = error

        self._thread = Thread(target=receive, daemon=True)
        self._thread.start()
        time.sleep(0.05)  # it most likely waits by now; the tests do not depend on it

    def result(self) -> Sequence[Message[Any]]:
        """Return what it received, soon."""
        self._thread.join(SOON)
        assert not self._thread.is_alive(), "the long poll did not end"
        if self.error is not None:
            raise self.error
        assert self.received is not None
        return self.received
