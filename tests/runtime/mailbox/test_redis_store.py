"""Sessions and values that many machines share on Redis."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import redis

from tests.runtime.mailbox.redis_server import Server, running
from weakincentives.errors import StoreError, UsageError
from weakincentives.runtime.mailbox.backends.redis.store import RedisStore
from weakincentives.runtime.session import Session


@dataclass(frozen=True)
class Step:
    text: str


@pytest.fixture
def prefix() -> str:
    return f"wink-{uuid4().hex[:8]}"


@pytest.fixture
def store(client: redis.Redis, prefix: str) -> RedisStore:
    return RedisStore(client, prefix)


def session_of(*texts: str) -> Session:
    session = Session()
    for text in texts:
        session[Step].append(Step(text))
    return session


def test_a_session_is_loaded_as_it_was_saved(store: RedisStore) -> None:
    session = session_of("one", "two")
    store.save(session.session_id, session)
    store.save("by bytes", session.snapshot())
    store.save("by view", session.view())

    for id in (session.session_id, str(session.session_id), "by bytes", "by view"):
        loaded = store.load(id)
        assert loaded.session_id == session.session_id
        assert loaded[Step].all() == (Step("one"), Step("two"))


def test_the_last_session_stays(store: RedisStore) -> None:
    store.save("id", session_of("one"))
    store.save("id", session_of("two"))

    assert store.load("id")[Step].all() == (Step("two"),)


def test_a_session_is_compressed_and_expires(
    store: RedisStore, client: redis.Redis, prefix: str
) -> None:
    store.save("id", session_of("x" * 100_000))
    RedisStore(client, prefix, ttl=None).save("kept", session_of())

    assert client.strlen(f"{prefix}:session:id") < 5000
    week = 7 * 24 * 3600
    assert week - 600 < client.ttl(f"{prefix}:session:id") <= week
    assert client.ttl(f"{prefix}:session:kept") == -1


def test_the_first_value_stays(store: RedisStore) -> None:
    assert store.find("key") is None

    assert store.keep("key", b"first") == b"first"
    assert store.keep("key", b"second") == b"first"
    assert store.keep("key", b"first") == b"first"

    assert store.find("key") == b"first"
    assert store.find("other") is None


def test_one_of_many_concurrent_writers_wins(client: redis.Redis, prefix: str) -> None:
    stores = [RedisStore(client, prefix) for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        winners = {*pool.map(lambda n: stores[n % 4].keep("key", b"%d" % n), range(40))}

    assert winners == {stores[0].find("key")}


@pytest.mark.parametrize("value", [b"", b"\0\xff", b"x" * 1_000_000], ids=len)
def test_a_value_is_any_bytes(client: redis.Redis, prefix: str, value: bytes) -> None:
    decoding = running().client(decode_responses=True)
    for each in (RedisStore(client, prefix), RedisStore(decoding, prefix)):
        assert each.keep("key", value) == value
        assert each.find("key") == value


def test_values_expire_after_their_ttl(client: redis.Redis, prefix: str) -> None:
    RedisStore(client, prefix, ttl=timedelta(hours=1)).keep("short", b"")
    RedisStore(client, prefix, ttl=None).keep("long", b"")

    assert 0 < client.ttl(f"{prefix}:kept:short") <= 3600
    assert client.ttl(f"{prefix}:kept:long") == -1


def test_a_missing_or_damaged_session_is_named(
    store: RedisStore, client: redis.Redis, prefix: str
) -> None:
    with pytest.raises(StoreError, match=r"session 'none'.*save it first"):
        store.load("none")

    store.save("id", session_of("one"))
    body: Any = client.get(f"{prefix}:session:id")
    for at in range(len(body)):
        client.set(f"{prefix}:session:id", body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        with pytest.raises(StoreError, match=f"{prefix}:session:id"):
            store.load("id")

    store.keep("key", b"no session")
    client.rename(f"{prefix}:kept:key", f"{prefix}:session:other")
    with pytest.raises(StoreError, match="other data"):
        store.load("other")


def test_an_object_that_is_not_a_session_is_refused(store: RedisStore) -> None:
    wrong: Any = {"a": 1}
    with pytest.raises(UsageError, match="session or its snapshot"):
        store.save("id", wrong)


def test_an_unavailable_server_is_named() -> None:
    server = Server()
    store = RedisStore(server.client())
    server.stop()

    for call in (
        lambda: store.load("id"),
        lambda: store.save("id", session_of()),
        lambda: store.find("key"),
        lambda: store.keep("key", b""),
    ):
        with pytest.raises(StoreError, match=r"RedisStore 'wink'.*refused.*try again"):
            call()
