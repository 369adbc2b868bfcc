"""The contract of a mailbox, on real servers; the clock is fake, so nothing sleeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.runtime.mailbox.redis_server import KINDS, cluster, running
from weakincentives.runtime.mailbox.backends.redis.mailbox import RedisMailbox
from weakincentives.testing import FakeClock, MailboxContract


class RedisContract(MailboxContract):
    @pytest.fixture(autouse=True)
    def broker(self, client: Any) -> None:
        self.clock = FakeClock()
        self.client = client
        client.flushdb()

    def make(self, name: str, **options: Any) -> RedisMailbox[Any]:
        return RedisMailbox(name, self.client, clock=self.clock, **options)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.set_back(seconds)


class TestRedis(RedisContract):
    """A client as most users make it."""

    @pytest.fixture(params=KINDS)
    def client(self, request: pytest.FixtureRequest) -> redis.Redis:
        return running(request.param).client(db=1)


class TestRedisThatDecodes(RedisContract):
    """A client that turns answers into text: bodies are bytes all the same."""

    @pytest.fixture(params=KINDS)
    def client(self, request: pytest.FixtureRequest) -> redis.Redis:
        return running(request.param).client(db=1, decode_responses=True, protocol=3)


class TestRedisCluster(RedisContract):
    """A cluster of one server, which takes no call whose keys are in several slots."""

    @pytest.fixture
    def client(self) -> Iterator[redis.RedisCluster]:
        with redis.RedisCluster("127.0.0.1", cluster().port) as client:
            yield client
