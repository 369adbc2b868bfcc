"""Redis and Valkey servers for the tests of mailboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
import redis

from tests.runtime.mailbox.redis_server import KINDS, Server, running


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Server:
    """Return the server of this kind that all tests share."""
    return running(request.param)


@pytest.fixture
def client(server: Server) -> redis.Redis:
    return server.client()


@pytest.fixture
def name() -> str:
    """Return a name that no other test uses on the shared servers."""
    return f"orders-{uuid4().hex[:8]}"


@pytest.fixture
def own() -> Iterator[Callable[..., Server]]:
    """Start servers that the test may reconfigure, stop or kill."""
    started: list[Server] = []

    def start(*options: str) -> Server:
        started.append(Server("valkey", *options))
        return started[-1]

    yield start
    for server in started:
        server.stop()
