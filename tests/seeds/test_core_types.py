"""Scores, the types of evaluators, a session in a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.seeds.loops import MathLoop
from weakincentives import Session, ToolCall
from weakincentives.evals import (
    Evaluator,
    Score,
    SessionView,
    all_of,
    criterion,
    exact_match,
    token_usage_under,
    tool_called,
)
from weakincentives.evals.evaluators import SessionEvaluator
from weakincentives.runtime import ControlDispatcher, MainLoopRequest, MainLoopResult


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
