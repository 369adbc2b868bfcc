"""Warnings about servers that may lose messages, or that others may read."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis

from tests.runtime.mailbox.redis_server import Server
from weakincentives.errors import MailboxError
from weakincentives.runtime.mailbox import RedisMailbox

Box = RedisMailbox[Any]


def test_a_server_without_persistence_is_warned_about_once(
    server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = server.client()
    for each in (name, f"{name}-2"):
        RedisMailbox(each, client).send("hello")

    assert [r.message for r in caplog.records if "appendonly yes" in r.message] != []
    assert len(caplog.records) == 1


def test_a_server_without_persistence_is_refused_if_durability_is_required(
    client: redis.Redis,
) -> None:
    mailbox: Box = RedisMailbox("orders", client, require_durable=True)

    for _ in range(2):
        with pytest.raises(MailboxError, match=r"durable.*appendonly yes"):
            mailbox.send("hello")


def test_a_server_that_may_drop_keys_is_refused_too(own: Callable[..., Server]) -> None:
    client = own("--appendonly", "yes").client()
    RedisMailbox("orders", client, require_durable=True).send("hello")
    client.config_set("maxmemory-policy", "allkeys-lru")

    with pytest.raises(MailboxError, match="allkeys-lru"):
        RedisMailbox("orders", client, require_durable=True).send("hello")


def test_a_server_open_to_the_network_is_warned_about(
    server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_client = redis.Redis("0.0.0.0", server.port)  # this machine, by a non-loopback address
    RedisMailbox(name, open_client).send("hello")

    assert "without password and TLS" in caplog.text


def test_no_warning_for_a_unix_socket(
    own: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    with TemporaryDirectory() as folder:  # the path of `tmp_path` may be too long for a socket
        path = f"{folder}/socket"
        own("--unixsocket", path)

        RedisMailbox("orders", redis.Redis(unix_socket_path=path)).send("hello")

    assert f"Redis at {path} may be lost" in caplog.text
    assert "without password" not in caplog.text


def test_no_warning_with_a_password(
    own: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = own("--appendonly", "yes")
    server.client().config_set("requirepass", "secret")
    client = redis.Redis("0.0.0.0", server.port, password="secret")

    RedisMailbox("orders", client, require_durable=True).send("hello")

    assert caplog.text == ""


def test_unknown_settings_of_a_server_cause_a_warning(
    own: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = own("--appendonly", "yes")
    server.client().acl_setuser(
        "wink", True, passwords="+secret", keys="*", commands=["+@all", "-info"]
    )
    client = server.client(username="wink", password="secret")

    RedisMailbox("orders", client).send("hello")
    assert caplog.text == ""
    with pytest.raises(MailboxError, match=r"durable.*INFO.*allow it"):
        RedisMailbox("orders", client, require_durable=True).send("hello")
