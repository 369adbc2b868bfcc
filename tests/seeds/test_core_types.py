"""Core types, built-in and session-aware evaluators, judges, a session in a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.seeds.loops import MathLoop
from weakincentives import Session, ToolCall
from weakincentives.evals import (
    Dataset,
    EvalReport,
    EvalResult,
    Evaluator,
    Sample,
    Score,
    SessionView,
    adapt,
    all_of,
    all_tools_succeeded,
    any_of,
    contains,
    criterion,
    exact_match,
    llm_judge,
    slice_contains,
    token_usage_under,
    tool_call_count,
    tool_called,
    tool_not_called,
)
from weakincentives.evals.evaluators import SessionEvaluator
from weakincentives.runtime import ControlDispatcher, MainLoopRequest, MainLoopResult
from weakincentives.runtime.events import PromptExecuted, TokenUsage, ToolInvoked
from weakincentives.testing import session_with


def test_dataset_methods(tmp_path: Path) -> None:
    path = tmp_path / "qa.jsonl"
    path.write_text('{"id": "1", "input": "What is 2+2?", "expected": "4"}\n')

    dataset = Dataset.load(path, str, str)

    assert len(dataset) == 1
    assert list(dataset) == [dataset[0]] == [Sample("1", "What is 2+2?", "4")]


def test_score_fields() -> None:
    score = Score(value=0.75, passed=True, reason="close")

    assert (score.value, score.passed, score.reason) == (0.75, True, "close")


def test_evaluator_types_describe_plain_functions() -> None:
    def plain(output: str, expected: str) -> Score:
        return Score(1.0)

    def aware(output: str, expected: str, session: SessionView) -> Score:
        return Score(1.0)

    evaluator: Evaluator[str, str] = plain
    session_evaluator: SessionEvaluator[str, str] = aware

    assert not criterion(evaluator).session_aware
    assert criterion(session_evaluator).session_aware


def test_built_in_evaluators() -> None:
    assert exact_match("a", "a").passed
    assert contains("abc", "b").passed
    assert all_of(exact_match, contains)("ab", "a").value == 0.5
    assert any_of(exact_match, contains)("ab", "a").value == 1.0


def test_session_view_is_read_only_access() -> None:
    view: SessionView = Session().view()

    assert isinstance(view.session_id, UUID)
    assert view[ToolInvoked].all() == ()
    for mutation in ("append", "seed", "clear", "register"):
        assert not hasattr(view[ToolInvoked], mutation)


@pytest.mark.parametrize(
    ("evaluator", "passed"),
    [
        (tool_called("search"), True),
        (tool_not_called("search"), False),
        (tool_call_count("search", min_count=1, max_count=2), True),
        (all_tools_succeeded(), True),
        (token_usage_under(100), True),
        (slice_contains(ToolInvoked, lambda call: call.name == "search", min_count=2), False),
        (adapt(exact_match), True),
    ],
)
def test_session_evaluators(evaluator: SessionEvaluator[str, str], passed: bool) -> None:
    session = session_with(
        ToolInvoked(name="search", result={"success": True}),
        PromptExecuted(usage=TokenUsage(60, 40)),
    )

    assert criterion(evaluator)("a", "a", session).passed is passed


@pytest.mark.parametrize(
    ("rating", "value", "passes"),
    [
        ("excellent", 1.0, True),
        ("good", 0.75, True),
        ("fair", 0.5, False),
        ("poor", 0.25, False),
        ("wrong", 0.0, False),
    ],
)
def test_a_judge_rates(
    adapter_replying: Callable[..., Any], rating: str, value: float, passes: bool
) -> None:
    adapter = adapter_replying({"reason": "so", "rating": rating})
    evaluator: Evaluator[str, str] = llm_judge(adapter, "Clarity")

    score = evaluator("output", "expected")

    assert (score.value, score.passed, score.reason) == (value, passes, "so")


def test_result_and_report() -> None:
    result = EvalResult(
        sample_id="1", score=Score(value=1.0, passed=True), latency_ms=120, error=None
    )
    broken = EvalResult(
        sample_id="2", score=Score(value=0.0, passed=False), latency_ms=80, error="timeout"
    )
    report = EvalReport(results=(result, broken))

    assert (report.total, report.successful) == (2, 1)
    assert (report.pass_rate, report.mean_score, report.mean_latency_ms) == (1.0, 1.0, 100.0)
    assert report.failed_samples() == ()


@pytest.mark.anyio
async def test_a_snapshot_in_a_result_gives_the_same_score(
    adapter_replying: Callable[..., Any],
) -> None:
    """Strategy 1: the result contains the serialized session, which the evaluator restores."""
    call = ToolCall("call_1", "calculator", {"left": 2, "right": 3})
    mainloop = MathLoop(adapter=adapter_replying(call, "5", call, "5"), bus=ControlDispatcher())
    evaluator = all_of(exact_match, tool_called("calculator"), token_usage_under(200))

    result: MainLoopResult[str] = await mainloop.respond(MainLoopRequest("What is 2 + 3?"))
    response, live = await mainloop.execute_async("What is 2 + 3?")

    assert result.session_snapshot is not None
    session = Session().restore(result.session_snapshot)
    assert session.session_id == result.session_id
    score = evaluator(result.output, "5", session)
    assert score.passed
    assert score == evaluator(response.output, "5", live)
