"""Calls of `record` and spans become the trajectory of an agent that returns a bare output."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from tests.processes import TIMEOUT, plain_environment
from weakincentives.chat import ChatMessage, TokenUsage
from weakincentives.contrib.opentelemetry import configure_otel
from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalConfig,
    EvalResult,
    EvalSuite,
    Sample,
    all_of,
    all_tools_succeeded,
    cost_under,
    exact_match,
    record,
    token_usage_under,
    tool_call_count,
    tool_called,
    tool_called_with,
    tool_not_called,
)
from weakincentives.evals.engine import span_processor
from weakincentives.rollouts import Trajectory, recording
from weakincentives.testing import session_with

SAMPLES = [Sample(str(number), number, number) for number in range(5)]
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


def run(agent: Callable[[Any], Any], *evaluators: Any, **config: Any) -> list[EvalResult[Any]]:
    suite = EvalSuite(agent, SAMPLES, evaluators or exact_match, config=EvalConfig(**config))
    return list(suite.run().results)


def trajectory_of(result: EvalResult[Any]) -> Trajectory[Any]:
    assert result.trajectory is not None, result.error
    return result.trajectory


# ── record ──────────────────────────────────────────────────────────────────────────────────────


def recording_agent(number: int) -> int:
    record.message("user", f"What is {number}?")
    with record.tool("search", query=number) as call:
        call.result = {"hits": number}
    record.usage(input_tokens=10, output_tokens=1, cost=0.25)
    record.usage(input_tokens=5, cached_tokens=2, cost=0.25, model="m")
    return number


async def recording_agent_async(number: int) -> int:
    await anyio.lowlevel.checkpoint()
    return recording_agent(number)


@pytest.mark.parametrize("agent", [recording_agent, recording_agent_async])
def test_recorded_messages_tools_and_usage_are_the_trajectory(agent: Callable[[int], Any]) -> None:
    results = run(
        agent,
        tool_called_with("search", query=lambda query: query >= 0),
        tool_call_count("search", min_count=1, max_count=1),
        all_tools_succeeded(),
        token_usage_under(16),
        cost_under(0.5),
        max_concurrent=5,
    )

    assert [(result.error, result.passed) for result in results] == [(None, True)] * 5
    for number, result in enumerate(results):
        trajectory = trajectory_of(result)
        user, call, answer = trajectory.messages
        assert user == ChatMessage("user", f"What is {number}?")
        assert call.tool_calls[0].arguments == {"query": number}
        assert json.loads(answer.content) == {"hits": number}
        assert trajectory.usage == TokenUsage(15, 1, 2)
        assert trajectory.output == number


def test_a_tool_that_fails_is_marked_as_failed() -> None:
    def agent(number: int) -> int:
        try:
            with record.tool("search"):
                raise TimeoutError("too slow")
        except TimeoutError:
            pass
        with record.tool("fetch") as call:
            call.error = "no such page"
        with record.tool("read") as call:
            call.result = {"success": False}
        with record.tool("list", name="x", self="y", odd=object()):
            pass
        return number

    result = run(agent, tool_called("list"), all_tools_succeeded())[0]

    assert "failed tools: ['search', 'fetch', 'read']" in result.score.reason
    assert sorted(trajectory_of(result).tool_errors.values()) == [
        "TimeoutError: too slow",
        "no such page",
        "the tool reported a failure",
    ]


def test_fields_that_an_agent_returns_win_over_recorded_ones() -> None:
    def returns_messages(number: int) -> Trajectory[int]:
        recording_agent(number)
        return Trajectory([ChatMessage("user", "mine")], number)

    def returns_usage(number: int) -> Trajectory[int]:
        recording_agent(number)
        return Trajectory(output=number, usage=TokenUsage(1, 1))

    def returns_session(number: int) -> Any:
        recording_agent(number)
        return Trajectory(output=number), session_with()

    assert trajectory_of(run(returns_messages)[0]).messages == (ChatMessage("user", "mine"),)
    merged = trajectory_of(run(returns_usage)[0])
    assert (merged.usage, merged.cost, len(merged.messages)) == (TokenUsage(1, 1), 0.5, 3)
    assert trajectory_of(run(returns_session)[0]).messages == ()


def test_the_recording_of_a_failed_agent_is_kept() -> None:
    def agent(number: int) -> int:
        recording_agent(number)
        raise LookupError("lost")

    result = run(agent)[0]

    assert result.error_source == "agent"
    assert [message.role for message in trajectory_of(result).messages] == [
        "user",
        "assistant",
        "tool",
    ]


def test_record_does_nothing_outside_of_a_sample() -> None:
    assert recording_agent(1) == 1

    def records_while_scoring(output: int, expected: int) -> bool:  # runs after the agent
        recording_agent(output)
        return True

    assert trajectory_of(run(lambda number: number, records_while_scoring)[0]).messages == ()


def test_misuse_of_record_is_an_error() -> None:
    with pytest.raises(UsageError, match="expected the name of a tool, got 5"), record.tool(5):  # type: ignore[arg-type]
        pass
    with pytest.raises(UsageError, match="input_tokens"):
        record.usage(input_tokens=-1)
    with pytest.raises(
        UsageError, match=r"expected seconds >= 0 for `record.usage\(seconds=...\)`"
    ):
        record.usage(seconds=-1)
    with pytest.raises(UsageError, match="expected the role"):
        record.message("robot", "hi")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected a tracer provider"):
        record.spans(5)


def test_the_size_of_a_recording_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_ITEMS", 3)

    def agent(number: int) -> int:
        for _ in range(5):
            with record.tool("search"):
                pass
        return number

    trajectory = trajectory_of(run(agent)[0])

    assert sum(len(message.tool_calls) for message in trajectory.messages) == 3
    assert trajectory.metadata == {"not_recorded": 2}


# ── spans ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    provider = TracerProvider()
    record.spans(provider)
    record.spans(provider)  # idempotent
    yield provider
    assert not span_processor._owners


def test_spans_belong_to_the_sample_in_whose_context_they_start(provider: TracerProvider) -> None:
    tracer = provider.get_tracer("framework")

    async def agent(number: int) -> int:
        with tracer.start_as_current_span("agent"):
            async with anyio.create_task_group() as group:
                for _ in range(number):
                    group.start_soon(anyio.to_thread.run_sync, call_tool)
            with tracer.start_as_current_span("chat", attributes=CHAT):
                await anyio.lowlevel.checkpoint()
        return number

    def call_tool() -> None:
        with tracer.start_as_current_span("tool", attributes=TOOL):
            pass

    results = run(agent, tool_not_called("other"), token_usage_under(5), max_concurrent=5)

    assert [result.error for result in results[1:]] == [None] * 4
    counts = [sum(len(m.tool_calls) for m in trajectory_of(result).messages) for result in results]
    assert counts == [0, 1, 2, 3, 4]
    assert [result.tokens_used for result in results] == [5] * 5


def test_a_thread_without_a_context_is_matched_by_the_parent_span(provider: TracerProvider) -> None:
    tracer = provider.get_tracer("framework")

    def agent(number: int) -> int:
        with tracer.start_as_current_span("agent") as parent:
            context = set_span_in_context(parent)

            def call_tool() -> None:
                with tracer.start_as_current_span("tool", context, attributes=TOOL) as span:
                    span.set_status(Status(StatusCode.ERROR, f"order {number} is lost"))

            thread = threading.Thread(target=call_tool)
            thread.start()
            thread.join()
        return number

    results = run(agent, tool_called("search"), max_concurrent=5)

    assert all(result.passed for result in results)
    errors = [[*trajectory_of(result).tool_errors.values()] for result in results]
    assert errors == [[f"order {number} is lost"] for number in range(5)]


def test_spans_of_evaluators_and_of_this_library_are_not_recorded(
    provider: TracerProvider,
) -> None:
    tracer = provider.get_tracer("framework")

    def agent(number: int) -> int:
        with tracer.start_as_current_span("tool", attributes=TOOL):
            return number

    def judge(output: int, expected: int) -> bool:
        with tracer.start_as_current_span("tool", attributes=TOOL):
            return True

    with configure_otel(tracer_provider=provider, content=True):
        results = run(agent, all_of(judge, tool_call_count("search", max_count=1)))

    assert [result.score.reason for result in results] == [
        "tool_call_count(search): tool 'search' called 1 times (expected 0-1)"
    ] * 5


def test_spans_that_end_after_the_agent_are_left_out(provider: TracerProvider) -> None:
    tracer = provider.get_tracer("framework")
    open_spans: list[Any] = []

    def agent(number: int) -> int:
        open_spans.append(tracer.start_span("tool", attributes=TOOL))
        tracer.start_span("chat", attributes=CHAT).end()
        return number

    results = run(agent)
    for span in open_spans:
        span.end()
    copy_context().run(lambda: tracer.start_span("tool", attributes=TOOL).end())

    assert all(trajectory_of(result).messages == () for result in results)
    assert [result.tokens_used for result in results] == [5] * 5


def test_spans_of_other_kinds_are_not_recorded(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_CHARACTERS", 1000)
    tracer = provider.get_tracer("framework")

    def agent(number: int) -> int:
        for _ in range(100):
            tracer.start_span("http", attributes={"url.path": "x" * 900}).end()
        for _ in range(3):
            text = json.dumps([{"role": "user", "content": "x" * 400}])
            tracer.start_span("chat", attributes={**CHAT, "gen_ai.input.messages": text}).end()
        return number

    trajectory = trajectory_of(run(agent)[0])

    assert trajectory.usage == TokenUsage(10)
    assert trajectory.metadata == {"not_recorded": 1}


def test_a_provider_that_is_set_during_a_run_is_used_for_the_next_sample(
    tmp_path: Path,
) -> None:
    script = """
from opentelemetry import trace
import opentelemetry.sdk.trace as sdk
from weakincentives.evals import EvalConfig, EvalSuite, Sample, exact_match

def agent(number):
    if number == 0:
        trace.set_tracer_provider(sdk.TracerProvider())
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5}
    trace.get_tracer("framework").start_span("chat", attributes=attributes).end()
    return number

samples = [Sample(str(number), number, number) for number in range(3)]
report = EvalSuite(agent, samples, exact_match, config=EvalConfig(max_concurrent=1)).run()
print([result.tokens_used for result in report.results])
"""
    assert stdout_of(script, tmp_path) == "[0, 5, 5]\n"


def test_without_a_provider_opentelemetry_is_not_imported(tmp_path: Path) -> None:
    script = """
import sys
from weakincentives.evals import EvalSuite, Sample, exact_match, record

def agent(number):
    with record.tool("search"):
        return number

EvalSuite(agent, [Sample("1", 1, 1)], exact_match).run()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert stdout_of(script, tmp_path) == "[]\n"


def stdout_of(script: str, folder: Path) -> str:
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        env=plain_environment(),
        timeout=TIMEOUT,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout
