"""Typed datasets, evaluators as functions, session-aware evaluators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from weakincentives.evals import (
    Dataset,
    Evaluator,
    Sample,
    Score,
    adapt,
    all_of,
    all_tools_succeeded,
    criterion,
    exact_match,
    token_usage_under,
    tool_called,
    tool_not_called,
)
from weakincentives.evals.evaluators import is_session_aware
from weakincentives.runtime.events import PromptExecuted, TokenUsage, ToolInvoked
from weakincentives.testing import session_with


@dataclass(slots=True, frozen=True)
class MathProblem:
    left: int
    right: int


# ── datasets ────────────────────────────────────────────────────────────────────────────────────


def test_jsonl_of_nested_objects(tmp_path: Path) -> None:
    path = tmp_path / "math.jsonl"
    path.write_text('{"id": "1", "input": {"left": 6, "right": 7}, "expected": 42}\n')

    dataset = Dataset.load(path, MathProblem, int)

    assert dataset[0] == Sample("1", MathProblem(6, 7), 42)


# ── evaluators ──────────────────────────────────────────────────────────────────────────────────


def within_tolerance(tolerance: float) -> Evaluator[float, float]:
    def evaluate(output: float, expected: float) -> Score:
        diff = abs(output - expected)
        passed = diff <= tolerance
        value = max(0.0, 1.0 - diff / tolerance) if tolerance > 0 else float(passed)
        return Score(value=value, passed=passed, reason=f"diff={diff:.4f}")

    return evaluate


def json_subset(output: Mapping[str, Any], expected: Mapping[str, Any]) -> Score:
    for key, value in expected.items():
        if key not in output or output[key] != value:
            return Score(value=0.0, passed=False, reason=f"missing or wrong: {key}")
    return Score(value=1.0, passed=True)


def test_custom_evaluators_are_simple_functions() -> None:
    near = criterion(within_tolerance(0.5))

    assert near(1.0, 1.25).reason == "diff=0.2500"
    assert near(1.0, 2.0).passed is False
    assert near.name == "within_tolerance"
    assert criterion(json_subset)({"a": 1}, {"a": 2}).reason == "missing or wrong: a"


# ── session-aware evaluators ────────────────────────────────────────────────────────────────────


def make_mock_session(tool_invocations: list[ToolInvoked]) -> Mock:
    """Create a mock session with ToolInvoked slice."""
    session = Mock()
    slice_view = Mock()
    slice_view.all.return_value = tuple(tool_invocations)
    session.__getitem__ = Mock(return_value=slice_view)
    return session


def test_events_may_be_mocks_with_the_attributes_of_the_specification() -> None:
    failed = make_mock_session([Mock(result={"success": False})])
    assert all_tools_succeeded()(None, None, failed).passed is False
    assert all_tools_succeeded()(None, None, make_mock_session([Mock(result={})])).passed is True

    usage = Mock(usage=Mock(input_tokens=100, output_tokens=50))
    executed = make_mock_session([usage, Mock(usage=None)])
    assert token_usage_under(150)(None, None, executed).passed is True
    assert token_usage_under(149)(None, None, executed).reason == "used 150 tokens (limit: 149)"


def test_output_and_behaviour_compose() -> None:
    evaluator = all_of(
        exact_match,  # Output must match expected
        tool_called("search"),  # Must use search tool
        tool_not_called("dangerous_tool"),  # Must not use forbidden tool
        all_tools_succeeded(),  # No tool failures
        token_usage_under(5000),  # Stay under budget
    )
    session = session_with(
        ToolInvoked(name="search", result={"success": True}),
        PromptExecuted(usage=TokenUsage(input_tokens=4000, output_tokens=1001)),
    )

    score = evaluator("42", "42", session)

    assert (score.passed, score.value) == (False, 0.8)
    assert "used 5001 tokens (limit: 5000)" in score.reason


def test_adapt_and_session_awareness() -> None:
    assert is_session_aware(adapt(exact_match))
    assert not is_session_aware(exact_match)
    assert adapt(exact_match)("a", "a", session_with()).passed


# ── results ─────────────────────────────────────────────────────────────────────────────────────
