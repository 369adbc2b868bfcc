"""Mailboxes on SQS: limits, batches that fail in part, and errors of the service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config

from tests.runtime.mailbox.sqs_server import SqsServer, entry_fails, error, running
from weakincentives.errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    ReceiptHandleExpiredError,
    ReplyNotAvailableError,
    UsageError,
)
from weakincentives.runtime.mailbox import SQSMailbox, SQSMailboxFactory
from weakincentives.runtime.mailbox.backends.sqs.mailbox import MAX_POLL_SECONDS
from weakincentives.testing import FakeClock


@pytest.fixture
def server() -> SqsServer:
    server = running()
    server.reset()
    return server


@pytest.fixture
def mailbox(server: SqsServer) -> Iterator[SQSMailbox[Any]]:
    with SQSMailbox("orders", server.client) as mailbox_on_server:
        server.calls.clear()
        yield mailbox_on_server


def receive_one(mailbox: SQSMailbox[Any], **options: Any) -> Any:
    (message,) = mailbox.receive(wait_time_seconds=60, **options)
    return message


# ── queues ──────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_queue_is_created_with_a_long_retention(server: SqsServer) -> None:
    SQSMailbox("orders", server.client)
    SQSMailbox("orders", server.client)

    assert server.calls.count("CreateQueue") == 1
    url = server.client.get_queue_url(QueueName="orders")["QueueUrl"]
    attributes = server.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])[
        "Attributes"
    ]
    assert attributes["MessageRetentionPeriod"] == str(14 * 86_400)


def test_no_queue_is_created_unless_requested(server: SqsServer) -> None:
    mailbox = SQSMailbox("orders", server.client, create=False)
    with pytest.raises(MailboxError, match=r"'orders'.*create the queue, or check region"):
        mailbox.send("tea")

    assert "CreateQueue" not in server.calls


def test_a_queue_by_its_url(server: SqsServer) -> None:
    url = server.client.create_queue(QueueName="orders")["QueueUrl"]
    with SQSMailbox(url, server.client) as by_url, SQSMailbox("orders", server.client) as by_name:
        by_url.send("tea")

        assert by_url.name == "orders"
        assert receive_one(by_name).body == "tea"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 81, "orders.fifo", "é", None, 5])
def test_an_invalid_name_is_refused(server: SqsServer, name: Any) -> None:
    with pytest.raises(UsageError, match="expected a name of up to 80 letters"):
        SQSMailbox(name, server.client)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/1/other", "../x", "a b", ""])
def test_an_address_in_a_message_is_a_name_and_nothing_else(
    mailbox: SQSMailbox[Any], address: str
) -> None:
    mailbox.send("tea?", reply_to=address)

    message = receive_one(mailbox)

    assert (message.reply_to, message.reply_address) == (None, address)


def test_a_reply_address_creates_no_queue(server: SqsServer, mailbox: SQSMailbox[Any]) -> None:
    mailbox.send("tea?", reply_to="made-up")
    with pytest.raises(MailboxError, match="create the queue"):
        receive_one(mailbox).reply("yes")

    assert "CreateQueue" not in server.calls
    SQSMailboxFactory(server.client, create=True).create("made-up").send("yes")
    with pytest.raises(ReplyNotAvailableError):
        receive_one(mailbox.sibling("made-up")).reply("really?")


def test_closing_a_reply_mailbox_deletes_its_queue(
    server: SqsServer, mailbox: SQSMailbox[Any]
) -> None:
    mailbox.sibling("replies", ephemeral=True).close()

    assert "replies" not in str(server.client.list_queues()["QueueUrls"])


# ── batches ─────────────────────────────────────────────────────────────────────────────────────


def test_a_failed_entry_of_a_batch_is_resent(server: SqsServer, mailbox: SQSMailbox[Any]) -> None:
    server.fail("SendMessageBatch", entry_fails(1, "InternalError"))
    server.fail("SendMessageBatch", entry_fails(0, "ServiceUnavailable"))
    mailbox.send_all("abc")
    messages = mailbox.receive(max_messages=10, wait_time_seconds=60)
    server.fail("DeleteMessageBatch", entry_fails(2, "InternalError"))

    assert sorted(message.body for message in messages) == ["a", "b", "c"]
    assert mailbox.acknowledge_all(messages) == [True] * 3
    assert mailbox.approximate_count() == 0
    assert server.calls.count("SendMessageBatch") == 3


def test_an_entry_that_keeps_failing_is_an_error(
    server: SqsServer, mailbox: SQSMailbox[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.runtime.mailbox.backends.sqs.client._PAUSES", (0.0, 0.0))
    server.fail("SendMessageBatch", entry_fails(1, "InternalError"))
    server.fail("SendMessageBatch", entry_fails(0, "InternalError"), times=2)
    with pytest.raises(MailboxConnectionError, match=r"InternalError for 1 of them after 3 att"):
        mailbox.send_all("abc")

    assert mailbox.approximate_count() == 2


def test_an_entry_that_is_refused_is_named(server: SqsServer, mailbox: SQSMailbox[Any]) -> None:
    server.fail("SendMessageBatch", entry_fails(1, "InvalidMessageContents", sender=True))
    with pytest.raises(MailboxError, match=r"InvalidMessageContents: refused \(id 'two'\)"):
        mailbox.send_all("ab", ids=["one", "two"])


def test_a_refused_handle_is_expired(server: SqsServer, mailbox: SQSMailbox[Any]) -> None:
    mailbox.send_all("ab")
    first, second = (receive_one(mailbox), receive_one(mailbox))
    server.fail("DeleteMessageBatch", entry_fails(0, "ReceiptHandleIsInvalid", sender=True))

    assert mailbox.acknowledge_all([first, second]) == [False, True]


# ── leases ──────────────────────────────────────────────────────────────────────────────────────


def record_timeouts(server: SqsServer, call: str = "ChangeMessageVisibilityBatch") -> list[int]:
    """Return a list that records the visibility timeouts of the next calls."""
    visibility_timeouts: list[int] = []

    def note(request: Any, forward: Any) -> tuple[int, Any]:
        visibility_timeouts.extend(entry["VisibilityTimeout"] for entry in request["Entries"])
        return 200, forward(request)

    server.fail(call, note, times=9)
    return visibility_timeouts


def test_an_extension_never_shortens_a_lease_and_stops_at_twelve_hours(
    server: SqsServer,
) -> None:
    clock = FakeClock()
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, clock=clock)
    mailbox.send("tea")
    message = receive_one(mailbox, visibility_timeout=600)
    visibility_timeouts = record_timeouts(server)

    message.extend_visibility(60)  # is shorter: no call
    message.extend_visibility(600.5)
    clock.advance(1)
    message.extend_visibility(600.5)  # 601 from now on
    clock.advance(500)
    message.extend_visibility(43_200)
    message.extend_visibility(43_200)
    clock.advance(42_000)
    message.nack(visibility_timeout=3600)

    assert visibility_timeouts == [601, 601, 42_699, 699]


def test_a_handle_is_refused_when_its_lease_is_over_by_our_clock(
    server: SqsServer,
) -> None:
    """Check it ourselves: SQS would accept it, and delete the message of another worker."""
    clock = FakeClock()
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, clock=clock)
    mailbox.send("tea")
    message = receive_one(mailbox, visibility_timeout=600)
    clock.advance(600)
    server.calls.clear()

    for call in (message.acknowledge, message.nack, lambda: message.extend_visibility(60)):
        with pytest.raises(ReceiptHandleExpiredError):
            call()
    assert server.calls == []


def test_expired_leases_are_removed(
    mailbox: SQSMailbox[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from weakincentives.runtime.mailbox.backends.sqs import mailbox as _sqs

    over = {str(i): _sqs._Lease("url", 0.0, 1.0) for i in range(10_001)}
    monkeypatch.setattr(_sqs, "_leases", over)
    mailbox.send("tea")
    message = receive_one(mailbox)

    assert list(over) == [message.receipt_handle]


# ── waiting ─────────────────────────────────────────────────────────────────────────────────────


def test_a_long_poll_is_short_enough_to_be_interrupted(
    server: SqsServer, mailbox: SQSMailbox[Any]
) -> None:
    wait_times: list[int] = []

    def note(request: Any, forward: Any) -> tuple[int, Any]:
        wait_times.append(request["WaitTimeSeconds"])
        return 200, forward(request)

    server.fail("ReceiveMessage", note, times=9)
    assert mailbox.receive(wait_time_seconds=MAX_POLL_SECONDS + 0.3) == []

    assert wait_times[0] == MAX_POLL_SECONDS
    assert not any(wait_times[1:])  # later polls, if there was time for any


# ── the whole ───────────────────────────────────────────────────────────────────────────────────


def test_a_mailbox_keeps_its_maximum_size_approximately(server: SqsServer) -> None:
    mailbox: SQSMailbox[Any] = SQSMailbox("orders", server.client, max_size=3)
    mailbox.send_all("ab")
    with pytest.raises(MailboxFullError, match=r"room for 2 more .* about 2 of 3"):
        mailbox.send_all("cd")


def test_a_second_purge_is_an_error_with_a_retry_time(
    server: SqsServer, mailbox: SQSMailbox[Any]
) -> None:
    server.fail("PurgeQueue", error("PurgeQueueInProgress", 403))
    with pytest.raises(MailboxConnectionError, match="less than a minute ago: try again then"):
        mailbox.purge()


@pytest.mark.parametrize(
    ("code", "status", "lasting", "advice"),
    [
        ("OverLimit", 403, False, "120,000 messages are leased"),
        ("RequestThrottled", 403, False, "SQS throttles this client"),
        ("ThrottlingException", 400, False, "SQS throttles this client"),
        ("InternalFailure", 500, False, "check that SQS is reachable"),
        ("QueueDoesNotExist", 400, True, "create the queue"),
        ("AccessDeniedException", 400, True, "let this identity use the queue"),
        ("InvalidClientTokenId", 403, True, "aws configure"),
        ("SignatureDoesNotMatch", 403, True, "aws configure"),
        ("Novel", 400, True, "see SQS's message"),
    ],
)
def test_an_error_says_what_to_do(
    server: SqsServer, mailbox: SQSMailbox[Any], code: str, status: int, lasting: bool, advice: str
) -> None:
    server.fail("ReceiveMessage", error(code, status))
    with pytest.raises(MailboxError, match=rf"'orders', got {code}.* - .*{advice}") as caught:
        mailbox.receive()

    assert isinstance(caught.value, MailboxConnectionError) is not lasting


def test_an_unreachable_service_is_an_error() -> None:
    client = boto3.session.Session().client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url="http://127.0.0.1:9",
        aws_access_key_id="a",
        aws_secret_access_key="hush",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=1),
    )
    with pytest.raises(MailboxConnectionError, match="check that SQS is reachable") as caught:
        SQSMailbox("orders", client)

    assert "hush" not in str(caught.value)


def test_missing_credentials_or_region_are_an_error(
    server: SqsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, f"/nonexistent/{uuid4()}")
    with pytest.raises(MailboxError, match="name a region: set AWS_DEFAULT_REGION"):
        SQSMailbox("orders")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    with pytest.raises(MailboxError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        SQSMailbox("orders")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    SQSMailbox("orders").send("tea")
