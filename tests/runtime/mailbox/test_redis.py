"""What a mailbox on Redis promises beyond the contract. Faults are in `test_redis_faults.py`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from threading import Thread, Timer
from typing import Any

import pytest
import redis

from tests.runtime.mailbox.redis_server import Server, cluster
from weakincentives.errors import UsageError
from weakincentives.runtime.mailbox import OutboundMessage
from weakincentives.runtime.mailbox.backends.redis.mailbox import RedisMailbox, RedisMailboxFactory
from weakincentives.testing import FakeClock

Box = RedisMailbox[Any]

TIMEOUT = 60.0  # seconds in which a `LONG` wait must have ended, also on a busy machine
LONG = 600.0


@pytest.fixture
def mailbox(client: redis.Redis, name: str) -> Box:
    return RedisMailbox(name, client)


def keys(client: Any, name: str) -> list[str]:
    """Return the keys of a mailbox on the server, without those that expire within a minute."""
    keys_by_suffix = {
        key.decode().partition("}:")[2] for key in client.keys("{wink:" + name + "}:*")
    }
    return sorted(key for key in keys_by_suffix if not key.startswith("call:"))


# --- whether messages last --------------------------------------------------------------------


def test_a_queue_expires_only_if_all_senders_have_a_ttl(
    client: redis.Redis, name: str, mailbox: Box
) -> None:
    replies: Box = RedisMailbox(name, client, ttl=100)
    letters = "{wink:" + name + "}:letters"

    replies.send("for a while")
    (message,) = mailbox.receive()
    assert all(0 < client.ttl(key) <= 100 for key in client.keys("{wink:" + name + "}:*"))
    mailbox.send("for ever")
    assert client.ttl(letters) == -1
    replies.send("for a while")
    replies.receive()
    message.nack()

    assert all(client.ttl("{wink:" + name + "}:" + key) == -1 for key in keys(client, name))


def test_replies_expire_after_a_week(client: redis.Redis, name: str, mailbox: Box) -> None:
    mailbox.send("2 + 2?", reply_to=f"{name}-replies")
    mailbox.receive()[0].reply("4")

    week = 7 * 24 * 3600
    assert week - 600 < client.ttl("{wink:" + name + "-replies}:letters") <= week
    assert client.ttl("{wink:" + name + "}:letters") == -1


def test_a_queue_that_was_emptied_leaves_nothing(
    client: redis.Redis, name: str, mailbox: Box
) -> None:
    mailbox.send_all("abc")
    for message in mailbox.receive(max_messages=3):
        message.acknowledge()

    assert keys(client, name) == []
    assert all(0 < client.ttl(key) <= 60 for key in client.keys("{wink:" + name + "}:*"))


# --- clocks, foreign data ---------------------------------------------------------------------


def test_a_clock_that_is_set_back_does_not_delay_messages_for_days(
    client: redis.Redis, name: str
) -> None:
    wrong, right = FakeClock(), FakeClock()
    wrong.advance(3 * 24 * 3600)
    RedisMailbox(name, client, clock=wrong).send("hello")
    RedisMailbox(name, client, clock=wrong).receive(visibility_timeout=30)
    mailbox: Box = RedisMailbox(name, client, clock=right)

    assert mailbox.receive(visibility_timeout=30) == []
    right.advance(30)

    assert [message.body for message in mailbox.receive()] == ["hello"]


def test_a_clock_that_is_set_forward_loses_nothing(client: redis.Redis, name: str) -> None:
    clock = FakeClock()
    mailbox: Box = RedisMailbox(name, client, clock=clock)
    mailbox.send_all(range(2500))
    received = sum(len(mailbox.receive(max_messages=100)) for _ in range(25))
    clock.advance(4 * 24 * 3600)

    assert received == 2500
    assert sum(len(mailbox.receive(max_messages=100)) for _ in range(25)) == 2500


def test_foreign_data_is_delivered_or_skipped(client: redis.Redis, name: str, mailbox: Box) -> None:
    at = "{wink:" + name + "}:"
    odd = {b"\xff\xfe": b"no colon", b"a": b"1:x:y", b"b": b"1:-2:y", b"c": b"1:999:y"}
    odd[b"d"] = b"9" * 400 + b":0:y"
    client.rpush(f"{at}waiting", "no letter", *odd)
    client.hset(f"{at}letters", mapping=odd)
    mailbox.send("hello")

    messages = mailbox.receive(max_messages=9)

    assert [message.raw for message in messages[:-1]] == [*odd.values()]
    assert all(message.problem for message in messages[:-1])
    assert messages[-1].body == "hello"
    assert mailbox.acknowledge_all(messages) == [True] * 6
    assert keys(client, name) == []


@pytest.mark.parametrize("bad", ["", "a{b", "a}b", None, 5])
def test_a_name_that_would_change_the_cluster_slot_is_refused(
    client: redis.Redis, bad: Any
) -> None:
    with pytest.raises(UsageError, match="without braces"):
        RedisMailbox(bad, client)


def test_an_address_with_braces_does_not_resolve(mailbox: Box) -> None:
    mailbox.send("hello", reply_to="{other}")

    assert mailbox.receive()[0].reply_to is None


@pytest.mark.parametrize("wrong", ["redis://localhost", None, redis.asyncio.Redis()])
def test_an_object_that_is_not_a_client_is_refused(wrong: Any) -> None:
    for make in (lambda: RedisMailbox("orders", wrong), lambda: RedisMailboxFactory(wrong)):
        with pytest.raises(UsageError, match=r"redis\.Redis"):
            make()


@pytest.mark.parametrize("wrong", [0, -1, "1", True, float("nan")])
def test_an_invalid_ttl_is_refused(client: redis.Redis, wrong: Any) -> None:
    with pytest.raises(UsageError, match="ttl"):
        RedisMailbox("orders", client, ttl=wrong)


def test_a_known_id_is_accepted_by_a_full_queue(
    client: redis.Redis, name: str, mailbox: Box
) -> None:
    mailbox.send_all("abc", ids="abc")

    RedisMailbox[str](name, client, max_size=2).send("again", id="a")

    assert mailbox.approximate_count() == 3


# --- waiting ----------------------------------------------------------------------------------


def without_polling(box: Box) -> Box:
    """Return the mailbox without polling: if it is not woken, it does not notice messages."""
    box.queue._longest_wait = LONG
    return box


def test_the_wake_up_list_stays_short(client: redis.Redis, name: str, mailbox: Box) -> None:
    for number in range(20):
        mailbox.send(number)
    mailbox.receive(max_messages=5)

    assert client.llen("{wink:" + name + "}:bell") == 1


def test_all_waiting_receivers_are_woken(server: Server, name: str, mailbox: Box) -> None:
    bodies: list[Any] = []

    def work(box: Box) -> None:
        bodies.extend(without_polling(box).receive(wait_time_seconds=LONG))

    boxes = [RedisMailbox[Any](name, server.client(socket_timeout=None)) for _ in range(3)]
    threads = [Thread(target=work, args=(box,), daemon=True) for box in boxes]
    for thread in threads:
        thread.start()
    time.sleep(0.1)  # they most likely wait by now; the test holds even if they do not
    mailbox.queue.put([OutboundMessage(f"{n}", b"") for n in range(3)], None)
    for thread in threads:
        thread.join(TIMEOUT)

    assert len(bodies) == 3


def test_a_wait_ends_when_a_lease_does(server: Server, name: str) -> None:
    mailbox = without_polling(RedisMailbox(name, server.client(socket_timeout=None)))
    mailbox.send("hello")
    start = time.monotonic()
    mailbox.receive(visibility_timeout=0.2)

    assert [m.delivery_count for m in mailbox.receive(wait_time_seconds=LONG)] == [2]
    assert 0.15 < time.monotonic() - start < TIMEOUT


class RecordingClient(redis.Redis):
    """Records the timeouts of blocking calls; at the third one, `meanwhile` is called."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == "BLPOP":
            self.timeouts.append(float(args[-1]))
            if len(self.timeouts) == 3:
                self.meanwhile()
        return super().execute_command(*args, **options)


