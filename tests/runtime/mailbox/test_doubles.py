"""The mailboxes for tests behave as documented."""

from __future__ import annotations

import anyio
import pytest

from weakincentives.errors import MailboxConnectionError, MailboxError, ReceiptHandleExpiredError
from weakincentives.runtime.mailbox import Message
from weakincentives.testing import CollectingMailbox, FakeMailbox, NullMailbox


def test_a_fake_is_a_mailbox() -> None:
    mailbox = FakeMailbox[str]()
    mailbox.send("hello")

    (message,) = mailbox.receive()
    message.acknowledge()

    assert (message.body, mailbox.approximate_count()) == ("hello", 0)


def test_the_lease_of_a_fake_can_expire() -> None:
    mailbox = FakeMailbox[str]()
    mailbox.send("hello")
    (message,) = mailbox.receive()

    mailbox.expire_handle(message.receipt_handle)

    with pytest.raises(ReceiptHandleExpiredError):
        message.acknowledge()
    assert [again.delivery_count for again in mailbox.receive()] == [2]


def test_a_fake_fails_until_its_error_is_cleared() -> None:
    mailbox = FakeMailbox[str]()
    mailbox.send("hello")
    (message,) = mailbox.receive()
    mailbox.set_connection_error(MailboxConnectionError("unavailable"))

    for call in (
        lambda: mailbox.send("more"),
        lambda: mailbox.send_all(["more"]),
        mailbox.receive,
        mailbox.purge,
        mailbox.approximate_count,
        message.acknowledge,
        message.nack,
        lambda: message.extend_visibility(5),
    ):
        with pytest.raises(MailboxConnectionError, match="unavailable"):
            call()

    mailbox.clear_connection_error()
    message.acknowledge()
    assert mailbox.approximate_count() == 0


def test_a_message_can_be_acknowledged_after_a_failed_try() -> None:
    mailbox = FakeMailbox[str]()
    mailbox.send("hello")
    (message,) = mailbox.receive()
    mailbox.set_connection_error(MailboxConnectionError("unavailable"))
    with pytest.raises(MailboxConnectionError):
        message.acknowledge()

    assert not message.is_finalized


@pytest.mark.anyio
async def test_a_failing_fake_interrupts_a_wait() -> None:
    mailbox = FakeMailbox[str]()

    async def fail() -> None:
        await anyio.sleep(0.02)
        mailbox.set_connection_error(MailboxConnectionError("unavailable"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(fail)
            with pytest.raises(MailboxConnectionError, match="unavailable"):
                await mailbox.receive_async(wait_time_seconds=600)


def test_an_injected_message_was_delivered_before() -> None:
    mailbox, answers = FakeMailbox[str](), CollectingMailbox[str]()
    mailbox.set_connection_error(MailboxConnectionError("unavailable"))
    assert mailbox.inject_message("hello", id="a", delivery_count=5, reply_to=answers) == "a"
    mailbox.clear_connection_error()

    (message,) = mailbox.receive()
    message.reply("hi")

    assert (message.id, message.body, message.delivery_count) == ("a", "hello", 5)
    assert answers.sent == ["hi"]


def test_injected_bytes_are_an_undecodable_body() -> None:
    mailbox = FakeMailbox[str]()
    mailbox.inject_message(b"garbage")

    (message,) = mailbox.receive()

    assert message.problem is not None
    assert message.raw == b"garbage"


def test_a_collecting_mailbox_shows_what_was_sent() -> None:
    mailbox = CollectingMailbox[str]()
    mailbox.send("a")
    mailbox.send_all(["b", "c"])

    assert mailbox.sent == ["a", "b", "c"]
    assert list[Message[str]]() == mailbox.receive()
    assert mailbox.approximate_count() == 0


def test_a_null_mailbox_keeps_nothing() -> None:
    mailbox = NullMailbox[str]()

    assert mailbox.send("a", id="x") == "x"
    assert mailbox.send_all(["b", "c"]) == 2
    assert (mailbox.receive(), mailbox.approximate_count()) == ([], 0)


@pytest.mark.parametrize("kind", [CollectingMailbox, FakeMailbox, NullMailbox])
def test_a_closed_double_refuses_messages(kind: type[NullMailbox[str]]) -> None:
    mailbox = kind()
    mailbox.close()

    with pytest.raises(MailboxError, match="open mailbox"):
        mailbox.send("a")
