"""One cancel scope for attempt after attempt: each time limit ends its own attempt only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.engine import LOOP_TIME, SAMPLES, in_jumping_time, ran
from weakincentives.evals import EvalConfig, Sample, evaluate, exact_match
from weakincentives.evals._limit import Limit

pytestmark = pytest.mark.anyio


async def test_what_comes_after_a_cancelled_attempt_runs_to_its_end() -> None:
    limit, ended = Limit(), []
    for number in range(4):
        with limit:
            if number % 2:
                limit.cancel()
            await anyio.lowlevel.checkpoint()
            ended.append(number)
        await anyio.lowlevel.checkpoint()
    limit.close()

    assert ended == [0, 2]


async def test_a_cancellation_that_came_too_late_reaches_nothing_else() -> None:
    limit = Limit()
    with limit:
        limit.cancel()
    await anyio.lowlevel.checkpoint()
    limit.close()


async def test_an_error_passes_through_and_the_next_attempt_has_its_limit() -> None:
    limit = Limit()
    with pytest.raises(KeyError), limit:
        raise KeyError
    with limit:
        limit.cancel()
        await anyio.sleep_forever()
    limit.close()


async def test_a_limit_that_was_never_used_is_closed_too() -> None:
    limit = Limit()
    limit.cancel()
    limit.close()


@in_jumping_time
async def test_only_those_that_take_too_long_are_ended() -> None:
    async def agent(number: int) -> str:
        await anyio.sleep(30 if number % 3 == 0 else 0)
        return "ok"

    run = await ran(SAMPLES, agent, clock=LOOP_TIME, max_concurrent=2, timeout_per_sample_ms=50)

    assert sorted(run.ids) == list("0123456789")
    assert sorted(run.errors) == list("0369")


@pytest.mark.parametrize("anyio_backend", ["trio"])  # on asyncio, anyio itself cannot go on
async def test_an_agent_that_leaves_a_scope_open_does_not_end_the_run() -> None:
    kept: list[Any] = []

    async def leaky() -> AsyncIterator[None]:
        with anyio.CancelScope():
            yield

    async def agent(number: int) -> str:
        if number == 0:
            kept.append(leaky())
            await anext(kept[0])
        return "ok"

    samples = [Sample(str(number), number, "ok") for number in range(3)]
    report = await evaluate(samples, EvalConfig(), exact_match, agent=agent)

    assert [result.passed for result in report.results[1:]] == [True, True]
