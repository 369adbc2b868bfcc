"""What an earlier release, or a service without groups, has written is one more lane."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import redis

from tests.runtime.mailbox import redis_server, sqs_server
from weakincentives.runtime.mailbox import (
    QueueMailbox,
    RedisMailbox,
    SqliteMailbox,
    SQSMailbox,
    lane_headers,
)
from weakincentives.runtime.mailbox.core.envelope import pack

EARLIER_FILE = """
CREATE TABLE letters (number INTEGER PRIMARY KEY AUTOINCREMENT, queue BLOB NOT NULL,
    id BLOB NOT NULL, due INTEGER NOT NULL DEFAULT 0, place INTEGER NOT NULL,
    held INTEGER NOT NULL DEFAULT 0, times INTEGER NOT NULL DEFAULT 0,
    untried INTEGER NOT NULL DEFAULT 0, enqueued INTEGER NOT NULL, kept_until INTEGER,
    reply_to BLOB, content BLOB NOT NULL);
CREATE UNIQUE INDEX one_letter_per_id ON letters (queue, id);
CREATE INDEX next_letter ON letters (queue, due, place);
CREATE TABLE clock (shift INTEGER NOT NULL, seen INTEGER NOT NULL);
INSERT INTO clock VALUES (0, 0);
PRAGMA application_id = 1464421965;
PRAGMA user_version = 1;
"""
PUT = "INSERT INTO letters (queue, id, place, enqueued, content) VALUES (?, ?, ?, 1, ?)"


def put_as_before(path: Path, *ids: str) -> None:
    """Queue messages as the release before did."""
    with closing(sqlite3.connect(path)) as file, file:
        ((last,),) = file.execute("SELECT coalesce(max(place), 0) FROM letters WHERE due = 0")
        rows = [(b"work", id.encode(), last + n, pack(id)) for n, id in enumerate(ids, 1)]
        file.executemany(PUT, rows)


def received(mailbox: QueueMailbox[Any]) -> list[str]:
    messages = mailbox.receive(max_messages=10)
    assert all(mailbox.acknowledge_all(messages))
    return [message.body for message in messages]


def test_a_file_of_an_earlier_release_gets_lanes_and_keeps_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(EARLIER_FILE)
    put_as_before(path, "a", "b", "c")

    with SqliteMailbox[Any]("work", path) as mailbox:
        mailbox.send("run", headers=lane_headers("run"))
        mailbox.send("first", headers=lane_headers("run", 1))
        assert received(mailbox) == ["first", "a", "run", "b", "c"]
        put_as_before(path, "d")  # the earlier release can still use the file
        assert received(mailbox) == ["d"]


def test_what_an_earlier_release_sends_through_redis_takes_its_turns() -> None:
    client = redis.Redis(port=redis_server.running().port)
    mailbox: RedisMailbox[Any] = RedisMailbox("earlier", client)
    mailbox.purge()
    for n in range(4):
        client.hset("{wink:earlier}:letters", f"old {n}", b"1:0:" + pack(f"old {n}"))
        client.rpush("{wink:earlier}:waiting", f"old {n}")
    lane = lane_headers("run")
    mailbox.send_all((f"run {n}" for n in range(4)), headers=(lane for _ in range(4)))

    order = [message.body for _ in range(8) for message in mailbox.receive()]

    assert {body.partition(" ")[0] for body in order[:2]} == {"old", "run"}
    assert [body for body in order if body.startswith("old")] == [f"old {n}" for n in range(4)]
    assert mailbox.purge() == 8
    assert not list(client.scan_iter("{wink:earlier}:lanes*"))


def test_a_service_without_fair_queues_gets_messages_without_groups() -> None:
    server = sqs_server.running()
    server.reset()
    mailbox: SQSMailbox[Any] = SQSMailbox("plain", server.client)
    refuse = sqs_server.entry_fails(0, "InvalidParameterValue", sender=True)
    server.fail("SendMessageBatch", refuse)

    mailbox.send("hello", headers=lane_headers("run"))

    assert server.calls.count("SendMessageBatch") == 2
    assert received(mailbox) == ["hello"]
