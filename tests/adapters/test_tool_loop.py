"""Ask, call tools, ask again: with a scripted model, under asyncio and trio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from weakincentives import ChatMessage, Session, TokenUsage, ToolCall
from weakincentives.adapters import ModelReply, ModelRequest, ScriptedAdapter
from weakincentives.budget import Budget, BudgetTracker, Deadline
from weakincentives.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    OutputParseError,
    ProviderError,
)
from weakincentives.evals import all_of, all_tools_succeeded, tool_called, tools_called_in_order
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.runtime import PromptExecuted, PromptRendered, ToolInvoked
from weakincentives.testing import FakeClock

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Sum:
    a: int
    b: int


@dataclass(frozen=True)
class Answer:
    value: int


def add(params: Sum) -> int:
    return params.a + params.b


async def divide(params: Sum) -> float:
    return params.a / params.b


ADD = Tool[Sum, int](name="add", description="Add two numbers.", handler=add)
DIVIDE = Tool[Sum, float](name="divide", description="Divide two numbers.", handler=divide)


def prompt_for(output: Any = str, tools: tuple[Any, ...] = (ADD, DIVIDE)) -> Prompt[Any]:
    section = MarkdownSection(title="Maths", template="What is 2+3?", key="maths", tools=tools)
    return Prompt(PromptTemplate[output](ns="tests", key="maths", name="maths", sections=[section]))


def call(name: str, a: int = 2, b: int = 3, id: str = "1") -> ToolCall:
    return ToolCall(id, name, {"a": a, "b": b})


async def test_a_plain_answer_is_the_output() -> None:
    session = Session()

    response = await ScriptedAdapter(["five"]).evaluate_async(prompt_for(), session=session)

    assert (response.output, response.text, response.finish_reason) == ("five", "five", "stop")
    (rendered,), (executed,) = session[PromptRendered].all(), session[PromptExecuted].all()
    assert rendered.tools == ("add", "divide")
    assert "What is 2+3?" in rendered.rendered_prompt
    assert executed.usage == response.usage
    assert executed.result == {"text": "five", "output": "five"}


async def test_a_tool_is_called_and_its_answer_goes_back() -> None:
    requests: list[ModelRequest] = []

    def model(request: ModelRequest) -> Any:
        requests.append(request)
        return call("add") if len(requests) == 1 else {"value": 5}

    session = Session()
    response = await ScriptedAdapter(model).evaluate_async(prompt_for(Answer), session=session)

    assert response.output == Answer(5)
    assert [m.role for m in response.messages] == ["user", "assistant", "tool", "assistant"]
    assert requests[1].messages[-1] == ChatMessage("tool", "5", tool_call_id="1", name="add")
    assert {spec.name for spec in requests[0].tools} == {"add", "divide"}
    (event,) = session[ToolInvoked].all()
    assert (event.name, event.params, event.result, event.success) == (
        "add",
        {"a": 2, "b": 3},
        5,
        True,
    )
    assert event.session_id == session.session_id
    assert event.latency_ms is not None


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (call("divide", 1, 0), "division by zero"),
        (call("subtract"), "there is no tool `subtract`; known: add, divide"),
        (ToolCall("1", "add", {"a": 1}), "b"),
        (ToolCall("1", "add", {"a": 1, "b": "2"}), "int"),
    ],
)
async def test_a_failed_tool_call_records_an_event_and_is_reported_to_the_model(
    wish: ToolCall, error: str
) -> None:
    session = Session()

    response = await ScriptedAdapter([wish, "sorry"]).evaluate_async(prompt_for(), session=session)

    (event,) = session[ToolInvoked].all()
    assert response.output == "sorry"
    assert not event.success
    assert error in (event.error or "")
    assert error in response.messages[-2].content
    assert not all_tools_succeeded()(None, None, session.view()).passed


async def test_concurrent_tool_calls_are_answered_in_order() -> None:
    met = anyio.Event()

    async def first(params: Sum) -> str:
        await met.wait()
        return "first"

    async def second(params: Sum) -> str:
        met.set()
        return "second"

    tools = (
        Tool[Sum, str](name="first", description="Waits.", handler=first),
        Tool[Sum, str](name="second", description="Wakes.", handler=second),
    )
    session = Session()
    wishes = [call("first", id="1"), call("second", id="2")]
    adapter: Any = ScriptedAdapter([wishes, "done"])
    with anyio.fail_after(60):
        response = await adapter.evaluate_async(prompt_for(tools=tools), session=session)

    assert [m.content for m in response.messages[2:4]] == ["first", "second"]
    both = all_of(tool_called("first"), tools_called_in_order("first", "second", exactly=True))
    assert both(None, None, session.view()).passed


async def test_a_cancelled_tool_records_an_event_too() -> None:
    async def forever(params: Sum) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    slow = Tool[Sum, str](name="slow", description="Never ends.", handler=forever)
    session = Session()
    with anyio.CancelScope() as scope:
        await ScriptedAdapter([call("slow")]).evaluate_async(
            prompt_for(tools=(slow,)), session=session
        )

    assert scope.cancelled_caught
    assert session[ToolInvoked].latest().error == "cancelled before it finished"  # type: ignore[union-attr]


async def test_a_model_that_only_calls_tools_is_stopped() -> None:
    adapter: Any = ScriptedAdapter(lambda request: call("add"), max_turns=3)
    session = Session()

    with pytest.raises(ProviderError, match="an answer within 3 turns"):
        await adapter.evaluate_async(prompt_for(), session=session)

    assert len(session[ToolInvoked]) == 3
    assert "within 3 turns" in (session[PromptExecuted].latest() or PromptExecuted()).error  # type: ignore[operator]


async def test_an_invalid_output_is_an_error_with_an_event() -> None:
    session = Session()

    with pytest.raises(OutputParseError):
        await ScriptedAdapter(["no number"]).evaluate_async(prompt_for(Answer), session=session)

    executed = session[PromptExecuted].latest()
    assert executed is not None
    assert executed.error is not None
    assert executed.usage is not None


async def test_a_budget_covers_all_turns() -> None:
    tracker = BudgetTracker(Budget(max_total_tokens=10))
    used = ModelReply(message=ChatMessage("assistant", "x"), usage=TokenUsage(6, 5))

    with pytest.raises(BudgetExceededError, match="at most 10 total tokens, used 11"):
        await ScriptedAdapter([used]).evaluate_async(prompt_for(), budget_tracker=tracker)


async def test_a_passed_deadline_makes_no_call() -> None:
    clock = FakeClock()
    late = Deadline.after(1, clock=clock)
    clock.advance(2)

    with pytest.raises(DeadlineExceededError):
        await ScriptedAdapter(["unused"]).evaluate_async(prompt_for(), deadline=late)


async def test_a_deadline_cuts_a_slow_answer_off() -> None:
    async def forever(request: ModelRequest) -> str:
        await anyio.sleep_forever()
        return ""

    soon = Deadline.after(0.05, clock=FakeClock())  # which has not passed when the call begins
    with pytest.raises(DeadlineExceededError, match="timed out"):
        await ScriptedAdapter(forever).evaluate_async(prompt_for(), deadline=soon)


async def test_usage_and_latency_add_up_with_the_time_of_tools() -> None:
    clock = FakeClock()

    def add_slowly(params: Sum) -> int:
        clock.advance(2)
        return params.a + params.b

    slow = Tool[Sum, int]("add", "Add two numbers.", add_slowly)
    replies = [
        ModelReply(
            message=ChatMessage("assistant", tool_calls=(call("add"),)),
            usage=TokenUsage(10, 1),
            latency_ms=100.0,
            model="m-1",
        ),
        ModelReply(message=ChatMessage("assistant", "5"), usage=TokenUsage(20, 2), latency_ms=50.0),
        ModelReply(message=ChatMessage("assistant", "unmeasured")),
    ]
    adapter = ScriptedAdapter(replies)
    rendered, session = prompt_for(tools=(slow,)).render(), Session()
    response = await adapter.converse(rendered, clock=clock, session=session)
    bare = await adapter.converse(rendered, clock=clock)

    assert (response.usage, response.model) == (TokenUsage(30, 3), "m-1")
    assert (response.latency_ms, bare.latency_ms) == (2150, 0)
    assert (response.cost, bare.usage) == (None, None)
    (executed,) = session[PromptExecuted]
    assert executed.latency_ms == 2150
    assert [(call.ms, call.usage) for call in executed.calls] == [
        (100, TokenUsage(10, 1)),
        (50, TokenUsage(20, 2)),
    ]


async def test_a_tool_that_exits_is_an_error_and_does_not_stop_the_event_loop() -> None:
    async def exit_process(params: Sum) -> int:
        raise SystemExit(2)

    tool = Tool[Sum, int](name="leave", description="Leave.", handler=exit_process)
    asks = ChatMessage("assistant", tool_calls=(call("leave"), call("add", id="2")))

    with pytest.raises(SystemExit):
        await ScriptedAdapter([asks]).evaluate_async(
            prompt_for(tools=(tool, ADD)), session=Session()
        )