def test_a_wait_may_be_longer_than_the_timeout_of_the_client(
    server: Server, name: str, mailbox: Box
) -> None:
    client = RecordingClient("127.0.0.1", server.port, socket_timeout=1)
    client.timeouts, client.meanwhile = [], lambda: mailbox.send("hello")

    (message,) = RedisMailbox[Any](name, client).receive(wait_time_seconds=LONG)

    assert message.body == "hello"
    assert max(client.timeouts) < 1 < sum(client.timeouts[:2])


@pytest.mark.parametrize("end", ["wake", "close"])
def test_a_long_poll_can_be_interrupted(server: Server, name: str, end: str) -> None:
    mailbox = without_polling(RedisMailbox(name, server.client(socket_timeout=None)))
    Timer(0.2, getattr(mailbox, end)).start()
    start = time.monotonic()

    assert mailbox.queue.take(1, 30, LONG) == []
    assert time.monotonic() - start < TIMEOUT


def test_closing_is_possible_without_a_server(own: Callable[..., Server]) -> None:
    server = own()
    mailbox: Box = RedisMailbox("orders", server.client())
    replies = mailbox.sibling("replies", ephemeral=True)
    server.kill()

    replies.close()
    mailbox.wake()
    mailbox.close()


def test_a_client_that_was_closed_connects_again(mailbox: Box, client: redis.Redis) -> None:
    mailbox.send("hello")
    client.close()

    assert [message.body for message in mailbox.receive()] == ["hello"]


