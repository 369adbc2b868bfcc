"""Judges and main loops, in synchronous code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.seeds.loops import QALoop
from weakincentives import MarkdownSection, Prompt, PromptTemplate
from weakincentives.evals import Score, all_of, contains, exact_match, llm_judge, token_usage_under
from weakincentives.evals.judges import (
    JUDGE_TEMPLATE,
    PASSING_RATINGS,
    RATING_VALUES,
    JudgeOutput,
    JudgeParams,
    Rating,
)
from weakincentives.runtime import ControlDispatcher


@dataclass(slots=True, frozen=True)
class SeedsOutput:
    """Structured output from judge prompt."""

    rating: Rating  # Categorical label
    reason: str  # Brief explanation


@dataclass(slots=True, frozen=True)
class SeedsParams:
    """Parameters for the judge prompt."""

    criterion: str
    output: str
    expected: str


SEEDS_TEMPLATE = PromptTemplate[SeedsOutput](
    ns="wink.evals",
    key="llm-judge",
    name="llm_judge",
    sections=[
        MarkdownSection[SeedsParams](
            title="Evaluation Task",
            template="""You are an evaluation judge. Rate the output on the given criterion.

## Criterion
$criterion

## Output to Evaluate
$output

## Reference Answer
$expected

## Rating Scale
- **excellent**: Fully meets the criterion
- **good**: Meets the criterion with minor issues
- **fair**: Partially meets the criterion
- **poor**: Mostly fails the criterion
- **wrong**: Completely fails the criterion

Select one rating and explain your reasoning briefly.""",
            key="task",
        ),
    ],
)


@pytest.mark.parametrize(
    ("template", "params"),
    [(JUDGE_TEMPLATE, JudgeParams), (SEEDS_TEMPLATE, SeedsParams)],
    ids=["ours", "specification's"],
)
def test_a_judge_written_by_hand(
    adapter_replying: Callable[..., Any], template: Any, params: Any
) -> None:
    adapter = adapter_replying({"rating": "good", "reason": "minor issues"})

    def evaluate(output: str, expected: str) -> Score:
        prompt = Prompt(template).bind(
            params(
                criterion="factual accuracy",
                output=output,
                expected=expected,
            )
        )
        response = adapter.evaluate(prompt)
        rating = response.output.rating
        return Score(
            value=RATING_VALUES[rating],
            passed=rating in PASSING_RATINGS,
            reason=response.output.reason,
        )

    score = evaluate("Paris", "Paris")

    assert (score.value, score.passed, score.reason) == (0.75, True, "minor issues")


def test_judges_can_be_combined_with_plain_evaluators(adapter_replying: Callable[..., Any]) -> None:
    def judge(question: str) -> JudgeOutput:
        if "hallucinated" in question:
            return JudgeOutput(rating="poor", reason="made up")
        return JudgeOutput(rating="good", reason="clear")

    judge_adapter = adapter_replying(judge)
    evaluator = all_of(
        contains,  # Must contain expected answer
        llm_judge(judge_adapter, "Response is helpful and well-formatted"),
        llm_judge(judge_adapter, "No hallucinated information"),
    )

    score = evaluator("The answer is 42.", "42")

    assert (score.passed, score.reason) == (False, "No hallucinated information: made up")
    assert score.value == pytest.approx((1.0 + 0.75 + 0.25) / 3)


def test_the_loop_answers_and_records_its_events(adapter_replying: Callable[..., Any]) -> None:
    bus = ControlDispatcher()
    main_loop = QALoop(adapter=adapter_replying("4"), bus=bus)

    response, session = main_loop.execute("What is 2+2?")

    assert exact_match(response.output, "4").passed
    assert token_usage_under(100)(response.output, "4", session).passed
