"""One sample, one agent, one criterion, one result."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from tests.engine import TIMEOUT
from weakincentives import Session
from weakincentives.errors import EvaluatorShapeError, UsageError
from weakincentives.evals import (
    EvalContext,
    Sample,
    Score,
    Trajectory,
    criterion,
    exact_match,
    tool_called,
)
from weakincentives.evals.engine import attempt, function_agent
from weakincentives.runtime import SessionSnapshot, ToolInvoked
from weakincentives.testing import FakeClock, session_with

pytestmark = pytest.mark.anyio

SAMPLE = Sample("1", "in", "IN", {"level": 3})


async def test_a_plain_function_is_run_and_scored() -> None:
    result = await attempt(
        function_agent(str.upper), SAMPLE, exact_match, scope=EvalContext(run_id="r"), epoch=2
    )

    assert (result.sample_id, result.output, result.passed) == ("1", "IN", True)
    assert (result.run_id, result.epoch, result.metadata) == ("r", 2, {"level": 3})
    assert result.sample == SAMPLE
    assert (result.error, result.error_source) == (None, None)


async def test_an_async_function_may_return_a_trajectory() -> None:
    async def agent(question: str) -> Trajectory[str]:
        await anyio.lowlevel.checkpoint()
        return Trajectory(output="IN", stop_reason="length", latency_ms=7)

    result = await attempt(function_agent(agent), SAMPLE, exact_match)

    assert result.passed
    assert result.latency_ms == 7
    assert result.trajectory is not None
    assert result.trajectory.stop_reason == "length"


async def test_a_sync_function_may_return_an_awaitable() -> None:
    async def agent(question: str) -> str:
        await anyio.lowlevel.checkpoint()
        return question.upper()

    assert (await attempt(function_agent(lambda q: agent(q)), SAMPLE, exact_match)).passed


async def test_latency_excludes_scoring() -> None:
    clock = FakeClock()

    def agent(question: str) -> str:
        clock.advance(0.25)
        return "IN"

    def slow(output: str, expected: str) -> bool:
        clock.advance(10)
        return True

    result = await attempt(function_agent(agent), SAMPLE, criterion(slow), clock=clock)

    assert result.latency_ms == 250


async def test_an_agent_that_raises_gives_an_error_result() -> None:
    clock = FakeClock()

    def agent(question: str) -> str:
        clock.advance(0.1)
        raise ConnectionError("no route")

    result = await attempt(function_agent(agent), SAMPLE, exact_match, clock=clock)

    assert (result.error, result.error_source) == ("no route", "agent")
    assert result.score == Score(0.0, False, "no route")
    assert (result.latency_ms, result.trajectory) == (100, None)


async def test_an_error_without_a_message_is_named_after_its_type() -> None:
    def agent(question: str) -> str:
        raise TimeoutError

    assert (await attempt(function_agent(agent), SAMPLE, exact_match)).error == "TimeoutError"


async def test_an_evaluator_that_raises_keeps_the_output_for_rescoring() -> None:
    def crash(output: str, expected: str) -> Score:
        raise KeyError("x")

    result = await attempt(function_agent(str.upper), SAMPLE, criterion(crash))

    assert result.error_source == "evaluator"
    assert "evaluator `crash` raised KeyError" in (result.error or "")
    assert result.output == "IN"


async def test_evaluators_get_a_read_only_snapshot_of_the_session() -> None:
    sessions: list[Any] = []

    def agent(sample: Sample) -> tuple[Trajectory[str], Session]:
        return Trajectory(output="IN"), session_with(ToolInvoked(name="search"))

    def record_session(output: str, expected: str, session: Any) -> bool:
        sessions.append(session)
        return True

    assert (await attempt(agent, SAMPLE, tool_called("search"))).passed
    assert (await attempt(agent, SAMPLE, criterion(record_session))).passed
    assert isinstance(sessions[0], SessionSnapshot)


async def test_cancellation_propagates() -> None:
    async def forever(question: str) -> str:
        await anyio.sleep_forever()
        return ""

    with anyio.move_on_after(0.01) as scope:
        await attempt(function_agent(forever), SAMPLE, exact_match)

    assert scope.cancelled_caught


async def test_a_plain_function_is_an_evaluator_and_anything_else_is_refused() -> None:
    result = await attempt(function_agent(str.upper), SAMPLE, lambda output, expected: 0.75)

    assert result.score == Score(0.75, criterion="lambda")
    with pytest.raises(EvaluatorShapeError):
        await attempt(function_agent(str.upper), SAMPLE, lambda output: True)


@pytest.mark.parametrize("returned", ["text", ("text", None), None, (Trajectory(), None, 3)])
async def test_an_invalid_agent_result_is_an_error_that_says_what_is_expected(
    returned: Any,
) -> None:
    result = await attempt(lambda sample: returned, SAMPLE, exact_match)

    assert result.error_source == "agent"
    assert "expected a trajectory and a session (or None) from the agent" in (result.error or "")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Unprintable(), "Unprintable (its message could not be read)"),
        (
            ExceptionGroup("several", [ValueError("first"), KeyError("second")]),
            "several: ValueError: first; KeyError: 'second'",
        ),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)
async def test_the_error_message_is_taken_from_the_exception(
    failure: Exception, error: str
) -> None:
    def agent(question: str) -> str:
        raise failure

    assert (await attempt(function_agent(agent), SAMPLE, exact_match)).error == error


async def test_synchronous_agents_run_concurrently() -> None:
    barrier = threading.Barrier(3, timeout=TIMEOUT)

    def agent(question: str) -> str:
        barrier.wait()
        return "IN"

    results = []

    async def run_attempt() -> None:
        results.append(await attempt(function_agent(agent), SAMPLE, exact_match))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(run_attempt)

    assert [result.passed for result in results] == [True] * 3


async def test_a_session_that_cannot_be_serialized_is_the_agents_error() -> None:
    session = session_with(object())

    result = await attempt(lambda sample: (Trajectory(output="IN"), session), SAMPLE, exact_match)

    assert result.error_source == "agent"
    assert result.output == "IN"


async def test_an_agent_must_be_a_function() -> None:
    with pytest.raises(UsageError, match="expected a function as agent, got 3"):
        function_agent(3)  # type: ignore[arg-type]
