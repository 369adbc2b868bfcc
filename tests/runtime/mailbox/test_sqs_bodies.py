"""What a body becomes on SQS: ASCII, parts of batches, and claims on a store where it is long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.mailbox.sqs_server import SqsServer
from tests.runtime.mailbox.test_sqs import mailbox, server, taken
from weakincentives.errors import MailboxConnectionError, MailboxError, StoreError
from weakincentives.runtime.mailbox import OutboundMessage, SQSMailbox
from weakincentives.testing import FakeClock

__all__ = ["mailbox", "server"]  # the fixtures


class Shelf:
    """A store in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.broken = False

    def find(self, key: str) -> bytes | None:
        self._check()
        return self.kept.get(key)

    def keep(self, key: str, value: bytes) -> bytes:
        self._check()
        return self.kept.setdefault(key, value)

    def _check(self) -> None:
        if self.broken:
            raise StoreError("the shelf is broken")


def body_in(server: SqsServer, name: str = "orders") -> str:
    url = server.client.get_queue_url(QueueName=name)["QueueUrl"]
    (found,) = server.client.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
    return str(found["Body"])


def test_plain_bodies_travel_readably_and_others_as_ascii(
    server: SqsServer, mailbox: SQSMailbox[Any]
) -> None:
    mailbox.send("tea")
    assert body_in(server).endswith('\n"tea"')
    taken(mailbox).acknowledge()
    mailbox.send("té\ufffe\0")

    assert body_in(server).startswith("base64:")
    assert body_in(server).isascii()
    assert taken(mailbox).body == "té\ufffe\0"


@pytest.mark.parametrize(
    "content", [b"", b"base64:", b"base64:dGVh", b"claim:\xff", b"a\rb", b"\xff"]
)
def test_whatever_lies_there_comes_out_the_same(server: SqsServer, content: bytes) -> None:
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, store=Shelf())
    mailbox.queue.put([OutboundMessage("1", content)], None)
    message = taken(mailbox)

    assert message.raw == content
    assert message.problem


@pytest.mark.parametrize("body", ["hello", "base64:no", "claim:", "[[[", "é"])
def test_what_others_wrote_is_delivered_and_says_why_it_cannot_be_read(
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

    message = taken(mailbox)

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
    assert len(taken(mailbox).body) == room


def sent_size(server: SqsServer, mailbox: SQSMailbox[Any], body: str) -> int:
    """Bytes that SQS counts: body, and names, types and values of attributes."""
    mailbox.send(body, id="a" * 32)
    size = len(body_in(server)) + len("wink-id" + "String") + 34
    taken(mailbox).acknowledge()
    return size


def test_a_batch_that_is_too_long_is_sent_in_parts(
    server: SqsServer, mailbox: SQSMailbox[Any]
) -> None:
    mailbox.send_all(["x" * 400_000] * 5)

    assert server.calls.count("SendMessageBatch") == 3
    assert mailbox.approximate_count() == 5


def test_long_bodies_go_by_the_store(server: SqsServer) -> None:
    shelf = Shelf()
    with SQSMailbox("orders", server.client, store=shelf, max_bytes=1000) as mailbox:
        mailbox.send("x" * 5000, reply_to="answers", headers={"trace": "1"})
        message = taken(mailbox)

    assert (message.body, message.headers) == ("x" * 5000, {"trace": "1"})
    assert message.reply_address == "answers"
    assert len(shelf.kept) == 1


@pytest.mark.parametrize("fault", ["lost", "changed", "no store"])
def test_a_long_body_that_is_not_to_be_had_is_a_problem(server: SqsServer, fault: str) -> None:
    shelf = Shelf()
    SQSMailbox("orders", server.client, store=shelf, max_bytes=1000).send("x" * 5000)
    (key,) = shelf.kept
    shelf.kept = {} if fault == "lost" else {key: b"something else"}
    receiver = SQSMailbox("orders", server.client, store=None if fault == "no store" else shelf)

    message = taken(receiver)

    assert "give the mailbox the store that the sender has" in message.problem
    assert message.raw.startswith(b"claim:")
    message.acknowledge()


def test_a_store_that_fails_sends_and_loses_nothing(server: SqsServer) -> None:
    server.reset(clock := FakeClock())
    shelf = Shelf()
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, store=shelf, max_bytes=1000)
    mailbox.send("x" * 5000)
    shelf.broken = True

    with pytest.raises(MailboxConnectionError, match="the shelf is broken"):
        mailbox.send("y" * 5000)
    with pytest.raises(MailboxConnectionError, match="the shelf is broken"):
        mailbox.receive()
    mailbox.send("short")
    assert taken(mailbox).body == "short"  # others go on
    shelf.broken = False
    clock.advance(1)

    assert taken(mailbox).body == "x" * 5000  # soon: it was released


def test_a_store_that_always_fails_hides_no_message(server: SqsServer) -> None:
    server.reset(clock := FakeClock())
    shelf = Shelf()
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, store=shelf, max_bytes=1000)
    mailbox.send("x" * 5000)
    shelf.broken = True
    for _ in range(3):
        with pytest.raises(MailboxConnectionError):
            mailbox.receive()
        clock.advance(1)

    assert taken(mailbox).problem