# --- many processes ---------------------------------------------------------------------------


def start_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


WORKER = """
import redis, sys
from weakincentives.runtime.mailbox.backends.redis.mailbox import RedisMailbox
client = redis.Redis("127.0.0.1", int(sys.argv[1]), socket_timeout=None)
mailbox = RedisMailbox(sys.argv[2], client)
found = mailbox.receive(max_messages=7, visibility_timeout=600)
mailbox.sibling(sys.argv[2] + "-started").send(len(found))
client.blpop(sys.argv[2] + "-go", 60)
while found:
    for message in found:
        print(message.body)
        message.acknowledge()
    found = mailbox.receive(max_messages=7, visibility_timeout=600)
"""


def test_processes_that_compete_get_every_message_once(
    server: Server, name: str, mailbox: Box
) -> None:
    mailbox.send_all(range(1000))
    workers = [start_python(WORKER, server.port, name) for _ in range(2)]
    started = mailbox.sibling(f"{name}-started")
    for _ in workers:  # neither continues before both have messages
        started.receive(wait_time_seconds=60)[0].acknowledge()
    server.client().rpush(f"{name}-go", 1, 1)

    outputs = [worker.communicate(timeout=120)[0].split() for worker in workers]

    assert sorted(int(line) for output in outputs for line in output) == [*range(1000)]
    assert all(outputs)


MEMORY = """
import redis, sys
from pathlib import Path
from weakincentives.runtime.mailbox.backends.redis.mailbox import RedisMailbox
client = redis.Redis("127.0.0.1", int(sys.argv[1]), socket_timeout=None)
mailbox = RedisMailbox(sys.argv[2], client)

def through(count):
    mailbox.send_all({"number": number, "text": "x" * 200} for number in range(count))
    while found := mailbox.receive(max_messages=100, visibility_timeout=600):
        count -= len(found)
        assert all(mailbox.acknowledge_all(found))
    assert count == 0
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024

print(-through(1000) + through(20_000))
"""


def test_memory_does_not_grow_with_the_number_of_messages(server: Server, name: str) -> None:
    output, _ = start_python(MEMORY, server.port, name).communicate(timeout=600)

    assert float(output) < 5  # MB; keeping what was sent would take 9, what was received 25


FORKED = """
import os, redis, sys
from weakincentives.runtime.mailbox.backends.redis.mailbox import RedisMailbox
mailbox = RedisMailbox(sys.argv[2], redis.Redis("127.0.0.1", int(sys.argv[1])))
mailbox.send("before")
child = os.fork()
for number in range(200):
    mailbox.send(f"{'parent' if child else 'child'} {number}")
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    os._exit(0)
"""


def test_a_forked_process_has_its_own_connections(server: Server, name: str, mailbox: Box) -> None:
    parent = start_python(FORKED, server.port, name)
    parent.communicate(timeout=120)

    assert parent.returncode == 0
    assert mailbox.approximate_count() == 401


def test_without_the_package_the_command_that_installs_it_is_named() -> None:
    code = """
import sys
sys.modules["redis"] = None
from weakincentives.errors import MissingExtraError
from weakincentives.runtime.mailbox.backends.redis.mailbox import RedisMailbox
try:
    RedisMailbox("orders", None)
except MissingExtraError as error:
    print(error)
"""
    assert "weakincentives-evals[redis]" in start_python(code).communicate(timeout=120)[0]


# --- a cluster --------------------------------------------------------------------------------


def test_all_keys_of_a_mailbox_are_in_one_slot(name: str) -> None:
    with redis.RedisCluster("127.0.0.1", cluster().port) as client:
        mailbox: Box = RedisMailbox(name, client)
        mailbox.send_all(range(5), reply_to=f"{name}-replies")
        first, *_ = mailbox.receive(max_messages=4)
        first.reply("done")
        client.script_flush()
        first.nack()

        keys_of_mailbox = client.keys("{wink:" + name + "}:*")
        assert keys(client, name) == ["bell", "clock", "holders", "leases", "letters", "waiting"]
        assert len({client.cluster_keyslot(key) for key in keys_of_mailbox}) == 1
        assert RedisMailbox(f"{name}-replies", client).receive()[0].body == "done"
