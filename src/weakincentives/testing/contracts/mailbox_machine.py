"""Any order of calls to a mailbox, compared with a model; needs hypothesis.

    class MyMachine(MailboxMachine):
        def begin(self):
            self.clock = FakeClock()
            return lambda: MyMailbox("orders", clock=self.clock)

        def advance(self, seconds):
            self.clock.advance(seconds)

    TestMine = MyMachine.TestCase

The model is exact: the queue holds what the model holds, and nothing else. All times are whole
seconds, so that every broker rounds them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ...errors import (
    MailboxError,
    MailboxFullError,
    MessageFinalizedError,
    ReceiptHandleExpiredError,
)
from ...runtime.mailbox import Message, OutboundMessage, QueueMailbox

IDS = st.sampled_from(["a", "b", "c", "d:1", "{e}", "é\u2028"])
SECONDS = st.sampled_from([0, 1, 3, 10])
POISON = b"\0 this cannot be decoded"


@dataclass
class Known:
    """One message in the queue, as the model knows it."""

    body: Any
    poison: bool
    times: int = 0
    until: float = 0  # it is not delivered before
    handle: str | None = None  # the newest, until its lease ends or it is released


@dataclass
class Issued:
    """A delivery that was received once, and may be outdated."""

    message: Message[Any]
    handle: str
    of: Known


@dataclass
class Model:
    """The expected state of the queue, and all deliveries so far."""

    now: float = 0
    here: dict[str, Known] = field(default_factory=dict)
    issued: list[Issued] = field(default_factory=list)
    handles: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)  # handles; a second time is harmless

    def available(self) -> set[str]:
        return {id for id, known in self.here.items() if known.until <= self.now}

    def holds(self, issued: Issued) -> bool:
        """Return whether this handle is valid: the newest, with a lease, of a queued message."""
        known = issued.of
        return (
            any(known is other for other in self.here.values())
            and known.handle == issued.handle
            and known.until > self.now
        )


class MailboxMachine(RuleBasedStateMachine):
    """Define `begin` and `advance`, and `max_size` if the back-end enforces it."""

    max_size: int | None = None

    def begin(self) -> Callable[[], QueueMailbox[Any]]:
        """Return a function that makes mailbox objects on a new, empty queue."""
        raise NotImplementedError(f"define `begin(self)` in {type(self).__name__}")

    def advance(self, seconds: float) -> None:
        """Let time pass for the broker."""
        raise NotImplementedError(f"define `advance(self, seconds)` in {type(self).__name__}")

    @initialize()
    def start(self) -> None:
        self.make = self.begin()
        self.boxes = [self.make(), self.make()]
        self.model = Model()
        self.sent = 0

    def teardown(self) -> None:
        for box in getattr(self, "boxes", ()):
            box.close()

    # --- sending ------------------------------------------------------------------------------

    @rule(which=st.integers(0, 1), id=st.none() | IDS)
    def send(self, which: int, id: str | None) -> None:
        """Send: an id that is queued already changes nothing; a new one needs room."""
        self.sent += 1
        body = {"number": self.sent}
        fits = id in self.model.here or not self._is_full(1)
        try:
            got = self.boxes[which].send(body, id=id)
        except MailboxFullError:
            assert not fits
            return
        assert fits
        assert id is None or got == id
        self.model.here.setdefault(got, Known(body, poison=False))

    @rule(which=st.integers(0, 1), ids=st.lists(IDS, max_size=4))
    def send_many(self, which: int, ids: list[str]) -> None:
        """Send a batch: all of it is queued, or none."""
        self.sent += 1
        new = {id for id in ids if id not in self.model.here}
        fits = not self._is_full(len(new))
        bodies = [{"number": self.sent, "at": at} for at in range(len(ids))]
        try:
            assert self.boxes[which].send_all(bodies, ids=ids) == len(ids)
        except MailboxFullError:
            assert not fits
            return
        assert fits or not new
        for id, body in zip(ids, bodies, strict=True):
            self.model.here.setdefault(id, Known(body, poison=False))

    @rule(id=IDS)
    def inject_poison(self, id: str) -> None:
        """Queue content that cannot be decoded."""
        self.boxes[0].queue.put([OutboundMessage(id, POISON)], None)
        self.model.here.setdefault(id, Known(None, poison=True))

    def _is_full(self, more: int) -> bool:
        return self.max_size is not None and len(self.model.here) + more > self.max_size

    # --- receiving ----------------------------------------------------------------------------

    @rule(which=st.integers(0, 1), count=st.integers(1, 5), lease=SECONDS)
    def receive(self, which: int, count: int, lease: int) -> None:
        """Receive up to `count` messages, each once, each with a new handle."""
        model = self.model
        available = model.available()

        found = self.boxes[which].receive(max_messages=count, visibility_timeout=lease)

        ids = [message.id for message in found]
        assert len(ids) == len(set(ids)) == min(count, len(available))
        assert set(ids) <= available
        for message in found:
            known = model.here[message.id]
            known.times += 1
            known.until = model.now + lease
            known.handle = message.receipt_handle
            assert message.delivery_count == known.times
            assert message.receipt_handle not in model.handles
            assert not message.is_finalized
            if known.poison:
                assert (message.raw, message.problem is not None) == (POISON, True)
            else:
                assert message.body == known.body
            model.handles.add(message.receipt_handle)
            model.issued.append(Issued(message, message.receipt_handle, known))

    # --- finalizing, by any handle that was ever returned -----------------------------------------

    @precondition(lambda self: self.model.issued)
    @rule(data=st.data(), good=st.booleans())
    def acknowledge(self, data: st.DataObject, good: bool) -> None:
        issued = self._any_issued(data, good)
        before = not issued.message.is_finalized and issued.handle in self.model.acknowledged
        if self._tried(issued, issued.message.acknowledge, before):
            self._remove(issued)

    @precondition(lambda self: self.model.issued)
    @rule(data=st.data(), good=st.booleans(), delay=SECONDS)
    def nack(self, data: st.DataObject, good: bool, delay: int) -> None:
        issued = self._any_issued(data, good)
        if self._tried(issued, lambda: issued.message.nack(visibility_timeout=delay)):
            issued.of.handle = None
            issued.of.until = self.model.now + delay

    @precondition(lambda self: self.model.issued)
    @rule(data=st.data(), good=st.booleans(), seconds=SECONDS)
    def extend(self, data: st.DataObject, good: bool, seconds: int) -> None:
        issued = self._any_issued(data, good)
        if self._tried(issued, lambda: issued.message.extend_visibility(seconds)):
            issued.of.until = max(issued.of.until, self.model.now + seconds)

    @precondition(lambda self: self.model.issued)
    @rule(data=st.data(), which=st.integers(0, 1))
    def acknowledge_some(self, data: st.DataObject, which: int) -> None:
        """Acknowledge a batch of valid, old and repeated handles, directly at the queue."""
        chosen = data.draw(st.lists(st.sampled_from(self.model.issued), max_size=4))
        handles = [issued.handle for issued in chosen]
        good = {issued.handle for issued in chosen if self.model.holds(issued)}

        done = self.boxes[which].queue.remove(handles)

        ended = {handle for handle, end in zip(handles, done, strict=True) if end}
        assert good <= ended <= good | self.model.acknowledged
        for issued in chosen:
            if issued.handle in good:
                self._remove(issued)

    def _any_issued(self, data: st.DataObject, good: bool) -> Issued:
        """Draw a valid delivery, or any: old ones are tried as often as new ones."""
        held = [issued for issued in self.model.issued if good and self.model.holds(issued)]
        return data.draw(st.sampled_from(held or self.model.issued))

    def _tried(self, issued: Issued, call: Callable[[], None], before: bool = False) -> bool:
        """Call, and return whether it had an effect: it must if and only if the handle is valid.

        What the same handle did `before`, with a lost response, may be confirmed or refused.
        """
        finalized, holds = issued.message.is_finalized, self.model.holds(issued)
        try:
            call()
        except MessageFinalizedError:
            assert finalized
            return False
        except ReceiptHandleExpiredError:
            assert not finalized
            assert not holds
            assert not issued.message.is_finalized
            return False
        assert not finalized
        assert holds or before
        return holds

    def _remove(self, issued: Issued) -> None:
        here = self.model.here
        for id in [id for id, known in here.items() if known is issued.of]:
            del here[id]
        self.model.acknowledged.add(issued.handle)

    # --- time, purge and close ----------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 2, 5, 20]))
    def time_passes(self, seconds: int) -> None:
        self.advance(seconds)
        self.model.now += seconds

    @precondition(lambda self: len(self.model.issued) > 5)  # there is something to find
    @rule(which=st.integers(0, 1))
    def purge(self, which: int) -> None:
        assert self.boxes[which].purge() == len(self.model.here)
        self.model.here.clear()

    @rule(which=st.integers(0, 1))
    def close_and_reopen(self, which: int) -> None:
        """Close an object: it does nothing more, and the messages stay for all others."""
        box = self.boxes[which]
        box.close()
        assert box.receive(max_messages=5) == []
        try:
            box.send("too late")
        except MailboxError:
            pass
        else:
            raise AssertionError("a closed mailbox took a message")
        self.boxes[which] = self.make()
        for issued in self.model.issued:  # like a receiver that reconnects
            issued.message._mailbox = self.boxes[which]

    @precondition(lambda self: len(self.model.issued) > 5)  # there is something to find
    @rule()
    def drain(self) -> None:
        """Receive everything: once every lease has ended, all is delivered, and nothing else."""
        self.time_passes(1000)
        box, here, found = self.boxes[0], self.model.here, dict[str, int]()
        while part := box.receive(max_messages=5, visibility_timeout=100):
            assert all(message.id in here and message.id not in found for message in part)
            found |= {message.id: message.delivery_count for message in part}
            assert all(box.acknowledge_all(part))
        assert found == {id: known.times + 1 for id, known in here.items()}
        self.model.here.clear()

    @invariant()
    def the_count_is_exact(self) -> None:
        if hasattr(self, "boxes"):
            assert self.boxes[1].approximate_count() == len(self.model.here)
