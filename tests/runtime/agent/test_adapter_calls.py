"""Adapters that users write: the plain protocol, usage by event, and mocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import anyio
import pytest

from weakincentives.chat import TokenUsage
from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalSuite,
    Sample,
    all_of,
    cost_under,
    exact_match,
    latency_under,
    llm_judge,
    token_usage_under,
)
from weakincentives.evals.judges import JudgeOutput
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import (
    MainLoop,
    MainLoopRequest,
    PromptExecuted,
    PromptResponse,
    Session,
)

QUESTION = PromptTemplate[str](
    "tests", "question", sections=[MarkdownSection("Question", "$question", "question")]
)
SAMPLES = [Sample("1", "Capital of France?", "Paris")]


class ReportsByEvent:
    """Answers in text, and reports usage and cost by an event."""

    def evaluate(self, prompt: Prompt[Any], *, session: Session) -> PromptResponse[Any]:
        usage = TokenUsage(100, 20)
        session.dispatch(PromptExecuted(prompt_name=prompt.name, usage=usage, cost=0.5))
        return PromptResponse(prompt.name, text="Paris")


class Plain:
    """Answers with `output` and `usage`, and records nothing."""

    def evaluate(self, prompt: Prompt[Any], *, session: Session) -> Any:
        return SimpleNamespace(output="Paris", usage=SimpleNamespace(input_tokens=5))


class Loop(MainLoop[str, str]):
    """Asks the question, in a session that all requests share."""

    session = Session()

    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        return QUESTION.bind(question=request), self.session


def test_usage_that_an_adapter_reports_by_event_counts_once() -> None:
    budgets = all_of(exact_match, token_usage_under(120), cost_under(0.5))
    report = EvalSuite(QUESTION, SAMPLES, budgets, ReportsByEvent()).run()

    assert report.results[0].score.passed, report.results[0].score.reason
    assert report.total_tokens == 120
    assert report.results[0].trajectory is not None
    assert report.results[0].trajectory.cost == 0.5


def test_usage_of_earlier_requests_of_a_session_is_not_counted_again() -> None:
    loop = Loop(adapter=ReportsByEvent())
    loop.execute("first")
    response, session = loop.execute("second")

    assert response.usage == TokenUsage(100, 20)
    assert len(session[PromptExecuted]) >= 2


def test_usage_that_an_adapter_only_returns_is_also_in_the_session() -> None:
    budgets = all_of(token_usage_under(4), latency_under(60_000))
    result = EvalSuite(QUESTION, SAMPLES, budgets, Plain()).run().results[0]

    assert result.tokens_used == 5
    assert "used 5 tokens (limit: 4)" in result.score.reason
    assert "took" in result.score.parts[1].reason


def test_text_without_an_output_is_the_output_of_a_prompt_of_text() -> None:
    assert Loop(adapter=ReportsByEvent()).execute("?")[0].output == "Paris"


def test_a_result_for_another_process_has_usage_that_was_reported_by_event() -> None:
    result = anyio.run(Loop(adapter=ReportsByEvent()).respond, MainLoopRequest("?"))

    assert (result.output, result.usage) == ("Paris", TokenUsage(100, 20))


@pytest.mark.parametrize(
    "usage", [{"total_tokens": 150}, {"input_tokens": 100, "output_tokens": 50}]
)
def test_a_mock_adapter_works_in_a_suite(usage: dict[str, int]) -> None:
    adapter = Mock()
    adapter.evaluate.return_value = Mock(output="Paris", usage=Mock(**usage))
    report = EvalSuite(QUESTION, SAMPLES, exact_match, adapter).run()

    assert report.results[0].error is None
    assert (report.passed, report.total_tokens) == (1, 150)
    assert isinstance(adapter.evaluate.call_args.kwargs["session"], Session)


@pytest.mark.parametrize("mock", [Mock, AsyncMock])
@pytest.mark.parametrize("verdict", [JudgeOutput(rating="good", reason="close"), None])
def test_a_mock_adapter_works_as_a_judge(mock: Any, verdict: Any) -> None:
    adapter = Mock()
    response = Mock(output=verdict or Mock(rating="good", reason="close"))
    adapter.evaluate = mock(return_value=response)
    score = llm_judge(adapter, "Correct")("Paris", "Paris")

    assert (score.value, score.reason) == (0.75, "close")
    assert isinstance(adapter.evaluate.call_args.kwargs["session"], Session)


def test_a_judge_that_reports_usage_by_event_has_its_tokens_as_metrics() -> None:
    class Judge(ReportsByEvent):
        def evaluate(self, prompt: Prompt[Any], *, session: Session) -> PromptResponse[Any]:
            super().evaluate(prompt, session=session)
            return PromptResponse(prompt.name, output=JudgeOutput(rating="good", reason=""))

    score = llm_judge(Judge(), "Correct")("Paris", "Paris")

    assert {m.name: m.value for m in score.metrics} == {"judge_tokens": 120, "judge_cost": 0.5}


def test_an_adapter_may_take_a_prompt_only() -> None:
    class OnlyPrompt:
        def evaluate(self, prompt: Prompt[Any]) -> Any:
            return SimpleNamespace(output="Paris")

    assert EvalSuite(QUESTION, SAMPLES, exact_match, OnlyPrompt()).run().passed == 1
    assert Loop(adapter=OnlyPrompt()).execute("?")[0].output == "Paris"


def test_an_adapter_that_cannot_be_called_is_refused_at_construction() -> None:
    class NeedsModel:
        def evaluate(self, prompt: Prompt[Any], model: str) -> Any: ...

    expected = r"NeedsModel.evaluate` to take a prompt .*missing a required argument: 'model'"
    for build in (
        lambda: EvalSuite(QUESTION, SAMPLES, exact_match, NeedsModel()),
        lambda: Loop(adapter=NeedsModel()),
        lambda: llm_judge(NeedsModel(), "Correct"),
    ):
        with pytest.raises(UsageError, match=expected):
            build()


def test_a_response_without_output_and_text_is_an_error() -> None:
    class WithoutOutput:
        def evaluate(self, prompt: Prompt[Any]) -> Any:
            return {"answer": "Paris"}

    result = EvalSuite(QUESTION, SAMPLES, exact_match, WithoutOutput()).run().results[0]

    assert "or an object with `output` or `text`, got {'answer': 'Paris'}" in str(result.error)
