"""Bodies on SQS: ASCII, split batches, and references to a store for long ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.mailbox.sqs_server import SqsServer
from tests.runtime.mailbox.test_sqs import mailbox, receive_one, server
from weakincentives.errors import MailboxConnectionError, MailboxError, StoreError
from weakincentives.runtime.mailbox import OutboundMessage, SQSMailbox
from weakincentives.testing import FakeClock

__all__ = ["mailbox", "server"]  # the fixtures


class MemoryStore:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.broken = False

    def find(self, key: str) -> bytes | None:
        self._check()
        return self.values.get(key)

    def keep(self, key: str, value: bytes) -> bytes:
        self._check()
        return self.values.setdefault(key, value)

    def _check(self) -> None:
        if self.broken:
            raise StoreError("the shelf is broken")


def body_in(server: SqsServer, name: str = "orders") -> str:
    url = server.client.get_queue_url(QueueName=name)["QueueUrl"]
    (found,) = server.client.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
    return str(found["Body"])


def test_plain_bodies_are_sent_as_text_and_others_as_ascii(
    server: SqsServer, mailbox: SQSMailbox[Any]
) -> None:
    mailbox.send("tea")
    assert body_in(server).endswith('\n"tea"')
    receive_one(mailbox).acknowledge()
    mailbox.send("té\ufffe\0")

    assert body_in(server).startswith("base64:")
    assert body_in(server).isascii()
    assert receive_one(mailbox).body == "té\ufffe\0"


@pytest.mark.parametrize(
    "content", [b"", b"base64:", b"base64:dGVh", b"claim:\xff", b"a\rb", b"\xff"]
)
def test_any_content_is_returned_unchanged(server: SqsServer, content: bytes) -> None:
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, store=MemoryStore())
    mailbox.queue.put([OutboundMessage("1", content)], None)
    message = receive_one(mailbox)

    assert message.raw == content
    assert message.problem


@pytest.mark.parametrize("body", ["hello", "base64:no", "claim:", "[[[", "é"])
def test_a_foreign_message_is_delivered_with_the_problem(
    server: SqsServer, mailbox: SQSMailbox[Any], body: str
) -> None:
    server.client.send_message(
        QueueUrl=mailbox.queue.find(),
        MessageBody=body,
        MessageAttributes={
            "wink-reply-to": {"DataType": "String", "StringValue": "[" * 50},
            "theirs": {"DataType": "Binary", "BinaryValue": b"\0"},
        },
    )

    message = receive_one(mailbox)

    assert (message.raw, message.problem is not None) == (body.encode(), True)
    assert message.reply_to is None
    message.acknowledge()


def test_a_body_that_is_too_long_is_refused_before_anything_is_sent(
    server: SqsServer, mailbox: SQSMailbox[Any]
) -> None:
    room = 1_048_576 - sent_size(server, mailbox, "")
    mailbox.send("x" * room, id="a" * 32)

    with pytest.raises(MailboxError, match=r"at most 1,048,576 bytes, got 1,048,577 \(id 'a"):
        mailbox.send_all(["short", "x" * (room + 1)], ids=["b", "a" * 32])

    assert mailbox.approximate_count() == 1
    assert len(receive_one(mailbox).body) == room


def sent_size(server: SqsServer, mailbox: SQSMailbox[Any], body: str) -> int:
    """Return the bytes that SQS counts: body, and names, types and values of attributes."""
    mailbox.send(body, id="a" * 32)
    size = len(body_in(server)) + len("wink-id" + "String") + 34
    receive_one(mailbox).acknowledge()
    return size


def test_a_batch_that_is_too_long_is_sent_in_parts(
    server: SqsServer, mailbox: SQSMailbox[Any]
) -> None:
    mailbox.send_all(["x" * 400_000] * 5)

    assert server.calls.count("SendMessageBatch") == 3
    assert mailbox.approximate_count() == 5


def test_long_bodies_are_sent_through_the_store(server: SqsServer) -> None:
    store = MemoryStore()
    with SQSMailbox("orders", server.client, store=store, max_bytes=1000) as mailbox:
        mailbox.send("x" * 5000, reply_to="answers", headers={"trace": "1"})
        message = receive_one(mailbox)

    assert (message.body, message.headers) == ("x" * 5000, {"trace": "1"})
    assert message.reply_address == "answers"
    assert len(store.values) == 1


@pytest.mark.parametrize("fault", ["lost", "changed", "no store"])
def test_a_missing_or_damaged_long_body_is_a_problem(server: SqsServer, fault: str) -> None:
    store = MemoryStore()
    SQSMailbox("orders", server.client, store=store, max_bytes=1000).send("x" * 5000)
    (key,) = store.values
    store.values = {} if fault == "lost" else {key: b"something else"}
    receiver = SQSMailbox("orders", server.client, store=None if fault == "no store" else store)

    message = receive_one(receiver)

    assert "give the mailbox the store that the sender has" in message.problem
    assert message.raw.startswith(b"claim:")
    message.acknowledge()


def test_a_failing_store_loses_no_message(server: SqsServer) -> None:
    server.reset(clock := FakeClock())
    store = MemoryStore()
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, store=store, max_bytes=1000)
    mailbox.send("x" * 5000)
    store.broken = True

    with pytest.raises(MailboxConnectionError, match="the shelf is broken"):
        mailbox.send("y" * 5000)
    with pytest.raises(MailboxConnectionError, match="the shelf is broken"):
        mailbox.receive()
    mailbox.send("short")
    assert receive_one(mailbox).body == "short"  # others go on
    store.broken = False
    clock.advance(1)

    assert receive_one(mailbox).body == "x" * 5000  # soon: it was released


def test_a_message_is_delivered_even_if_the_store_always_fails(server: SqsServer) -> None:
    server.reset(clock := FakeClock())
    store = MemoryStore()
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, store=store, max_bytes=1000)
    mailbox.send("x" * 5000)
    store.broken = True
    for _ in range(3):
        with pytest.raises(MailboxConnectionError):
            mailbox.receive()
        clock.advance(1)

    assert receive_one(mailbox).problem
