"""Limits that several processes keep together, on a real server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from tests.runtime.mailbox.redis_server import Server
from weakincentives.adapters import ModelReply, ModelRequest, SharedBudget, SharedLimiter
from weakincentives.chat import ChatMessage, TokenUsage
from weakincentives.errors import ProviderError, UsageError

REQUEST = ModelRequest(model="m", messages=(ChatMessage("user", "hello"),))

CALLS = """
import sys, time, anyio
from redis import Redis
from weakincentives.adapters import ModelReply, ModelRequest, SharedLimiter
from weakincentives.chat import ChatMessage
limiter = SharedLimiter(Redis(port=int(sys.argv[1])), "m", requests_per_minute=600)
async def model(request):
    print(time.monotonic())
    return ModelReply(message=ChatMessage("assistant", "hi"))
async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    print(time.monotonic())
    ask = limiter.around(model)
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(ask, ModelRequest(model="m", messages=(ChatMessage("user", "hello"),)))
anyio.run(main)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Redis]:
    with server.client() as client:
        client.flushall()
        yield client


def server_time(client: Redis) -> float:
    """Return the server's time, which the limits use."""
    seconds, microseconds = client.time()  # type: ignore[misc]
    return seconds + microseconds / 1e6


def model_using(tokens: int = 0) -> Any:
    async def model(request: ModelRequest) -> ModelReply:
        return ModelReply(message=ChatMessage("assistant", "hi"), usage=TokenUsage(tokens, 0))

    return model


def test_two_processes_together_keep_one_rate(server: Server, client: Redis) -> None:
    """600 a minute are 10 a second, and the first second's worth goes at once."""
    command = [sys.executable, "-c", CALLS, str(server.port)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    begins, times = list[float](), list[float]()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        begin, *calls = map(float, process.communicate()[0].splitlines())
        begins.append(begin)
        times += calls

    assert [process.returncode for process in processes] == [0, 0]
    assert len(times) == 20
    # Ten need not wait; the others come a tenth of a second apart, or later on a slow machine.
    for place, time in enumerate(sorted(times)):
        assert time >= min(begins) + (place - 10) / 10 - 0.01


@pytest.mark.anyio
async def test_tokens_are_corrected_by_what_a_reply_used(client: Redis) -> None:
    limiter = SharedLimiter(client, "m", tokens_per_minute=600, estimate=lambda request: 10.0)
    before = server_time(client)
    await limiter.around(model_using(tokens=13))(REQUEST)
    after = server_time(client)

    # The first second's worth, ten tokens, is free; the three beyond the estimate take 0.3 s.
    taken_until = float(client.get(limiter._keys[1]))  # type: ignore[arg-type]
    assert before + 0.299 < taken_until < after + 0.301
    await limiter.around(model_using())(REQUEST)
    assert server_time(client) > taken_until - 0.01


@pytest.mark.anyio
async def test_a_budget_is_used_up_by_all_together(client: Redis) -> None:
    one = SharedBudget(client, "night", max_total_tokens=100)
    other = SharedBudget(client, "night", max_total_tokens=100, max_total_cost=5.0)

    assert await one.spend(60, 1.0) == ""
    assert await other.spend(30, 1.0) == ""
    assert await one.spend(10, 0.0) == "100 of 100 tokens used"
    assert await other.spend(0, 0.0) == "100 of 100 tokens used"

    one.reset()
    assert await other.spend(1, 5.5) == "5.5 of 5 cost used"


@pytest.mark.anyio
async def test_an_unavailable_server_is_a_retryable_error() -> None:
    limiter = SharedLimiter(Redis(port=1, retry=None), "m", requests_per_minute=60)

    with pytest.raises(ProviderError, match="shared limit") as caught:
        await limiter.around(model_using())(REQUEST)
    assert caught.value.retryable


def test_bad_limits_are_refused(client: Redis) -> None:
    with pytest.raises(UsageError, match="got neither"):
        SharedLimiter(client, "m")
    with pytest.raises(UsageError, match="requests_per_minute"):
        SharedLimiter(client, "m", requests_per_minute=0)
    with pytest.raises(UsageError, match="without braces"):
        SharedBudget(client, "{m}", max_total_cost=1)
    with pytest.raises(UsageError, match="got neither"):
        SharedBudget(client, "m")
