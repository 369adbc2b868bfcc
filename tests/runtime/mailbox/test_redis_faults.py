"""A mailbox on Redis with lost replies, and with servers that are killed or failing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest

from tests.processes import until
from tests.runtime.mailbox.lossy_proxy import LossyProxy
from tests.runtime.mailbox.redis_server import Server
from weakincentives.errors import MailboxConnectionError
from weakincentives.runtime.mailbox.backends.redis.mailbox import RedisMailbox

Box = RedisMailbox[Any]


# --- a reply is lost ---------------------------------------------------------------------------


class Lossy:
    """A mailbox whose next reply is lost, and another one to check the queue."""

    def __init__(self, server: Server, name: str, proxy: LossyProxy) -> None:
        self.proxy = proxy
        self.box: Box = RedisMailbox(name, server.client(proxy.port))
        self.other: Box = RedisMailbox(name, server.client())
        # Load all scripts first, so that the lost reply is that of a script.
        self.other.send_all(["gone", "first"])
        acknowledged, first = self.box.receive(max_messages=2, visibility_timeout=600)
        acknowledged.acknowledge()
        first.extend_visibility(600)
        first.nack()
        self.box.sibling(f"{name}-empty").purge()

    def lose(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.proxy.lose(b"EVALSHA", meanwhile)


@pytest.fixture
def lossy(server: Server) -> Iterator[Lossy]:
    with LossyProxy(server.port) as proxy:
        yield Lossy(server, f"orders-{uuid4().hex[:8]}", proxy)
        assert proxy.lost == 1


def test_a_send_whose_reply_is_lost_is_sent_once(lossy: Lossy) -> None:
    lossy.lose()

    lossy.box.send("second")

    assert [m.body for m in lossy.other.receive(max_messages=9)] == ["first", "second"]


def test_a_send_is_not_repeated_after_its_message_was_acknowledged(lossy: Lossy) -> None:
    def work() -> None:
        assert lossy.other.acknowledge_all(lossy.other.receive(max_messages=9)) == [True, True]

    lossy.lose(work)
    lossy.box.send("second")

    assert lossy.other.approximate_count() == 0


def test_a_receive_whose_reply_is_lost_returns_the_same_delivery(lossy: Lossy) -> None:
    lossy.other.send("second")
    lossy.lose()

    (message,) = lossy.box.receive(visibility_timeout=600)

    assert (message.body, message.delivery_count) == ("first", 2)
    assert [m.body for m in lossy.other.receive(max_messages=9)] == ["second"]
    message.acknowledge()


def test_a_repeated_receive_does_not_return_messages_of_other_receivers(lossy: Lossy) -> None:
    def others() -> None:
        (message,) = lossy.other.receive(visibility_timeout=600)
        assert message.delivery_count == 3

    lossy.lose(others)

    assert lossy.box.receive(visibility_timeout=0) == []


@pytest.mark.parametrize("call", ["acknowledge", "nack", "extend", "nack_later"])
def test_a_lost_reply_to_a_release_is_reported_correctly(lossy: Lossy, call: str) -> None:
    (message,) = lossy.box.receive(visibility_timeout=600)
    lossy.lose()

    if call == "acknowledge":
        message.acknowledge()
    elif call == "extend":
        message.extend_visibility(700)
    else:
        message.nack(visibility_timeout=600 if call == "nack_later" else 0)

    assert lossy.other.approximate_count() == (0 if call == "acknowledge" else 1)
    assert len(lossy.other.receive()) == (1 if call == "nack" else 0)


def test_a_repeated_acknowledge_does_not_affect_later_messages(lossy: Lossy) -> None:
    (message,) = lossy.box.receive(visibility_timeout=600)
    lossy.lose(lambda: lossy.other.send("new", id=message.id))

    message.acknowledge()

    assert [m.body for m in lossy.other.receive(max_messages=9)] == ["new"]


def test_a_purge_whose_reply_is_lost_returns_its_count(lossy: Lossy) -> None:
    lossy.lose(lambda: lossy.other.send("later"))

    assert lossy.box.purge() == 1
    assert lossy.other.approximate_count() == 1


# --- a server is restarted --------------------------------------------------------------------


def test_nothing_is_lost_with_a_server_that_is_killed(own: Callable[..., Server]) -> None:
    server = own("--appendonly", "yes")
    mailbox: Box = RedisMailbox("orders", server.client())
    mailbox.send_all(range(300))
    leased = mailbox.receive(max_messages=100, visibility_timeout=600)
    mailbox.acknowledge_all(leased[:50])

    server.kill()
    with pytest.raises(MailboxConnectionError, match=r"'orders'.*refused"):
        mailbox.send("while it is down")
    server.start()

    assert all(mailbox.acknowledge_all(leased[50:75]))  # even without its cached scripts
    mailbox.release_all(leased[75:])
    messages = [*mailbox.receive(max_messages=100), *mailbox.receive(max_messages=100)]
    messages += mailbox.receive(max_messages=100)
    assert sorted(message.body for message in messages) == list(range(75, 300))


def test_a_long_poll_fails_if_the_server_is_killed(own: Callable[..., Server]) -> None:
    server = own()
    mailbox: Box = RedisMailbox("orders", server.client())
    Timer(0.2, server.kill).start()

    with pytest.raises(MailboxConnectionError):
        mailbox.receive(wait_time_seconds=30)


def test_scripts_are_loaded_again_if_the_server_lost_them(server: Server) -> None:
    client = server.client()
    mailbox: Box = RedisMailbox(f"orders-{uuid4().hex[:8]}", client)
    mailbox.send("hello")
    client.script_flush()
    (message,) = mailbox.receive()
    client.script_flush()
    message.acknowledge()

    assert mailbox.approximate_count() == 0


# --- a server that fails ----------------------------------------------------------------------


def test_a_server_without_memory_refuses_messages_and_lets_work_continue(
    own: Callable[..., Server],
) -> None:
    client = own().client()
    mailbox: Box = RedisMailbox("orders", client)
    mailbox.send_all("abc")
    client.config_set("maxmemory", 1)

    with pytest.raises(MailboxConnectionError, match=r"out of memory.*maxmemory"):
        mailbox.send("d")
    first, second, third = mailbox.receive(max_messages=9)
    first.acknowledge()
    second.nack(visibility_timeout=60)
    third.extend_visibility(60)

    assert mailbox.approximate_count() == 2


def test_a_full_disk_is_named(own: Callable[..., Server]) -> None:
    server = own()
    client = server.client()
    client.config_set("save", "900 1")
    for file in Path(server.folder).iterdir():
        file.unlink()
    Path(server.folder).rmdir()
    client.bgsave()
    until(lambda: client.info("persistence")["rdb_last_bgsave_status"] != "ok")

    with pytest.raises(MailboxConnectionError, match=r"MISCONF.*disk: free some space"):
        RedisMailbox("orders", client).send("hello")


def test_a_replica_is_named(own: Callable[..., Server]) -> None:
    client = own().client()
    client.replicaof("127.0.0.1", 1)

    with pytest.raises(MailboxConnectionError, match="connect to the primary"):
        RedisMailbox("orders", client).send("hello")


def test_a_cluster_that_lost_a_part_is_named(own: Callable[..., Server]) -> None:
    client = own("--cluster-enabled", "yes").client()

    with pytest.raises(MailboxConnectionError, match="CLUSTER INFO"):
        RedisMailbox("orders", client).send("hello")


def test_a_server_that_starts_is_named(own: Callable[..., Server]) -> None:
    slow = ("--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024")
    server = own(*slow, "--rdbcompression", "no")
    client = server.client()
    client.mset({f"key {key}": "x" * 100 for key in range(6000)})
    client.save()
    server.kill()
    server.start(wait=False)

    def send_as_soon_as_it_listens() -> None:
        while True:
            try:
                RedisMailbox("orders", client).send("hello")
            except MailboxConnectionError as error:
                if "refused" not in str(error):
                    raise
            else:
                pytest.fail("the server started too fast to be tested")

    with pytest.raises(MailboxConnectionError, match="is starting"):
        send_as_soon_as_it_listens()


def test_a_wrong_password_is_named(own: Callable[..., Server]) -> None:
    server = own()
    server.client().config_set("requirepass", "secret")

    with pytest.raises(MailboxConnectionError, match="the right `username` and `password`"):
        RedisMailbox("orders", server.client(password="guess")).send("hello")
