"""A storm of 429s and lost connections: every call ends in its own answer, and none is paid twice.

The server is a separate process (this file, run as a script), so that it neither slows the client
down nor shares anything with it. It decides by a hash what goes wrong, and prints at its end what
it answered to each call. A reset comes instead of an answer, never after one.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from tests.soak import soak_size
from weakincentives.adapters import ModelAdapter, ModelRequest
from weakincentives.adapters.http import HTTPAdapter
from weakincentives.adapters.limits import Limiter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.adapters.provider_retry import RetryPolicy, retrying
from weakincentives.chat import ChatMessage
from weakincentives.testing import Fault, ModelServer, ServedRequest

SHARE_OF_429, SHARE_OF_RESETS = 0.10, 0.02
POLICY = RetryPolicy(max_attempts=12, base_delay=0.001, max_delay=0.02)

Outcomes = dict[str, list[str]]


def serve() -> None:
    """Answer until the input ends, then print what was answered to each call, in order."""
    outcomes: Outcomes = {}

    def answer(request: ServedRequest) -> str | Fault:
        call = request.body["messages"][-1]["content"]
        before = outcomes.setdefault(call, [])
        digest = hashlib.sha256(f"{call} {len(before)}".encode()).digest()
        chance = 1.0 if call.startswith("calm") else int.from_bytes(digest[:4]) / 2**32
        if chance < SHARE_OF_429:
            before.append("429")
            return Fault("status", 429)
        if chance < SHARE_OF_429 + SHARE_OF_RESETS:
            before.append("reset")
            return Fault("reset")
        before.append("reply")
        return f"the answer to {call}"

    with ModelServer(answer) as server:
        print(server.openai_base_url, flush=True)  # noqa: T201 - the test reads it
        sys.stdin.read()
    print(json.dumps(outcomes))  # noqa: T201


@contextmanager
def storm() -> Iterator[tuple[str, Outcomes]]:
    """Yield the server's address, and its outcomes, which are filled in after the block."""
    outcomes: Outcomes = {}
    with subprocess.Popen(
        [sys.executable, __file__],
        env={"PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), outcomes
        output, _ = server.communicate(timeout=60)
    outcomes |= json.loads(output)


async def answers(adapter: ModelAdapter[Any], calls: list[str]) -> dict[str, str]:
    """Make all calls concurrently; return the reply to each."""
    replies: dict[str, str] = {}

    async def ask(call: str) -> None:
        request = ModelRequest(model="m", messages=(ChatMessage("user", call),))
        replies[call] = (await adapter.ask(request)).message.content

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(ask, call)
    return replies


async def check_storm(
    make: Callable[[str], ModelAdapter[Any]], calls: int, *, ceiling: int = 32
) -> None:
    """Run `calls` calls in a storm and some in a calm after it, and check the replies of both."""
    quiet = ceiling**2  # calls: twice what the limit needs to grow from 1 to the ceiling again
    limiter = Limiter(ceiling, adaptive=True)
    limits: list[int] = []
    retries = retrying(POLICY, on_retry=lambda _: limits.append(limiter.state.limit))
    stormy, calm = [f"storm {n}" for n in range(calls)], [f"calm {n}" for n in range(quiet)]

    with storm() as (address, outcomes):
        adapter = make(address).around(limiter).around(retries)
        replies = await answers(adapter, stormy)
        replies |= await answers(adapter, calm)

    assert replies == {call: f"the answer to {call}" for call in (*stormy, *calm)}
    assert outcomes.keys() == replies.keys()
    assert [
        sequence for sequence in outcomes.values() if sequence.index("reply") != len(sequence) - 1
    ] == []

    count = Counter(each for call in stormy for each in outcomes[call])
    assert count["429"] == pytest.approx(SHARE_OF_429 * count.total(), rel=0.25)
    assert count["reset"] == pytest.approx(SHARE_OF_RESETS * count.total(), rel=0.5)

    state = limiter.state
    assert (state.in_flight, state.waiting, state.throttled) == (0, 0, count["429"])
    # The rest are requests that met a dead kept-alive connection, which the limiter does not count.
    assert 0 <= count.total() + quiet - state.requests <= count["reset"]
    assert min(limits) < ceiling / 4
    assert state.limit == ceiling


@pytest.mark.soak
@pytest.mark.no_cover
@pytest.mark.anyio
async def test_thousands_of_calls_survive_a_storm() -> None:
    calls = soak_size(2_000, 10_000)

    await check_storm(lambda address: HTTPAdapter("m", base_url=address, key_variable=None), calls)


@pytest.mark.no_cover
@pytest.mark.anyio
async def test_thousands_of_calls_through_the_sdk_survive_a_storm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    await check_storm(lambda address: OpenAIAdapter("m", base_url=address), 500, ceiling=16)


if __name__ == "__main__":
    serve()
