"""The condensed specification: its constructors, its table of evaluators, its judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weakincentives.evals import (
    Dataset,
    EvalReport,
    EvalResult,
    Sample,
    Score,
    all_of,
    all_tools_succeeded,
    any_of,
    contains,
    exact_match,
    llm_judge,
    slice_contains,
    token_usage_under,
    tool_called,
    tool_not_called,
)
from weakincentives.evals.judges import RATING_VALUES
from weakincentives.testing import session_with


def test_constructors_as_written() -> None:
    sample: Sample[str, int] = Sample(id="1", input="6*7", expected=42)
    dataset: Dataset[str, int] = Dataset(samples=(sample,))
    score = Score(value=1.0, passed=True, reason="")
    result = EvalResult(sample_id=sample.id, score=score, latency_ms=5, error=None)
    report = EvalReport(results=(result,))

    assert dataset.samples == (sample,)
    assert report.pass_rate == report.mean_score == 1.0
    assert (report.mean_latency_ms, report.failed_samples()) == (5.0, ())


def test_every_evaluator_of_the_table_exists() -> None:
    output = all_of(exact_match, any_of(contains, exact_match))
    behaviour = all_of(
        tool_not_called("rm"),
        all_tools_succeeded(),
        token_usage_under(0),
    )
    session = session_with()

    assert output("a", "a").passed
    assert behaviour(None, None, session).passed
    assert not tool_called("search")(None, None, session).passed
    assert not slice_contains(str, lambda item: True)(None, None, session).passed


def test_a_judge_and_its_scale(adapter_replying: Callable[..., Any]) -> None:
    judge = llm_judge(adapter_replying({"reason": "half of it", "rating": "fair"}), "Complete")

    assert judge("a", "a and b").value == RATING_VALUES["fair"] == 0.5
    assert list(RATING_VALUES.items()) == [
        ("excellent", 1.0),
        ("good", 0.75),
        ("fair", 0.5),
        ("poor", 0.25),
        ("wrong", 0.0),
    ]
