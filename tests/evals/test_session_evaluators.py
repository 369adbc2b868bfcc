"""Evaluators of the agent's behaviour: tool calls, tokens, latency, cost and session items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

from weakincentives.errors import EvaluatorError, UsageError
from weakincentives.evals import (
    Criterion,
    Sample,
    Score,
    Trajectory,
    all_of,
    all_tools_succeeded,
    cost_under,
    exact_match,
    latency_under,
    slice_contains,
    token_usage_under,
    tool_call_count,
    tool_called,
    tool_called_with,
    tool_not_called,
    tools_called_in_order,
)
from weakincentives.runtime import (
    PromptExecuted,
    Session,
    SessionSnapshot,
    SessionView,
    TokenUsage,
    ToolInvoked,
)
from weakincentives.testing import session_with


@dataclass(frozen=True)
class PlanStep:
    name: str
    status: str


def called(name: str, success: bool = True, **params: Any) -> ToolInvoked:
    return ToolInvoked(name=name, params=params, success=success)


def executed(**fields: Any) -> PromptExecuted:
    return PromptExecuted(prompt_name="qa", adapter="scripted", **fields)


BUSY = session_with(
    called("search", query="wink"),
    called("open", url="x"),
    called("search", query="evals", limit=3),
    executed(usage=TokenUsage(100, 20), latency_ms=300, cost=0.01),
    executed(usage=TokenUsage(50, None), latency_ms=200, cost=0.02),
    PlanStep("read", "completed"),
    PlanStep("write", "pending"),
)
IDLE = session_with()


@pytest.mark.parametrize(
    ("evaluator", "busy", "idle"),
    [
        (tool_called("search"), True, False),
        (tool_called("delete"), False, False),
        (tool_not_called("search"), False, True),
        (tool_not_called("delete"), True, True),
        (tool_call_count("search", min_count=2), True, False),
        (tool_call_count("search", min_count=1, max_count=1), False, False),
        (tool_call_count("search", max_count=2), True, True),
        (tool_call_count("search"), True, True),
        (tool_called_with("search", query="wink"), True, False),
        (tool_called_with("search", query="evals", limit=3), True, False),
        (tool_called_with("search", query="wink", limit=3), False, False),
        (tool_called_with("search", query=lambda q: q.startswith("ev")), True, False),
        (tool_called_with("search"), True, False),
        (tools_called_in_order("search", "open"), True, False),
        (tools_called_in_order("search", "search"), True, False),
        (tools_called_in_order("open", "open"), False, False),
        (tools_called_in_order("search", "open", exactly=True), False, False),
        (tools_called_in_order("search", "open", "search", exactly=True), True, False),
        (tools_called_in_order(), True, True),
        (tools_called_in_order(exactly=True), False, True),
        (all_tools_succeeded(), True, True),
        (token_usage_under(170), True, True),
        (token_usage_under(169), False, True),
        (token_usage_under(0), False, True),
        (latency_under(500), True, True),
        (latency_under(499), False, True),
        (cost_under(0.03), True, True),
        (cost_under(0.02), False, True),
        (slice_contains(PlanStep, lambda s: s.status == "completed"), True, False),
        (slice_contains(PlanStep, lambda s: s.status == "completed", min_count=2), False, False),
        (slice_contains(PlanStep, lambda s: True, min_count=0), True, True),
    ],
)
def test_busy_and_idle_sessions_are_judged_as_documented(
    evaluator: Criterion, busy: bool, idle: bool
) -> None:
    assert evaluator(None, None, BUSY).passed is busy
    assert evaluator(None, None, IDLE).passed is idle


@pytest.mark.parametrize(
    ("evaluator", "reason"),
    [
        (tool_called("search"), "tool 'search' called 2 time(s)"),
        (tool_called("pay"), "tool 'pay' called 0 time(s)"),
        (tool_not_called("search"), "tool 'search' called 2 time(s)"),
        (tool_not_called("delete"), ""),
        (tool_call_count("open", min_count=2), "tool 'open' called 1 times (expected >= 2)"),
        (tool_call_count("open", max_count=3), "tool 'open' called 1 times (expected 0-3)"),
        (
            tool_called_with("open", url="y"),
            "tool 'open' called with {\"url\":\"x\"}, expected url='y'",
        ),
        (
            tool_called_with("none", url="y"),
            "tool 'none' called with nothing: no call, expected url='y'",
        ),
        (
            tools_called_in_order("open", "open"),
            "tools called: search > open > search, expected open > open",
        ),
        (
            tools_called_in_order("search", "open", exactly=True),
            "tools called: search > open > search, expected exactly search > open",
        ),
        (token_usage_under(9), "used 170 tokens (limit: 9)"),
        (latency_under(9), "took 500 ms (limit: 9)"),
        (cost_under(0.005), "cost $0.03 (limit: $0.005)"),
        (slice_contains(PlanStep, lambda s: True), "found 2 matching items (need >= 1)"),
    ],
)
def test_the_reason_describes_the_session(evaluator: Criterion, reason: str) -> None:
    assert evaluator(None, None, BUSY).reason == reason


def test_a_failed_tool_is_named() -> None:
    session = session_with(called("search"), called("pay", success=False))

    assert all_tools_succeeded()(None, None, session) == Score(
        0.0, reason="failed tools: ['pay']", criterion="all_tools_succeeded"
    )


def test_the_reason_stays_short_for_a_thousand_calls() -> None:
    session = session_with(*(called("search", query="x" * 999) for _ in range(1_000)))

    for evaluator in (
        tool_called("pay"),
        tools_called_in_order("pay"),
        tool_called_with("search", query="y"),
    ):
        assert len(evaluator(None, None, session).reason) < 400


@pytest.mark.parametrize("budget", [latency_under(1000), cost_under(1)])
def test_an_unknown_measurement_is_an_error_and_not_zero(budget: Criterion) -> None:
    with pytest.raises(
        EvaluatorError, match="on every PromptExecuted event, got none for prompt 'qa'"
    ):
        budget(None, None, session_with(executed()))


def test_budgets_without_a_session_use_the_trajectory() -> None:
    trajectory = Trajectory(usage=TokenUsage(60, 40), latency_ms=500, cost=0.01)
    sample = Sample("1", "x")
    for under, limit in ((token_usage_under, 100), (latency_under, 500), (cost_under, 0.01)):
        assert under(limit)(trajectory, sample).passed
        assert not under(limit * 0.9)(trajectory, sample).passed
        with pytest.raises(EvaluatorError, match="got neither"):
            under(limit)("output", "expected")


def test_a_tool_may_have_a_parameter_called_name() -> None:
    session = session_with(ToolInvoked(name="greet", params={"name": "wink"}))

    assert tool_called_with("greet", name="wink")(None, None, session).passed


def test_parameters_that_are_not_an_object_match_no_expected_parameter() -> None:
    session = session_with(ToolInvoked(name="raw", params="text"))

    assert not tool_called_with("raw", a=1)(None, None, session).passed


@pytest.mark.parametrize(
    "build",
    [
        lambda: tool_call_count("a", min_count=-1),
        lambda: tool_call_count("a", min_count=2, max_count=1),
        lambda: token_usage_under(-1),
        lambda: latency_under(float("nan")),
        lambda: cost_under(-0.1),
        lambda: slice_contains(PlanStep, bool, min_count=-1),
        lambda: slice_contains(PlanStep, None),
        lambda: slice_contains("PlanStep", bool),
        lambda: tool_call_count("a", min_count="2"),
        lambda: tool_called(print),
        lambda: tool_not_called(""),
        lambda: tools_called_in_order(["a", "b"]),
    ],
)
def test_invalid_arguments_are_refused(build: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        build()


EVALUATORS = [
    tool_called("a"),
    tool_not_called("a"),
    tool_call_count("a", min_count=1, max_count=2),
    tool_called_with("a", n=1),
    tools_called_in_order("a", "b"),
    all_tools_succeeded(),
    token_usage_under(50),
    latency_under(50),
    cost_under(1),
    slice_contains(PlanStep, lambda step: step.status == "done"),
]
items = st.lists(
    st.one_of(
        st.builds(called, st.sampled_from("abc"), st.booleans(), n=st.integers(0, 2)),
        st.builds(
            executed,
            usage=st.none() | st.builds(TokenUsage, st.integers(0, 40), st.integers(0, 40)),
            latency_ms=st.integers(0, 60),
            cost=st.floats(0, 1),
        ),
        st.builds(PlanStep, st.just("step"), st.sampled_from(["done", "pending"])),
    ),
    max_size=6,
)


def views(session: Session) -> list[SessionView]:
    data = session.snapshot()
    return [session, session.view(), SessionSnapshot.from_bytes(data), Session().restore(data)]


@given(items)
def test_live_copied_and_restored_sessions_have_the_same_scores(recorded: list[Any]) -> None:
    session = session_with(*recorded)
    for evaluator in EVALUATORS:
        scores = {evaluator(None, None, view) for view in views(session)}

        assert len(scores) == 1


@given(items)
def test_called_and_not_called_are_opposites(recorded: list[Any]) -> None:
    session = session_with(*recorded)

    called_score, not_called_score = (
        tool_called("a")(0, 0, session),
        tool_not_called("a")(0, 0, session),
    )
    count_score = tool_call_count("a", min_count=1)(0, 0, session)
    assert called_score.passed is not not_called_score.passed
    assert called_score.passed is count_score.passed


@given(items, st.integers(0, 100))
def test_a_looser_budget_passes_whenever_a_tighter_one_does(
    recorded: list[Any], budget: int
) -> None:
    session = session_with(*recorded)
    for under in (token_usage_under, latency_under, cost_under):
        tight, loose = (under(b)(0, 0, session).passed for b in (budget, budget + 7))

        assert loose >= tight


def test_output_and_behaviour_combine() -> None:
    both = all_of(exact_match, tool_called("search"), token_usage_under(5000))

    assert both("a", "a", BUSY).passed
    assert [m.name for m in both("a", "b", BUSY).metrics] == [
        "exact_match",
        "tool_called(search)",
        "token_usage_under",
    ]
