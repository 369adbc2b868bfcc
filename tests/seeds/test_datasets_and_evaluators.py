"""Typed datasets, evaluators as functions, session-aware evaluators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.seeds.loops import PlanStep
from weakincentives.errors import DatasetError
from weakincentives.evals import (
    Dataset,
    EvalReport,
    EvalRequest,
    EvalResult,
    Evaluator,
    Sample,
    Score,
    adapt,
    all_of,
    all_tools_succeeded,
    any_of,
    contains,
    criterion,
    exact_match,
    slice_contains,
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


def test_jsonl_of_primitives(tmp_path: Path) -> None:
    path = tmp_path / "qa.jsonl"
    path.write_text(
        '{"id": "1", "input": "What is 2+2?", "expected": "4"}\n'
        '{"id": "2", "input": "Capital of France?", "expected": "Paris"}\n'
    )

    dataset = Dataset.load(path, str, str)

    assert [sample.expected for sample in dataset] == ["4", "Paris"]


def test_jsonl_of_nested_objects(tmp_path: Path) -> None:
    path = tmp_path / "math.jsonl"
    path.write_text('{"id": "1", "input": {"left": 6, "right": 7}, "expected": 42}\n')

    dataset = Dataset.load(path, MathProblem, int)

    assert dataset[0] == Sample("1", MathProblem(6, 7), 42)


def test_a_primitive_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "qa.jsonl"
    path.write_text('{"id": "1", "input": "2+2", "expected": 4}\n')

    message = r"expected `str`, got `int` - at `\$\.expected` \(.*qa\.jsonl:1\)"
    with pytest.raises(DatasetError, match=message):
        Dataset.load(path, str, str)


def test_a_dataset_in_code() -> None:
    samples = tuple(
        Sample(id=str(i), input=f"What is {a} + {b}?", expected=str(a + b))
        for i, (a, b) in enumerate([(1, 1), (2, 3), (10, 20)])
    )
    dataset = Dataset(samples=samples)

    assert [sample.expected for sample in dataset] == ["2", "5", "30"]


# ── evaluators ──────────────────────────────────────────────────────────────────────────────────


def test_exact_match_pass() -> None:
    score = exact_match("hello", "hello")
    assert score.passed is True
    assert score.value == 1.0


def test_exact_match_fail() -> None:
    score = exact_match("hello", "world")
    assert score.passed is False
    assert score.value == 0.0


def test_contains_pass() -> None:
    score = contains("The answer is 42.", "42")
    assert score.passed is True


def test_all_of_requires_all() -> None:
    evaluator = all_of(exact_match, contains)
    score = evaluator("hello", "hello")
    assert score.passed is True

    score = evaluator("hello world", "hello")
    assert score.passed is False  # exact_match fails


def test_any_of_requires_one() -> None:
    evaluator = any_of(exact_match, contains)
    score = evaluator("hello world", "hello")
    assert score.passed is True  # contains passes


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


def test_tool_called_pass() -> None:
    invocation = ToolInvoked(
        prompt_name="test",
        adapter="openai",
        name="search",
        params={"query": "test"},
        result={"success": True},
        session_id=None,
        created_at=datetime.now(UTC),
    )
    session = make_mock_session([invocation])

    evaluator = tool_called("search")
    score = evaluator(None, None, session)

    assert score.passed is True
    assert "called 1 time" in score.reason


def test_tool_called_fail() -> None:
    session = make_mock_session([])  # No invocations

    evaluator = tool_called("search")
    score = evaluator(None, None, session)

    assert score.passed is False
    assert "called 0 time" in score.reason


def test_all_tools_succeeded_with_failure() -> None:
    invocations = [
        ToolInvoked(
            prompt_name="test",
            adapter="openai",
            name="search",
            params={},
            result={"success": False, "error": "not found"},
            session_id=None,
            created_at=datetime.now(UTC),
        ),
    ]
    session = make_mock_session(invocations)

    evaluator = all_tools_succeeded()
    score = evaluator(None, None, session)

    assert score.passed is False
    assert "search" in score.reason


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


def test_custom_slices() -> None:
    evaluator = all_of(
        exact_match,
        slice_contains(
            PlanStep,
            lambda step: step.status == "completed",
            min_count=1,  # At least one step completed
        ),
    )

    done = session_with(PlanStep("read", "completed"), PlanStep("write", "pending"))
    assert evaluator("a", "a", done).passed
    assert not evaluator("a", "a", session_with()).passed


def test_adapt_and_session_awareness() -> None:
    assert is_session_aware(adapt(exact_match))
    assert not is_session_aware(exact_match)
    assert adapt(exact_match)("a", "a", session_with()).passed


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def test_a_report_over_successes_and_errors() -> None:
    report = EvalReport(
        results=(
            EvalResult("1", Score(value=1.0, passed=True), latency_ms=100),
            EvalResult("2", Score(value=0.5, passed=False, reason="half"), latency_ms=200),
            EvalResult("3", Score(value=0.0, passed=False), latency_ms=0, error="boom"),
        )
    )

    assert f"Pass rate: {report.pass_rate:.1%}" == "Pass rate: 50.0%"
    assert f"Mean score: {report.mean_score:.2f}" == "Mean score: 0.75"
    assert f"Mean latency: {report.mean_latency_ms:.0f}ms" == "Mean latency: 100ms"
    assert [(r.sample_id, r.score.reason) for r in report.failed_samples()] == [("2", "half")]
    assert report.results[2].success is False


def test_a_request_wraps_a_sample() -> None:
    request = EvalRequest(sample=Sample("1", "2+2", "4"))

    assert request.sample.expected == "4"
    assert request.created_at.tzinfo is UTC
