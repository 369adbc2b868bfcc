"""Mailboxes in a file: with several processes, wrong clocks, locks and foreign files."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from weakincentives.errors import MailboxConnectionError, MailboxError, UsageError
from weakincentives.runtime.mailbox import OutboundMessage, SqliteMailbox, SqliteMailboxFactory
from weakincentives.runtime.mailbox.backends.sqlite.file import mail_file
from weakincentives.testing import FakeClock

DAY = 86_400


class WallClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return time.monotonic()

    def step(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mail.db"


def bodies(path: Path, name: str = "orders") -> list[Any]:
    """Return the bodies of all queued messages, after an integrity check of the file."""
    with SqliteMailbox(name, path) as mailbox:
        assert mail_file(path).read("PRAGMA integrity_check") == [("ok",)]
        return [message.body for message in mailbox.receive(max_messages=1000)]


PRELUDE = f"""
import json, os, random, resource, signal, sys, time
sys.path[:] = {sys.path!r}
from pathlib import Path
from weakincentives.errors import MailboxError, MailboxConnectionError
from weakincentives.runtime.mailbox import SqliteMailbox
path = sys.argv[1]
"""


def start_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    with process:
        out, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    return out


# ── one file ────────────────────────────────────────────────────────────────────────────────────


def test_the_file_and_its_folder_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteMailbox("orders") as mailbox:
        mailbox.send("tea")

    assert (tmp_path / ".wink" / "mail.db").is_file()
    assert bodies(tmp_path / ".wink" / "mail.db") == ["tea"]


def test_a_relative_path_does_not_follow_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mailbox = SqliteMailbox("orders", "mail.db")
    mailbox.send("tea")
    message = mailbox.receive()[0]
    mailbox.close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    message.acknowledge()

    assert bodies(tmp_path / "mail.db") == []


def test_queues_of_one_file_are_separate(path: Path) -> None:
    with (
        SqliteMailbox("a", path) as a,
        SqliteMailbox("b", path) as b,
        SqliteMailbox("a", path) as c,
    ):
        a.send("for a", id="1")
        b.send("for b", id="1")

        assert [m.body for m in b.receive()] == ["for b"]
        assert [m.body for m in c.receive()] == ["for a"]
        assert b.purge() == 1
        assert a.approximate_count() == 1


def test_a_message_can_be_acknowledged_after_close(path: Path) -> None:
    mailbox = SqliteMailbox("orders", path)
    mailbox.send_all("ab")
    first, second = mailbox.receive(max_messages=2)
    mailbox.close()

    first.acknowledge()
    second.nack()

    assert bodies(path) == ["b"]


def test_the_connection_is_closed_with_the_last_mailbox(path: Path) -> None:
    first, second = SqliteMailbox("a", path), SqliteMailbox("b", path)
    first.send("tea")
    first.close()
    assert path.with_name("mail.db-wal").exists()
    del second
    gc.collect()

    assert not path.with_name("mail.db-wal").exists()


def test_unusual_names_and_ids_are_accepted(path: Path) -> None:
    with SqliteMailbox("a'b\0\ud800é", path) as mailbox:
        mailbox.send("tea", id="\ud800", reply_to="c'\udfff")
        (message,) = mailbox.receive()

    assert (message.id, message.reply_address) == ("\ud800", "c'\udfff")


@pytest.mark.parametrize("path", ["", ".", ":memory:", None, b"x"])
def test_an_invalid_path_is_refused(path: Any) -> None:
    with pytest.raises(UsageError, match="expected the path of a file"):
        SqliteMailbox("orders", path)


def test_an_empty_address_does_not_resolve(path: Path) -> None:
    with SqliteMailbox("orders", path) as mailbox:
        mailbox.queue.put([OutboundMessage("1", b"{}", "")], None)

        assert mailbox.receive()[0].reply_to is None


def test_unread_replies_expire_after_a_week(path: Path) -> None:
    clock = FakeClock()
    with SqliteMailbox("orders", path, clock=clock) as mailbox:
        lost = mailbox.sibling("replies", ephemeral=True)
        mailbox.send("tea?", reply_to=lost)
        mailbox.receive()[0].reply("yes")
        SqliteMailboxFactory(path, ttl=None, clock=clock).create("kept").send("for ever")
        clock.advance(6 * DAY)
        assert mailbox.sibling("replies").approximate_count() == 1

        clock.advance(2 * DAY)

        assert mailbox.sibling("replies").approximate_count() == 0
        assert mailbox.sibling("kept").approximate_count() == 1
        assert mailbox.approximate_count() == 1


# ── waiting ─────────────────────────────────────────────────────────────────────────────────────


def test_another_process_is_noticed_soon(path: Path) -> None:
    with SqliteMailbox("orders", path) as mailbox:
        sender = start_python("SqliteMailbox('orders', path).send(time.monotonic())", path)
        (message,) = mailbox.receive(wait_time_seconds=600)
        late = time.monotonic() - message.body  # the clock of all processes
        output_of(sender)

    assert late < 60  # 0.05 on an idle machine, 600 without polling


def test_an_expired_lease_ends_a_wait(path: Path) -> None:
    with SqliteMailbox("orders", path) as mailbox:
        mailbox.send("tea")
        start = time.monotonic()
        mailbox.receive(visibility_timeout=0.3)

        (message,) = mailbox.receive(wait_time_seconds=600)

        assert message.delivery_count == 2
        assert 0.25 < time.monotonic() - start < 60


def test_one_queue_does_not_end_the_wait_of_another(path: Path) -> None:
    with SqliteMailbox("a", path) as a, SqliteMailbox("b", path) as b:
        messages: list[Any] = []
        thread = Thread(target=lambda: messages.extend(a.receive(wait_time_seconds=600)))
        thread.start()
        for index in range(50):
            b.send(index)
            b.wake()
        a.send("tea")
        thread.join(60)

    assert [message.body for message in messages] == ["tea"]


# ── clocks ──────────────────────────────────────────────────────────────────────────────────────


def test_a_clock_that_is_set_back_holds_no_message_for_long(path: Path) -> None:
    clock = WallClock()
    with SqliteMailbox("orders", path, clock=clock) as mailbox:
        mailbox.send_all("ab")
        held, delayed = mailbox.receive(max_messages=2, visibility_timeout=300)
        delayed.nack(visibility_timeout=300)
        clock.step(-30 * DAY)

        mailbox.send("c")
        assert [m.body for m in mailbox.receive(max_messages=9, visibility_timeout=DAY / 2)] == [
            "c"
        ]
        held.extend_visibility(1)
        clock.step(DAY / 2)

        assert len(mailbox.receive(max_messages=9)) == 3


def test_a_waiting_receiver_notices_that_the_clock_was_set_back(path: Path) -> None:
    class AdjustedClock(WallClock):
        def now(self) -> datetime:
            return datetime.now(UTC) - (START - self.at)

    clock = AdjustedClock()
    START = clock.at
    with SqliteMailbox("orders", path, clock=clock) as mailbox:
        mailbox.send("tea")
        mailbox.receive(visibility_timeout=2)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(mailbox.receive, wait_time_seconds=120)
            clock.step(-DAY / 24)

            assert [message.delivery_count for message in waiting.result()] == [2]


def test_a_file_of_an_earlier_version_is_migrated(path: Path) -> None:
    clock = WallClock()
    with SqliteMailbox("orders", path, clock=clock) as mailbox:
        mailbox.send("tea")
        mailbox.receive(visibility_timeout=30)
    file = mail_file(path)
    file.read("DROP TABLE clock")
    file.disconnect()

    with SqliteMailbox("orders", path, clock=clock) as mailbox:
        assert mailbox.receive() == []
        clock.step(-DAY)
        assert mailbox.receive() == []
        clock.step(31)
        assert [message.body for message in mailbox.receive()] == ["tea"]


def test_a_clock_that_is_set_forward_ends_leases_and_loses_nothing(path: Path) -> None:
    clock = WallClock()
    with SqliteMailbox("orders", path, clock=clock) as mailbox:
        mailbox.send("tea")
        (held,) = mailbox.receive(visibility_timeout=300)
        clock.step(30 * DAY)

        assert [m.delivery_count for m in mailbox.receive()] == [2]
        assert mailbox.acknowledge_all([held]) == [False]


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_stays_locked_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weakincentives.runtime.mailbox.backends.sqlite.file.BUSY_SECONDS", 0.05)
    with SqliteMailbox("orders", path) as mailbox:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MailboxConnectionError, match=r"locked .*another process held it"):
            mailbox.send("tea")
        assert mailbox.approximate_count() == 0  # reading needs no lock
        other.execute("COMMIT")
        other.close()
        mailbox.send("tea")

    assert bodies(path) == ["tea"]


@pytest.mark.parametrize("content", [b"not a database at all" * 99, b"SQLite format 3\0" * 99])
def test_a_foreign_file_is_refused_and_not_changed(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(MailboxError, match=r"use another path") as caught:
        SqliteMailbox("orders", path)

    assert not isinstance(caught.value, MailboxConnectionError)  # a retry would not help
    assert path.read_bytes() == content


def test_a_foreign_database_is_refused_and_not_changed(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(MailboxError, match="a database of something else"):
        SqliteMailbox("orders", path)

    assert path.read_bytes() == before


def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    SqliteMailbox("orders", path)
    gc.collect()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(MailboxError, match=r"version 99 .* update this one"):
        SqliteMailbox("orders", path)


def test_a_deleted_file_is_recreated_and_old_handles_are_invalid(path: Path) -> None:
    with SqliteMailbox("orders", path) as mailbox:
        mailbox.send("old", id="1")
        (old,) = mailbox.receive()
        for file in path.parent.glob("mail.db*"):
            file.unlink()

        mailbox.send("new", id="1")
        (new,) = mailbox.receive()

        assert mailbox.acknowledge_all([old]) == [False]
        assert new.body == "new"
        assert bodies(path) == []  # it is leased


def test_a_changed_byte_is_noticed_or_harmless(path: Path) -> None:
    """Whatever byte of the file changes, no other body is delivered, and every error has advice."""
    sent = {f"id-{i}": f"body {i} " + "é" * 30 for i in range(3)}
    with SqliteMailbox("orders", path) as mailbox:
        mailbox.send_all(sent.values(), ids=sent)
        mailbox.receive(visibility_timeout=0)
    good = path.read_bytes()
    outcomes = {"right": 0, "problem": 0, "refused": 0}
    for position in [i for i, byte in enumerate(good) if byte][::3]:
        bad = bytearray(good)
        bad[position] ^= 1 << (position % 8)
        path.write_bytes(bad)
        try:
            with SqliteMailbox("orders", path) as mailbox:
                for message in mailbox.receive(max_messages=9, visibility_timeout=60):
                    if message.problem is None:
                        assert message.body in sent.values()
                    outcomes["right" if message.problem is None else "problem"] += 1
                    mailbox.acknowledge_all([message])
        except MailboxError as error:
            outcomes["refused" if " - " in str(error) else str(error)] += 1
        for leftover in path.parent.glob("mail.db-*"):
            leftover.unlink()

    assert min(outcomes.values()) > 20
