"""A mailbox by its URL: the forms, what is shared, and that passwords are never printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.runtime.mailbox import redis_server, sqs_server
from weakincentives.errors import UsageError
from weakincentives.runtime.mailbox import (
    InMemoryMailbox,
    RedisMailbox,
    SqliteMailbox,
    SQSMailbox,
    open_mailbox,
)


@pytest.fixture
def name() -> str:
    return f"qa-{uuid4().hex[:8]}"


def delivers_to(first: Any, second: Any) -> bool:
    """Return whether the second mailbox receives what the first one sends."""
    first.send("tea", reply_to=second)
    (message,) = second.receive(wait_time_seconds=60)
    message.acknowledge()
    return bool(message.body == "tea" and message.reply_address == second.name)


def test_in_memory(name: str) -> None:
    first, second = open_mailbox(f"memory://{name}"), open_mailbox("memory://", name=name)

    assert isinstance(first, InMemoryMailbox)
    assert first.name == second.name == name
    assert delivers_to(first, second)


def test_in_memory_a_reply_address_is_a_name(name: str) -> None:
    questions = open_mailbox(f"memory://{name}")
    answers = open_mailbox(f"memory://{name}-answers")
    questions.send("tea?", reply_to=f"{name}-answers")
    questions.receive()[0].reply("yes")

    assert answers.receive()[0].body == "yes"


def test_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = open_mailbox("sqlite:///a%20folder/mail.db#qa", body_type=str)
    absolute = open_mailbox(f"sqlite:///{tmp_path}/a%20folder/mail.db", name="qa")

    assert isinstance(relative, SqliteMailbox)
    assert (tmp_path / "a folder" / "mail.db").is_file()
    assert relative.body_type is str
    assert delivers_to(relative, absolute)


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_on_redis(name: str, scheme: str) -> None:
    client = redis_server.running(redis_server.KINDS[0]).client()
    connection = client.get_connection_kwargs()
    secret = (
        f"{connection.get('username') or ''}:{quote(connection.get('password') or '', safe='')}@"
    )
    url = (
        f"{scheme}://{secret if connection.get('password') else ''}127.0.0.1:{connection['port']}/0"
    )

    first, second = open_mailbox(f"{url}#{name}"), open_mailbox(url, name=name)

    assert isinstance(first, RedisMailbox)
    assert first.queue.client is second.queue.client
    assert delivers_to(first, second)


def test_on_redis_with_tls_and_a_password(name: str) -> None:
    mailbox = open_mailbox(f"valkeys://me:a%40b%23@example.org:7000/3?socket_timeout=2#{name}")
    connection = mailbox.queue.client.get_connection_kwargs()

    assert (connection["username"], connection["password"]) == ("me", "a@b#")
    assert (connection["host"], connection["port"], connection["db"]) == ("example.org", 7000, 3)
    assert "SSL" in mailbox.queue.client.connection_pool.connection_class.__name__
    assert "a@b" not in repr(mailbox)
    assert mailbox.name == name


def test_on_sqs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    endpoint = sqs_server.running().endpoint
    first = open_mailbox(f"sqs://{name}?region=eu-west-1&endpoint={endpoint}")
    second = open_mailbox(f"sqs://?region=eu-west-1&endpoint={endpoint}", name=name)

    assert isinstance(first, SQSMailbox)
    assert first.queue.client is second.queue.client
    assert first.queue.client.meta.region_name == "eu-west-1"
    assert delivers_to(first, second)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "unknown scheme"),
        ("qa", "unknown scheme"),
        ("http://127.0.0.1/qa", "unknown scheme"),
        ("REDISS:qa", "names no host"),
        ("memory://", "names no mailbox"),
        ("memory://qa/more", "a memory URL has no path"),
        ("sqlite://mail.db#qa", "a sqlite URL has no netloc"),
        ("sqlite:///#qa", "names no file"),
        ("sqlite:///folder/#qa", "names no file"),
        ("sqlite:///mail.db", "names no mailbox"),
        ("sqlite:///mail.db?mode=ro#qa", "a sqlite URL has no query"),
        ("redis://#qa", "names no host"),
        ("redis://127.0.0.1:6379/0", "names no mailbox"),
        ("redis://127.0.0.1:6379/zero#qa", "its database is not a number"),
        ("redis://127.0.0.1:0x7/0#qa", "it cannot be parsed"),
        ("redis://[::1/0#qa", "it cannot be parsed"),
        ("redis://127.0.0.1?socket_timeout=soon#qa", "it cannot be parsed"),
        ("sqs://?region=eu-west-1", "names no mailbox"),
        ("sqs://qa/more", "a sqs URL has no path"),
        ("sqs://qa?profile=me", "options other than `region` and `endpoint`"),
        ("sqs://qa?region", "it cannot be parsed"),
    ],
)
def test_a_wrong_url_names_the_forms(url: str, problem: str) -> None:
    with pytest.raises(UsageError, match="expected the URL of a mailbox, got ") as caught:
        open_mailbox(url)

    message = str(caught.value)
    assert problem in message
    for form in ("memory://NAME", "sqlite:///PATH#NAME", "redis://USER", "sqs://NAME?region="):
        assert form in message


def test_a_url_that_is_not_text_is_refused() -> None:
    wrong: Any = Path("mail.db")
    with pytest.raises(UsageError, match="got `PosixPath`"):
        open_mailbox(wrong)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hush@127.0.0.1:1/zero#qa",
        "redis://me:hush@127.0.0.1:x/0#qa",
        "redis://me:hush@:1/0#qa",
        "redis://me:hush@127.0.0.1:1/0",
        "redis://me:hush#hush@127.0.0.1:1/0#qa",
        "redis://me:1/hush@127.0.0.1:1/0#qa",
        "redis://me:1?hush@127.0.0.1:1/0#qa",
        "redis://me:1#hush@127.0.0.1:1/0#qa",
        "redis://127.0.0.1:1/zero?password=hush#qa",
        "rediss://127.0.0.1:1/0?password=hush&socket_timeout=soon#qa",
        "mysql://me:hush@127.0.0.1:1/0#qa",
        "sqs://me:hush@qa?token=hush",
    ],
)
def test_a_password_is_never_printed(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_mailbox(url)

    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_importing_loads_no_backend() -> None:
    code = """
import sys
import weakincentives.runtime.mailbox
from weakincentives.runtime import InMemoryMailbox, Mailbox, open_mailbox
open_mailbox("memory://qa")
print(*{"boto3", "botocore", "redis", "sqlite3"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def test_the_names_are_the_same_everywhere() -> None:
    from weakincentives import runtime
    from weakincentives.runtime import mailbox

    shared = [name for name in mailbox.__all__ if hasattr(runtime, name)]
    assert "RedisMailbox" in shared
    for name in shared:
        assert getattr(runtime, name) is getattr(mailbox, name)
