"""Behaviour of the mailbox in memory, and of the core that all mailboxes share."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from weakincentives.errors import InvalidParameterError, UsageError
from weakincentives.runtime.mailbox import (
    InMemoryMailbox,
    Mailbox,
    MemoryQueue,
    Message,
    QueueMailbox,
    SqliteMailbox,
)
from weakincentives.testing import CollectingMailbox, FakeClock, FakeMailbox, NullMailbox


def test_a_body_is_not_copied() -> None:
    mailbox, body = InMemoryMailbox[object](), object()
    mailbox.send(body)

    assert mailbox.receive()[0].body is body


def test_a_reply_address_is_the_mailbox_itself() -> None:
    questions, answers = InMemoryMailbox[str]("questions"), InMemoryMailbox[str]("answers")
    questions.send("2 + 2?", reply_to=answers)

    assert questions.receive()[0].reply_to is answers


@pytest.mark.parametrize(
    "kind",
    [
        *(Mailbox, Message, QueueMailbox, InMemoryMailbox, SqliteMailbox),
        *(FakeMailbox, CollectingMailbox, NullMailbox),
    ],
)
def test_a_mailbox_has_a_type_of_bodies_and_may_have_one_of_replies(kind: Any) -> None:
    assert kind[str, int].__args__ == (str, int)
    assert kind[str].__args__ == (str, Any)
    with pytest.raises(TypeError):
        kind[str, int, bool]


def test_a_name_without_a_mailbox_does_not_resolve() -> None:
    questions = InMemoryMailbox[str]("questions")
    questions.send("2 + 2?", reply_to="answers")

    assert questions.receive()[0].reply_to is None


def test_siblings_of_one_name_are_one_queue() -> None:
    mailbox = InMemoryMailbox[str]("questions")
    mailbox.sibling("dead").send("letter")

    assert [message.body for message in mailbox.sibling("dead").receive()] == ["letter"]
    assert InMemoryMailbox("dead").receive() == []


def test_a_lease_that_ends_during_a_wait_gives_its_message() -> None:
    mailbox = InMemoryMailbox[str]()
    mailbox.send("hello")
    mailbox.receive(visibility_timeout=0.05)

    assert [m.delivery_count for m in mailbox.receive(wait_time_seconds=600)] == [2]


@pytest.mark.anyio
async def test_a_lease_that_ends_during_a_wait_of_an_event_loop_gives_its_message() -> None:
    mailbox = InMemoryMailbox[str]()
    mailbox.send("hello")
    mailbox.receive(visibility_timeout=0.05)

    with anyio.fail_after(60):
        messages: list[Any] = []
        while not messages:
            messages = await mailbox.receive_async(wait_time_seconds=600)

    assert [message.delivery_count for message in messages] == [2]


@pytest.mark.anyio
async def test_each_message_goes_to_one_of_many_waiting_tasks() -> None:
    mailbox = InMemoryMailbox[int]()
    bodies: list[int] = []

    async def work() -> None:
        while True:
            for message in await mailbox.receive_async(max_messages=3, wait_time_seconds=600):
                bodies.append(message.body)
                message.acknowledge()
            if len(bodies) == 50:
                group.cancel_scope.cancel()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(work)
            for number in range(50):
                mailbox.send(number)
                await anyio.lowlevel.checkpoint()

    assert sorted(bodies) == list(range(50))


def test_an_unlimited_wait_can_be_ended() -> None:
    mailbox = InMemoryMailbox[str]()
    threading.Timer(0.02, mailbox.send, ["hello"]).start()

    assert mailbox.receive(wait_time_seconds=float("inf"))[0].body == "hello"


def test_expired_leases_are_removed() -> None:
    mailbox = InMemoryMailbox[int](clock=FakeClock())
    mailbox.send("stays")  # type: ignore[arg-type]
    mailbox.receive()

    for _ in range(50):
        mailbox.send_all(range(200))
        mailbox.acknowledge_all(mailbox.receive(max_messages=200, visibility_timeout=40_000))

    noted = sum(len(handles) for _, handles in mailbox.queue._leases)
    assert noted == mailbox.queue._noted <= 2000
    assert mailbox.approximate_count() == 1


def test_only_expired_leases_are_removed() -> None:
    clock = FakeClock()
    mailbox = InMemoryMailbox[int](clock=clock)
    mailbox.send(-1)
    (first,) = mailbox.receive(visibility_timeout=100)
    first.extend_visibility(1000)
    mailbox.send(-2)
    mailbox.receive()[0].nack(visibility_timeout=500)

    for _ in range(20):
        mailbox.send_all(range(200))
        mailbox.acknowledge_all(mailbox.receive(max_messages=200))

    received = []
    for second in (499, 500, 999, 1000):
        clock.advance(second - clock.monotonic())
        received.append([message.body for message in mailbox.receive(visibility_timeout=5000)])
    assert received == [[], [-2], [], [-1]]


def test_a_handle_that_is_twice_in_a_batch_is_acknowledged_once() -> None:
    queue = MemoryQueue("orders")
    mailbox = InMemoryMailbox[str](queue=queue)
    mailbox.send("hello")
    handle = mailbox.receive()[0].receipt_handle

    assert queue.release([handle, handle], 0) == [True, False]

    assert len(mailbox.receive(max_messages=10)) == 1


def test_a_message_that_is_twice_in_a_batch_is_finished() -> None:
    mailbox = InMemoryMailbox[str]()
    mailbox.send("hello")
    (message,) = mailbox.receive()

    mailbox.acknowledge_all([message, message])

    assert message.is_finalized


# ── what every mailbox refuses ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_mailbox_has_a_name(name: Any) -> None:
    with pytest.raises(UsageError, match="name"):
        InMemoryMailbox(name)


@pytest.mark.parametrize("id", ["", 5, b"a"])
def test_an_id_is_text(id: Any) -> None:
    mailbox = InMemoryMailbox[str]()

    with pytest.raises(InvalidParameterError, match="id"):
        mailbox.send("hello", id=id)
    with pytest.raises(InvalidParameterError, match="id"):
        mailbox.send_all(["hello"], ids=[id])


def test_ids_must_be_given_for_all_bodies() -> None:
    mailbox = InMemoryMailbox[str]()

    with pytest.raises(UsageError, match="expected `ids` for every body, got only 1"):
        mailbox.send_all(["a", "b"], ids=["1"])

    assert mailbox.approximate_count() == 0
