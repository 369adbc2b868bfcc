"""Where the time of an attempt went: its model calls, its tools, and the rest."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from weakincentives import Session, TokenUsage
from weakincentives.adapters import ModelReply, ScriptedAdapter
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.evals import Sample, Trajectory, record
from weakincentives.evals.engine import function_agent, prompt_agent
from weakincentives.evals.engine.attempts import RunSpec, run_attempt
from weakincentives.evals.evaluators.criteria import criterion
from weakincentives.evals.model.timing import calls_of, split_time
from weakincentives.prompt import MarkdownSection, PromptTemplate, Tool
from weakincentives.runtime.events import CallSpan, PromptExecuted, ToolInvoked


def model(start: float, ms: float | None) -> CallSpan:
    return CallSpan(kind="model", name="m", start=start, ms=ms)


def tool(start: float, ms: float) -> CallSpan:
    return CallSpan(kind="tool", name="t", start=start, ms=ms)


@pytest.mark.parametrize(
    ("calls", "split"),
    [
        ([], {}),
        ([model(0, 600), tool(0.6, 1800)], {"model": 600, "tools": 1800, "other": 2200}),
        ([tool(1, 500), tool(1.2, 500)], {"tools": 700, "rest": 3900}),
        ([model(1, 500)], {"model": 500, "other": 4100}),
        ([model(0, None)], {}),
        ([model(0, 1000), tool(0.5, 1000)], {"model": 1000, "tools": 500, "other": 3100}),
        ([model(0, None), tool(0, 600)], {"tools": 600, "rest": 4000}),
        ([model(0, 3000), tool(3, 2000)], {"model": 3000, "tools": 2000}),
    ],
)
def test_time_is_split_and_what_overlaps_counts_once(
    calls: list[CallSpan], split: dict[str, float]
) -> None:
    assert split_time(calls, 4600) == pytest.approx(split)


def test_a_session_of_an_earlier_version_has_one_span_for_each_prompt() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    with Session() as session:
        session.dispatch(ToolInvoked(name="t", error="no", latency_ms=250, created_at=moment))
        session.dispatch(PromptExecuted(model="m", latency_ms=500, created_at=moment))
        stored = json.loads(session.snapshot())
    for each in stored["slices"]:
        for item in each["items"]:
            item.pop("calls", None)

    first, second = calls_of(None, json.dumps(stored).encode())

    assert (first.kind, first.name, first.ms, first.error) == ("model", "m", 500, None)
    assert (second.kind, second.name, second.ms, second.error) == ("tool", "t", 250, "no")
    assert first.start == (moment - timedelta(seconds=0.5)).timestamp()


async def outcome_of(agent: Any) -> Any:
    spec = RunSpec(agent=agent, criterion=criterion(lambda output, expected: True))
    spec.keep_sessions = True
    return await run_attempt(spec, Sample("1", "x", ""))


@pytest.mark.anyio
async def test_the_time_of_a_prompt_has_that_of_its_tools_and_a_span_for_each_model_call() -> None:
    asks = ChatMessage("assistant", tool_calls=(ToolCall("1", "look", {}),))
    replies = [
        ModelReply(message=asks, usage=TokenUsage(10, 1, 4), finish_reason="tool_calls"),
        ModelReply(message=ChatMessage("assistant", "5"), latency_ms=70),
    ]
    look = Tool("look", "Look.", lambda: "nothing")
    section = MarkdownSection("", "$x", "ask", tools=(look,))
    prompt = PromptTemplate[str]("ns", "key", sections=[section])

    outcome = await outcome_of(prompt_agent(prompt, ScriptedAdapter(replies)))
    session = outcome.session.snapshot()
    first, looked, second = calls_of(outcome.result.trajectory, session)

    assert [call.kind for call in (first, looked, second)] == ["model", "tool", "model"]
    assert (first.usage, first.stop_reason) == (TokenUsage(10, 1, 4), "tool_calls")
    assert second.ms == 70
    assert outcome.result.latency_ms >= 70


@pytest.mark.anyio
async def test_a_recorded_agent_has_its_calls_in_the_trajectory_even_if_it_fails() -> None:
    async def agent(question: str) -> str:
        with record.tool("look"):
            record.usage(input_tokens=3, model="m")
        record.usage(output_tokens=1, seconds=0.5, stop_reason="stop")
        raise ValueError("no")

    trajectory: Trajectory[Any] = (await outcome_of(function_agent(agent))).result.trajectory

    again, looked, asked = trajectory.calls  # by their starts
    assert (looked.kind, looked.name, asked.kind, asked.name) == ("tool", "look", "model", "m")
    assert asked.ms is None
    assert (again.ms, again.stop_reason) == (pytest.approx(500), "stop")
