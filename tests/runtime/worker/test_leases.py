"""Heartbeats, and leases that last as long as the work on real mailboxes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from tests.processes import until
from weakincentives.errors import MailboxConnectionError, UsageError
from weakincentives.runtime.mailbox import InMemoryMailbox, MemoryQueue, Message
from weakincentives.runtime.worker.heartbeat import Heartbeat
from weakincentives.runtime.worker.leases import LeaseExtender, LeaseExtenderConfig
from weakincentives.testing import FakeClock

TIMEOUT = 60.0  # seconds
OFTEN = LeaseExtenderConfig(interval=0.01, extension=300)


class Unavailable(MemoryQueue):
    """A queue whose server is reachable again after some failed extensions."""

    def __init__(self, failures: int, clock: FakeClock | None = None) -> None:
        super().__init__("unavailable", clock or FakeClock())
        self.failures = failures
        self.failed = threading.Event()

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        if self.failures:
            self.failures -= 1
            self.failed.set()
            raise MailboxConnectionError("no route")
        return super().extend(handles, seconds)


def leased(mailbox: InMemoryMailbox[str], seconds: float = 30) -> Message[str]:
    mailbox.send("work")
    (message,) = mailbox.receive(visibility_timeout=seconds)
    return message


def after_beats(heartbeat: Heartbeat, times: int = 1) -> threading.Event:
    """Return an event that is set after this many beats."""
    event, counts = threading.Event(), iter(range(times))
    last = times - 1
    heartbeat.add_callback(lambda: event.set() if next(counts, last) == last else None)
    return event


# ── heartbeats ──────────────────────────────────────────────────────────────────────────────────


def test_a_heartbeat_ages_until_it_beats() -> None:
    clock = FakeClock()
    heartbeat = Heartbeat(clock)
    clock.advance(5)
    old = heartbeat.elapsed()
    heartbeat.beat()

    assert (old, heartbeat.elapsed()) == (5, 0)


def test_a_failing_callback_is_logged_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heartbeat, heard_by = Heartbeat(), []

    def fail() -> None:
        raise RuntimeError("deaf")

    def count_beat() -> None:
        heard_by.append("me")

    heartbeat.add_callback(fail)
    heartbeat.add_callback(count_beat)
    heartbeat.beat()
    heartbeat.remove_callback(count_beat)
    heartbeat.remove_callback(count_beat)
    heartbeat.beat()

    assert heard_by == ["me"]
    assert "deaf" in caplog.text


def test_callbacks_may_be_added_and_removed_during_a_beat() -> None:
    heartbeat = Heartbeat()
    own = [lambda: None for _ in range(200)]

    def add_and_remove() -> None:
        for callback in own:
            heartbeat.add_callback(callback)
            heartbeat.remove_callback(callback)

    threads = [threading.Thread(target=add_and_remove) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        heartbeat.beat()

    assert heartbeat._callbacks == ()


# ── configuration ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("interval", "extension"), [(0, 300), (-1, 300), (60, 60), (60, 43_201), ("1", 3), (True, 3)]
)
def test_a_configuration_that_would_lose_leases_is_refused(
    interval: float, extension: float
) -> None:
    with pytest.raises(UsageError, match="expected"):
        LeaseExtenderConfig(interval=interval, extension=extension)


@pytest.mark.parametrize(
    ("lease", "interval", "extension"), [(1800, 60, 300), (300, 60, 300), (30, 10, 30), (3, 1, 3)]
)
def test_a_lease_is_extended_at_least_twice_before_its_end_and_not_beyond_it(
    lease: float, interval: float, extension: float
) -> None:
    config = LeaseExtenderConfig().for_lease(lease)

    assert (config.interval, config.extension) == (interval, extension)


def test_an_invalid_lease_is_refused() -> None:
    with pytest.raises(UsageError, match="more than 0"):
        LeaseExtenderConfig().for_lease(0)


# ── extending ───────────────────────────────────────────────────────────────────────────────────


def test_a_lease_lasts_as_long_as_the_block() -> None:
    clock = FakeClock()
    mailbox = InMemoryMailbox[str](clock=clock)
    message = leased(mailbox, 30)
    heartbeat = Heartbeat()
    with LeaseExtender(OFTEN, clock).attach(message, heartbeat):
        for _ in range(5):
            assert after_beats(heartbeat, 2).wait(
                TIMEOUT
            )  # the second beat started after the clock was moved
            clock.advance(200)
        assert after_beats(heartbeat, 2).wait(TIMEOUT)
        assert mailbox.receive() == []
    message.acknowledge()

    assert mailbox.approximate_count() == 0


def test_a_lease_is_extended_at_once_since_its_remaining_time_is_unknown() -> None:
    clock = FakeClock()
    mailbox = InMemoryMailbox[str](clock=clock)
    message = leased(mailbox, 1)
    heartbeat = Heartbeat()
    first = after_beats(heartbeat)
    with LeaseExtender(LeaseExtenderConfig(), clock).attach(message, heartbeat):
        assert first.wait(TIMEOUT)
    clock.advance(299)

    assert mailbox.receive() == []


def test_a_long_lease_does_not_become_shorter() -> None:
    clock = FakeClock()
    mailbox = InMemoryMailbox[str](clock=clock)
    message = leased(mailbox, 1800)
    heartbeat = Heartbeat()
    first = after_beats(heartbeat)
    with LeaseExtender(OFTEN, clock).attach(message, heartbeat):
        assert first.wait(TIMEOUT)
    clock.advance(1799)

    assert mailbox.receive() == []


def test_one_extender_keeps_several_messages_and_nothing_is_left_running() -> None:
    mailbox = InMemoryMailbox[str]()
    extender = LeaseExtender(OFTEN)
    first, second = leased(mailbox), leased(mailbox)
    beats = [Heartbeat(), Heartbeat()]
    events = [after_beats(beat, 3) for beat in beats]
    with extender.attach(first, beats[0]), extender.attach(second, beats[1]):
        assert all(event.wait(TIMEOUT) for event in events)

    names = {f"wink-lease-{message.id}" for message in (first, second)}
    until(lambda: not names & {each.name for each in threading.enumerate()})


def test_the_end_of_the_block_does_not_wait_for_the_interval() -> None:
    done = threading.Event()

    def work() -> None:
        rarely = LeaseExtenderConfig(interval=10 * TIMEOUT, extension=20 * TIMEOUT)
        with LeaseExtender(rarely).attach(leased(InMemoryMailbox[str]())):
            pass
        done.set()

    threading.Thread(target=work, daemon=True).start()

    assert done.wait(TIMEOUT)


def test_a_disabled_extender_does_nothing() -> None:
    clock = FakeClock()
    mailbox = InMemoryMailbox[str](clock=clock)
    with LeaseExtender(LeaseExtenderConfig(enabled=False), clock).attach(leased(mailbox, 30)):
        clock.advance(31)

    assert len(mailbox.receive()) == 1


# ── losing ──────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_lease_is_reported_once_and_the_work_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    mailbox = InMemoryMailbox[str](clock=clock)
    message = leased(mailbox, 30)
    clock.advance(31)
    calls: list[str] = []
    lost = threading.Event()

    def on_lost() -> None:
        calls.append("lost")
        lost.set()
        raise RuntimeError("not my day")

    with LeaseExtender(OFTEN, clock).attach(message, on_lost=on_lost):
        assert lost.wait(TIMEOUT)
    with LeaseExtender(OFTEN, clock).attach(message):
        pass  # no callback

    until(lambda: "not my day" in caplog.text)  # logged by another thread
    assert calls == ["lost"]
    assert "lost the lease" in caplog.text


def test_a_message_that_is_done_within_the_block_is_not_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mailbox = InMemoryMailbox[str]()
    calls: list[str] = []
    caplog.set_level(logging.WARNING)
    for _ in range(50):
        message = leased(mailbox)
        with LeaseExtender(OFTEN).attach(message, on_lost=lambda: calls.append("lost")):
            message.acknowledge()

    assert calls == []
    assert caplog.text == ""


def test_connection_errors_are_retried() -> None:
    queue = Unavailable(failures=3)
    mailbox = InMemoryMailbox[str](queue=queue)
    heartbeat = Heartbeat()
    first = after_beats(heartbeat)
    with LeaseExtender(OFTEN).attach(leased(mailbox), heartbeat):
        assert first.wait(TIMEOUT)

    assert queue.failures == 0


def test_an_unavailable_server_means_a_lost_lease_when_the_lease_ends() -> None:
    clock = FakeClock()
    queue = Unavailable(failures=1_000_000, clock=clock)
    message = leased(InMemoryMailbox[str](queue=queue))
    lost = threading.Event()
    with LeaseExtender(OFTEN, clock).attach(message, on_lost=lost.set):
        assert queue.failed.wait(TIMEOUT)
        assert not lost.is_set()
        clock.advance(301)
        assert lost.wait(TIMEOUT)
