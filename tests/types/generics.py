"""Types that a checker must infer for our generics; `tests/test_typing.py` runs mypy on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

from weakincentives import Session
from weakincentives.chat import TokenUsage
from weakincentives.evals import (
    Criterion,
    Dataset,
    EvalContext,
    EvalReport,
    EvalRequest,
    EvalResult,
    Sample,
    Score,
    SessionView,
    Trajectory,
    all_of,
    contains,
    exact_match,
    load_jsonl,
)
from weakincentives.evals.engine import attempt, function_agent
from weakincentives.evals.loaders import iter_samples, load_csv
from weakincentives.runtime import ToolInvoked


@dataclass(frozen=True)
class Question:
    text: str


@dataclass(frozen=True)
class Answer:
    text: str


sample = Sample("1", Question("?"), 42)
assert_type(sample, Sample[Question, int])
assert_type(sample.input, Question)
assert_type(sample.expected, int)
assert_type(Sample("1", "x", ground_truth=3.0), Sample[str, float])
assert_type(Sample("1", "x"), Sample[str, Any])

dataset = Dataset([sample], name="questions")
assert_type(dataset, Dataset[Question, int])
assert_type(dataset[0], Sample[Question, int])
assert_type(dataset[:1], Dataset[Question, int])
assert_type(dataset.filter(lambda sample: sample.input.text == "?"), Dataset[Question, int])
assert_type(dataset + dataset, Dataset[Question, int])
assert_type(dataset + Dataset([Sample("2", "x", 1)]), Dataset[Question | str, int])
for each in dataset:
    assert_type(each, Sample[Question, int])

assert_type(Dataset.load(Path("qa.jsonl"), Question, str), Dataset[Question, str])
assert_type(Dataset.load("qa.jsonl", Question, str | None), Dataset[Any, Any])
assert_type(load_jsonl("qa.jsonl"), list[dict[str, Any]])
assert_type(load_jsonl("qa.jsonl", Question, str), Dataset[Question, str])
assert_type(load_csv("qa.csv", Question, str), Dataset[Question, str])
assert_type(iter_samples("qa.jsonl", Question, str), Iterator[Sample[Question, str]])

assert_type(EvalRequest(sample), EvalRequest[Question, int])
assert_type(EvalRequest(sample).sample.input, Question)

trajectory = Trajectory(output=Answer("x"), usage=TokenUsage(1, 2))
result = EvalResult("1", Score(1.0), trajectory=trajectory)
assert_type(trajectory, Trajectory[Answer])
assert_type(result, EvalResult[Answer])
assert_type(result.output, Answer | None)
assert_type(EvalReport([result]), EvalReport[Answer])
assert_type(EvalReport([result]).results, tuple[EvalResult[Answer], ...])
assert_type(EvalReport([result]).failed_samples(), tuple[EvalResult[Answer], ...])

assert_type(exact_match("a", "b"), Score)
assert_type(exact_match(sample, 42, context=EvalContext()), tuple[Score, ...])
assert_type(all_of(exact_match, contains), Criterion)

session = Session()
assert_type(session[Question].all(), tuple[Question, ...])
assert_type(session.query(Question).latest(), Question | None)
assert_type(session.view()[ToolInvoked].where(lambda call: call.success), tuple[ToolInvoked, ...])


def bare_names_are_legal(
    one: Sample, many: Dataset, trajectory_of_any: Trajectory, result_of_any: EvalResult
) -> None:
    assert_type(one.input, Any)
    assert_type(many[0], Sample[Any, Any])
    assert_type(trajectory_of_any.output, Any)
    assert_type(result_of_any.output, Any | None)


def a_session_is_a_view(view: SessionView) -> None:
    assert_type(view[Question].all(), tuple[Question, ...])


a_session_is_a_view(session)
a_session_is_a_view(session.view())


async def attempts() -> None:
    assert_type(await attempt(function_agent(str.upper), sample, exact_match), EvalResult[Any])


def wrong() -> Dataset[int, str]:
    Sample(1, 2)  # error
    return Dataset([Sample("1", "text", "x")])  # error
