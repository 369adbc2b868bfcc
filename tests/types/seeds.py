"""Code of the specifications that declares types, checked as it is written there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, assert_type

from weakincentives import MainLoop, MarkdownSection, Prompt, PromptTemplate, Session
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.evals import (
    Dataset,
    EvalContext,
    EvalLoop,
    EvalReport,
    EvalRequest,
    EvalResult,
    Evaluator,
    Sample,
    Score,
    collect_results,
    exact_match,
    submit_dataset,
)
from weakincentives.evals.evaluators import SessionEvaluator
from weakincentives.runtime import ControlDispatcher, InMemoryMailbox, Mailbox

In = TypeVar("In")
Out = TypeVar("Out")
Ex = TypeVar("Ex")


# ── 002: evaluators ─────────────────────────────────────────────────────────────────────────────


def llm_judge(criterion: str) -> Evaluator[Any, str, str | None]:
    def evaluate(
        sample: Sample[Any, str | None],
        output: str,
        *,
        context: EvalContext,
    ) -> tuple[Score, ...]:
        return (Score(criterion=criterion, value=1.0, passed=True, rationale="fine"),)

    return evaluate


def composite(*evaluators: Evaluator[In, Out, Ex]) -> Evaluator[In, Out, Ex]:
    def evaluate(sample: Sample[In, Ex], output: Out, *, context: EvalContext) -> tuple[Score, ...]:
        scores: list[Score] = []
        for evaluator in evaluators:
            scores.extend(evaluator(sample, output, context=context))
        return tuple(scores)

    return evaluate


composite(llm_judge("brief"), llm_judge("polite"))


# ── 003: the loop ───────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, frozen=True)
class QAParams:
    """Parameters for the QA prompt."""

    question: str


class QALoop(MainLoop[str, str]):
    def __init__(self, *, adapter: OpenAIAdapter[str], bus: ControlDispatcher) -> None:
        super().__init__(adapter=adapter, bus=bus)
        self._template = PromptTemplate[str](
            ns="qa",
            key="answer",
            name="qa",
            sections=[
                MarkdownSection[QAParams](
                    title="Question",
                    template="Answer concisely: $question",
                    key="q",
                ),
            ],
        )

    def initialize(self, question: str) -> tuple[Prompt[str], Session]:
        prompt = Prompt(self._template).bind(QAParams(question=question))
        session = Session(dispatcher=self._bus)
        return prompt, session


class Loop(Generic[In, Out, Ex]):
    def __init__(
        self,
        *,
        loop: MainLoop[In, Out],
        evaluator: Evaluator[Out, Ex] | SessionEvaluator[Out, Ex],
        requests: Mailbox[EvalRequest[In, Ex]],
        results: Mailbox[EvalResult],
    ) -> None:
        self.evaluator: Evaluator | SessionEvaluator = evaluator
        self.inner = EvalLoop(loop=loop, evaluator=evaluator, requests=requests, results=results)


def basic_evaluation() -> EvalReport:
    dataset = Dataset.load(Path("tests/fixtures/qa.jsonl"), str, str)
    assert_type(dataset, Dataset[str, str])

    requests: Mailbox[EvalRequest[str, str]] = InMemoryMailbox(name="eval-requests")
    results: Mailbox[EvalResult] = InMemoryMailbox(name="eval-results")
    questions: Mailbox[str, int] = InMemoryMailbox[str, int](name="questions")
    for message in questions.receive():
        assert_type(message.body, str)
        message.reply(len(message.body))
        message.reply("seven")  # type: ignore[arg-type]

    adapter: OpenAIAdapter[str] = OpenAIAdapter(model="gpt-4o")
    bus = ControlDispatcher()
    main_loop = QALoop(adapter=adapter, bus=bus)
    eval_loop = EvalLoop(
        loop=main_loop,
        evaluator=exact_match,
        requests=requests,
        results=results,
    )
    submit_dataset(dataset, requests)
    eval_loop.run(max_iterations=1)
    return collect_results(results, expected_count=len(dataset))


def dispatchers(buses: Sequence[ControlDispatcher]) -> Session:
    return Session(dispatcher=buses[0])
