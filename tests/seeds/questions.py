"""The question-answering example of the specifications: its types, its prompt and its judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.evals import EvalContext, Sample, Score

__all__ = ["QAInput", "QAOutput", "answers", "numeric_judge", "qa_prompt"]


@dataclass(slots=True, frozen=True)
class QAInput:
    question: str


@dataclass(slots=True, frozen=True)
class QAOutput:
    answer: str


qa_prompt = PromptTemplate[QAOutput](
    ns="my-app",
    key="qa",
    name="qa_prompt",
    sections=[
        MarkdownSection(
            title="Question Answering",
            template="Answer the question: $question",
            key="main",
        ),
    ],
)


def answers(question: str) -> dict[str, str]:
    """Answer as one model that is both the agent's and that of both judges."""
    if "correctly and completely" in question:
        return {"reason": "right", "rating": "excellent"}
    if "concise and well-formatted" in question:
        return {"reason": "wordy", "rating": "fair"}
    return {"answer": "Paris"}


@dataclass(slots=True, frozen=True)
class JudgeOutput:
    score: float  # 0.0 to 1.0
    passed: bool
    rationale: str


JUDGE_PROMPT = PromptTemplate[JudgeOutput](
    ns="wink.evals",
    key="llm-judge",
    name="llm_judge",
    sections=[
        MarkdownSection(
            title="Evaluation Task",
            template="""
You are an evaluation judge. Score the following output on the criterion.

## Criterion
$criterion

## Output to Evaluate
$output

## Expected (if provided)
$expected

Provide a score from 0.0 to 1.0 and explain your reasoning.
""",
            key="task",
        ),
    ],
)


def numeric_judge(criterion: str) -> Callable[..., tuple[Score, ...]]:
    """Return the judge that the specification writes by hand, which scores by number."""

    def evaluate(
        sample: Sample[Any, str | None], output: str, *, context: EvalContext
    ) -> tuple[Score, ...]:
        prompt = JUDGE_PROMPT.bind(
            criterion=criterion,
            output=output,
            expected=sample.expected or "Not provided",
        )
        response = context.adapter.evaluate(
            prompt,
            session=context.session,
        )
        return (
            Score(
                criterion=criterion,
                value=response.output.score,
                passed=response.output.passed,
                rationale=response.output.rationale,
            ),
        )

    return evaluate
