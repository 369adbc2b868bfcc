"""Dead letters: created, listed, replayed and consumed, on real mailboxes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, strategies as st

from tests.processes import until
from tests.runtime.mailbox import sqs_server
from weakincentives import serde
from weakincentives.errors import (
    MailboxConnectionError,
    MailboxFullError,
    ProviderError,
    UsageError,
    WinkError,
)
from weakincentives.runtime.mailbox import (
    Delivery,
    InMemoryMailbox,
    MemoryQueue,
    Message,
    OutboundMessage,
    QueueMailbox,
    SQSMailbox,
)
from weakincentives.runtime.worker.dead_letters import (
    Backoff,
    DeadLetter,
    DLQPolicy,
    dead_letters_of,
    replay,
)
from weakincentives.runtime.worker.dlq_consumer import DLQConsumer
from weakincentives.testing import FakeClock

TIMEOUT = 60.0


@dataclass(frozen=True)
class Job:
    text: str
    request_id: UUID = field(default_factory=uuid4)


def bytes_mailbox(name: str = "jobs", body_type: Any = None, **more: Any) -> QueueMailbox[Any]:
    """Return a mailbox that stores bodies as bytes, as every backend but memory does."""
    return QueueMailbox(MemoryQueue(name), body_type=body_type, **more)


def delivered(mailbox: QueueMailbox[Any], times: int = 1) -> Message[Any]:
    """Return the first message, in its n-th delivery."""
    for _ in range(times - 1):
        mailbox.receive()[0].nack()
    return mailbox.receive()[0]


def letters_to(mailbox: QueueMailbox[Any], *texts: str) -> list[DeadLetter[Job]]:
    """Send failed jobs to this mailbox as dead letters; return them."""
    jobs = InMemoryMailbox[Job]("jobs")
    for text in texts:
        jobs.send(Job(text), id=f"id-{text}", reply_to="answers")
    letters = [DeadLetter.of(each, each.body.text) for each in jobs.receive(max_messages=99)]
    mailbox.send_all(letters)
    return letters


# ── letters ─────────────────────────────────────────────────────────────────────────────────────


def test_a_dead_letter_names_message_mailbox_and_error() -> None:
    clock = FakeClock()
    jobs = InMemoryMailbox[Job]("jobs", clock=clock)
    job = Job("hard")
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    id = jobs.send(job, reply_to="answers", headers=trace)
    sent = clock.now()
    clock.advance(60)
    letter = DeadLetter.of(delivered(jobs, 3), ProviderError("overloaded"), clock=clock)

    assert (letter.message_id, letter.body, letter.source_mailbox) == (id, job, "jobs")
    assert (letter.last_error, letter.delivery_count) == ("overloaded", 3)
    assert letter.last_error_type == "weakincentives.errors.ProviderError"
    assert (letter.first_received_at, letter.dead_lettered_at) == (sent, clock.now())
    assert (letter.request_id, letter.reply_to) == (str(job.request_id), "answers")
    assert letter.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert letter.raw is None


def test_a_dead_letter_is_serialized_with_the_type_of_its_body() -> None:
    dead = bytes_mailbox("dead", DeadLetter)
    (letter,) = letters_to(dead, "hard")

    assert dead.receive()[0].body == letter
    assert serde.decode(serde.encode(letter), DeadLetter[Job]) == letter


def test_a_body_that_cannot_be_read_is_kept_byte_for_byte() -> None:
    jobs, dead = bytes_mailbox(), bytes_mailbox("dead", DeadLetter)
    poison = b"\xff\x00 no envelope"
    jobs.queue.put([OutboundMessage("bad", poison)], None)
    message = delivered(jobs)
    assert message.problem is not None
    dead.send(DeadLetter.of(message, message.problem))
    letter = dead.receive()[0].body

    assert (letter.body, letter.raw, letter.last_error_type) == (None, poison, "")
    assert letter.last_error == message.problem


def test_an_empty_or_very_long_error_is_stored() -> None:
    jobs = InMemoryMailbox[str]()
    jobs.send("x")
    message = delivered(jobs)

    assert DeadLetter.of(message, KeyboardInterrupt()).last_error == "KeyboardInterrupt"
    assert len(DeadLetter.of(message, ValueError("x" * 1_000_000)).last_error) < 5000
    assert DeadLetter.of(message, "late").request_id is None


# ── retries and policies ────────────────────────────────────────────────────────────────────────


@given(st.integers(-3, 10**9), st.floats(0, 1))
def test_a_delay_never_exceeds_the_maximum(attempt: int, chance: float) -> None:
    assert 0 <= Backoff().delay(attempt, chance) <= 900


def test_delays_grow_and_jitter_spreads_them() -> None:
    exact = Backoff(jitter=0.0)
    half = Backoff(jitter=0.5)

    assert [exact.delay(n, 0.3) for n in (1, 2, 3, 4, 11, 5000)] == [1, 2, 4, 8, 900, 900]
    assert [Backoff().delay(3, chance) for chance in (0.0, 0.5, 1.0)] == [0, 2, 4]
    assert [half.delay(3, chance) for chance in (0.0, 0.5, 1.0)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("name", "value"),
    [("base", -1), ("factor", 0.5), ("max_delay", 50_000), ("jitter", 1.1), ("base", "1")],
)
def test_a_backoff_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"`Backoff.{name}`"):
        Backoff(**{name: value})


class TransientError(ProviderError):
    """A subclass, which the exact type would miss."""


def test_a_policy_checks_exclusion_then_inclusion_then_count() -> None:
    jobs, dead = InMemoryMailbox[str](), InMemoryMailbox[DeadLetter[str]]()
    jobs.send("x")
    early = delivered(jobs)
    policy = DLQPolicy(dead, include_errors=[ValueError], exclude_errors={ProviderError})
    both = DLQPolicy(dead, include_errors=WinkError, exclude_errors=ProviderError)  # type: ignore[arg-type]
    decide = policy.should_dead_letter

    assert not decide(early, KeyError("x"))
    assert decide(early, UnicodeDecodeError("utf-8", b"", 0, 1, "x"))
    assert not both.should_dead_letter(early, TransientError("x"))
    early.nack()
    late = delivered(jobs, 4)
    assert late.delivery_count == 5
    assert decide(late, KeyError("x"))
    assert not decide(late, TransientError("x"))


def test_a_policy_can_be_overridden() -> None:
    class NeverDeadLetters(DLQPolicy[str]):
        def should_dead_letter(self, message: Message[str], error: BaseException) -> bool:
            return message.body == "hopeless"

    jobs = InMemoryMailbox[str]()
    jobs.send("hopeless")
    policy = NeverDeadLetters(InMemoryMailbox(), max_delivery_count=1)

    assert policy.should_dead_letter(delivered(jobs), ValueError())
    assert policy.backoff == Backoff()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_delivery_count": 0},
        {"max_delivery_count": None},
        {"include_errors": [3]},
        {"exclude_errors": [str]},
        {"mailbox": "dead"},
    ],
)
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"DLQPolicy.{next(iter(wrong))}"):
        DLQPolicy(**{"mailbox": InMemoryMailbox(), **wrong})


# ── listing ─────────────────────────────────────────────────────────────────────────────────────


def test_listing_removes_nothing() -> None:
    dead = InMemoryMailbox[DeadLetter[Job]]("dead")
    letters = letters_to(dead, "a", "b", "c")

    assert dead_letters_of(dead, 2) == letters[:2]
    assert len(dead_letters_of(dead)) == 3
    assert len(dead.receive(max_messages=9)) == 3
    assert dead_letters_of(dead) == []  # they are leased


def test_an_undecodable_dead_letter_is_listed_with_the_reason() -> None:
    dead = bytes_mailbox("dead", DeadLetter)
    dead.queue.put([OutboundMessage("odd", b"?")], None)
    (letter,) = dead_letters_of(dead)

    assert (letter.message_id, letter.raw, letter.source_mailbox) == ("odd", b"?", "dead")


# ── replaying ───────────────────────────────────────────────────────────────────────────────────


def test_replayed_letters_keep_their_id_and_reply_address() -> None:
    dead, jobs = bytes_mailbox("dead", DeadLetter), bytes_mailbox()
    letters_to(dead, "a", "b")

    assert replay(dead, jobs) == 2
    assert dead.approximate_count() == 0
    back = jobs.receive(max_messages=9)
    assert [(each.id, each.body.text) for each in back] == [("id-a", "a"), ("id-b", "b")]
    assert {each.reply_address for each in back} == {"answers"}
    assert {each.delivery_count for each in back} == {1}


def test_a_replay_of_some_letters_keeps_the_others() -> None:
    dead, jobs = InMemoryMailbox[DeadLetter[Job]](), InMemoryMailbox[Job]()
    letters_to(dead, "a", "b", "a2", "a3")

    assert replay(dead, jobs, limit=2, where=lambda each: each.last_error[0] == "a") == 2
    assert [each.body.text for each in jobs.receive(max_messages=9)] == ["a", "a2"]
    assert {each.last_error for each in dead_letters_of(dead)} == {"b", "a3"}
    assert replay(dead, jobs, limit=0) == 0


@pytest.mark.parametrize("make", [bytes_mailbox, InMemoryMailbox])
def test_an_undecodable_body_is_replayed_byte_for_byte(make: Any) -> None:
    jobs, dead = make("jobs"), bytes_mailbox("dead", DeadLetter)
    jobs.queue.put([OutboundMessage("bad", b"\xffpoison", "answers")], None)
    message = delivered(jobs)
    dead.send(DeadLetter.of(message, "unreadable"))
    message.acknowledge()

    assert replay(dead, jobs) == 1
    again = delivered(jobs)
    assert (again.id, again.raw, again.reply_address) == ("bad", b"\xffpoison", "answers")


def test_a_full_target_loses_nothing() -> None:
    dead, jobs = InMemoryMailbox[DeadLetter[Job]](), InMemoryMailbox[Job](max_size=1)
    letters_to(dead, "a", "b", "c")

    with pytest.raises(MailboxFullError):
        replay(dead, jobs)
    assert jobs.approximate_count() == 1
    assert {each.last_error for each in dead_letters_of(dead)} == {"b", "c"}


class DiesBeforeRemoving(MemoryQueue):
    def remove(self, handles: Sequence[str]) -> list[bool]:
        raise MailboxConnectionError("the wire was cut")


def test_a_crash_between_send_and_acknowledge_repeats_and_does_not_lose() -> None:
    dead = InMemoryMailbox[DeadLetter[Job]](queue=DiesBeforeRemoving("dead"))
    jobs = InMemoryMailbox[Job]()
    letters_to(dead, "a")

    assert replay(dead, jobs) == 1
    assert replay(dead, jobs) == 1  # still there, and its id prevents a second copy
    assert jobs.approximate_count() == 1
    assert dead.approximate_count() == 1


class ReleasesNothing(MemoryQueue):
    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        raise MailboxConnectionError("the wire was cut")


def test_dead_letters_that_cannot_be_released_return_when_their_lease_ends() -> None:
    clock = FakeClock()
    dead = InMemoryMailbox[DeadLetter[Job]](clock=clock, queue=ReleasesNothing("dead", clock))
    letters_to(dead, "a")
    dead_letters_of(dead)
    clock.advance(301)

    assert len(dead.receive()) == 1


def test_a_listing_that_outlasts_its_leases_terminates() -> None:
    clock = FakeClock()
    dead = InMemoryMailbox[DeadLetter[Job]](clock=clock)
    letters_to(dead, "a", "b")

    def slow(letter: DeadLetter[Job]) -> bool:
        clock.advance(1000)
        return False

    assert replay(dead, InMemoryMailbox[Job](), where=slow) == 0
    assert dead.approximate_count() == 2


def test_an_undecodable_dead_letter_is_not_replayed(caplog: pytest.LogCaptureFixture) -> None:
    dead = bytes_mailbox("dead", DeadLetter)
    dead.queue.put([OutboundMessage("odd", b"?")], None)

    assert replay(dead, bytes_mailbox()) == 0
    assert dead.approximate_count() == 1
    assert "left <Message odd" in caplog.text


# ── the consumer ────────────────────────────────────────────────────────────────────────────────


def test_a_handled_letter_is_removed_and_a_failed_one_is_redelivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    dead = InMemoryMailbox[DeadLetter[Job]](clock=clock)
    letters_to(dead, "good", "bad")
    errors: list[str] = []

    def handle(letter: DeadLetter[Job]) -> None:
        errors.append(letter.last_error)
        if letter.last_error == "bad":
            raise RuntimeError("no")

    consumer = DLQConsumer(mailbox=dead, handler=handle, backoff=Backoff(base=60, jitter=0))
    consumer.run(max_iterations=3, wait_time_seconds=0)
    clock.advance(61)
    consumer.run(max_iterations=1, wait_time_seconds=0)

    assert errors == ["good", "bad", "bad"]
    assert dead.approximate_count() == 1
    assert consumer.metrics() == {"dead_letters_handled_total": 1, "failures_total": 2}
    assert "keeping it" in caplog.text


def test_an_undecodable_dead_letter_is_kept_too() -> None:
    dead = bytes_mailbox("dead", DeadLetter)
    dead.queue.put([OutboundMessage("odd", b"?")], None)
    DLQConsumer(mailbox=dead, handler=print).run(max_iterations=2, wait_time_seconds=0)

    assert dead.approximate_count() == 1


def test_shutdown_wakes_it_at_once() -> None:
    consumer = DLQConsumer(mailbox=InMemoryMailbox(), handler=print)
    options = {"wait_time_seconds": 3600}
    thread = threading.Thread(target=consumer.run, kwargs=options, daemon=True)
    beaten = threading.Event()
    consumer.heartbeat.add_callback(beaten.set)
    thread.start()
    assert beaten.wait(TIMEOUT)

    assert consumer.running
    assert consumer.shutdown(timeout=TIMEOUT)
    assert not consumer.running


def test_shutdown_waits_for_the_handler_and_says_whether_it_ended() -> None:
    dead = InMemoryMailbox[DeadLetter[Job]]()
    letters_to(dead, "slow")
    entered, leave = threading.Event(), threading.Event()

    def handle(letter: DeadLetter[Job]) -> None:
        entered.set()
        leave.wait(TIMEOUT)

    consumer = DLQConsumer(mailbox=dead, handler=handle)
    threading.Thread(target=consumer.run).start()
    assert entered.wait(TIMEOUT)
    in_vain = consumer.shutdown(timeout=0)
    leave.set()

    assert not in_vain
    assert consumer.shutdown(timeout=TIMEOUT)
    assert dead.approximate_count() == 0


def test_a_shutdown_before_the_start_is_not_forgotten_and_holds_once() -> None:
    dead = InMemoryMailbox[DeadLetter[Job]]()
    letters_to(dead, "a")
    consumer = DLQConsumer(mailbox=dead, handler=lambda letter: None)
    assert consumer.shutdown()
    consumer.run()
    remaining = dead.approximate_count()
    consumer.run(max_iterations=1)

    assert (remaining, dead.approximate_count()) == (1, 0)


def test_a_closed_mailbox_ends_it() -> None:
    dead = InMemoryMailbox[DeadLetter[Job]]()
    consumer = DLQConsumer(mailbox=dead, handler=print)
    thread = threading.Thread(target=consumer.run)
    beaten = threading.Event()
    consumer.heartbeat.add_callback(beaten.set)
    thread.start()
    assert beaten.wait(TIMEOUT)
    dead.close()
    thread.join(TIMEOUT)

    assert not thread.is_alive()


class UnavailableAtFirst(MemoryQueue):
    failures = 2

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        if self.failures:
            self.failures -= 1
            raise MailboxConnectionError("no route")
        return super().take(count, lease, wait)


def test_an_unavailable_server_is_retried() -> None:
    dead = InMemoryMailbox[DeadLetter[Job]](queue=UnavailableAtFirst("dead"))
    letters_to(dead, "a")
    DLQConsumer(mailbox=dead, handler=lambda letter: None).run(max_iterations=3)

    assert dead.approximate_count() == 0


def test_a_lost_response_does_not_end_the_consumer() -> None:
    for queue in (DiesBeforeRemoving("dead"), ReleasesNothing("dead")):
        dead = InMemoryMailbox[DeadLetter[Job]](queue=queue)
        letters_to(dead, "a")
        fails = isinstance(queue, ReleasesNothing)
        handler: Any = (lambda letter: 1 / 0) if fails else (lambda letter: None)
        DLQConsumer(mailbox=dead, handler=handler).run(max_iterations=1)

        assert dead.approximate_count() == 1


def test_a_handler_must_be_a_function() -> None:
    with pytest.raises(UsageError, match="`handler`"):
        DLQConsumer(mailbox=InMemoryMailbox(), handler=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a lease of more than 0"):
        DLQConsumer(mailbox=InMemoryMailbox(), handler=print, visibility_timeout=0)


def test_a_consumer_cannot_run_twice_concurrently() -> None:
    """Otherwise the end of one run would mark the consumer as stopped."""
    mailbox: InMemoryMailbox[Any] = InMemoryMailbox("dead")
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=mailbox, handler=print)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    until(lambda: consumer.running)
    with pytest.raises(UsageError, match="not running, got one that is"):
        consumer.run(max_iterations=1)

    assert consumer.running
    assert consumer.shutdown(timeout=TIMEOUT)
    thread.join()


def test_dead_letters_that_share_an_id_are_all_listed_on_sqs() -> None:
    server = sqs_server.running()
    server.reset()
    dead: SQSMailbox[Any] = SQSMailbox("dead", server.client)
    letters = letters_to(InMemoryMailbox("elsewhere"), "first", "second", "third")
    for letter in letters:
        dead.send(letter, id="the-same")
        time.sleep(0.005)  # they differ by the millisecond in which they were sent

    assert {letter.last_error for letter in dead_letters_of(dead)} == {"first", "second", "third"}
