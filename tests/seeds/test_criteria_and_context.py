"""Scores named by criterion, evaluators with a context, prompts and judges, a slice of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.seeds.questions import QAInput, QAOutput, answers, numeric_judge, qa_prompt
from weakincentives import Session
from weakincentives.chat import TokenUsage
from weakincentives.evals import (
    EvalConfig,
    EvalContext,
    EvalReport,
    EvalResult,
    Sample,
    Score,
    Trajectory,
    composite,
    contains,
    criterion,
    exact_match,
    llm_judge,
    load_jsonl,
)
from weakincentives.runtime import EventBus, InProcessEventBus, PromptExecuted, PromptRendered


@pytest.fixture
def context() -> EvalContext:
    return EvalContext(adapter=None, session=Session(), run_id="test")


def test_a_score_has_a_criterion_and_a_rationale() -> None:
    score = Score(criterion="clarity", value=0.9, passed=True, rationale="reads well")

    assert (score.criterion, score.value, score.passed) == ("clarity", 0.9, True)
    assert score.rationale == score.reason == "reads well"


def test_contains(context: EvalContext) -> None:
    (score,) = contains(Sample("1", "x", "42"), "The answer is 42.", context=context)

    assert (score.criterion, score.passed) == ("contains", True)


def test_a_custom_evaluator_and_a_composite(context: EvalContext) -> None:
    def polite(sample: Sample[Any, str], output: str, *, context: EvalContext) -> tuple[Score, ...]:
        passed = "please" in output
        return (Score(criterion="polite", value=float(passed), passed=passed),)

    scores = composite(exact_match, polite)(Sample("1", "x", "please"), "please", context=context)

    assert [(s.criterion, s.value) for s in scores] == [("exact_match", 1.0), ("polite", 1.0)]
    assert criterion(polite).name == "polite"


def test_a_prompt_is_bound_by_keyword_and_answered(adapter_replying: Callable[..., Any]) -> None:
    sample = Sample("1", QAInput(question="Capital of France?"), "Paris")
    session = Session(tags={"eval_run_id": "abc123", "sample_id": sample.id})

    prompt = qa_prompt.bind(**asdict(sample.input))
    response = adapter_replying({"answer": "Paris"}).evaluate(prompt, session=session)

    assert response.output == QAOutput(answer="Paris")
    assert response.usage.total_tokens > 0
    assert "Answer the question: Capital of France?" in response.messages[0].content
    assert len(session[PromptExecuted]) == 1


def test_a_sample_is_answered_and_judged_by_the_adapter_of_the_context(
    adapter_replying: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "qa_samples.jsonl"
    row = '{"id": "1", "input": {"question": "Capital?"}, "expected": {"answer": "Paris"}}'
    path.write_text(row)
    dataset = load_jsonl(path, QAInput, QAOutput)
    evaluator = composite(
        exact_match,
        llm_judge("Answers the question correctly and completely"),
        llm_judge("Response is concise and well-formatted"),
    )
    context = EvalContext(adapter=adapter_replying(answers), session=Session(), run_id="test")

    (sample,) = dataset
    prompt = qa_prompt.bind(**asdict(sample.input))
    response = context.adapter.evaluate(prompt, session=context.session)
    scores = evaluator(sample, response.output, context=context)

    assert [(score.criterion, score.value, score.rationale) for score in scores] == [
        ("exact_match", 1.0, ""),
        ("Answers the question correctly and completely", 1.0, "right"),
        ("Response is concise and well-formatted", 0.5, "wordy"),
    ]


@pytest.mark.parametrize(
    ("expected", "expected_text"), [("Paris", "Paris"), (None, "Not provided")]
)
def test_a_user_defined_judge_calls_the_adapter_of_the_context(
    adapter_replying: Callable[..., Any], expected: str | None, expected_text: str
) -> None:
    verdict = {"score": 0.9, "passed": True, "rationale": "close"}
    context = EvalContext(adapter=adapter_replying(verdict), session=Session(), run_id="test")
    judge = criterion(numeric_judge("Accuracy"))

    (score,) = judge(Sample("1", "Capital?", expected), "It is Paris.", context=context)

    assert (score.criterion, score.value, score.rationale) == ("Accuracy", 0.9, "close")
    (rendered,) = context.session[PromptRendered].all()
    assert f"## Expected (if provided)\n{expected_text}\n" in rendered.rendered_prompt
    assert "## Output to Evaluate\nIt is Paris.\n" in rendered.rendered_prompt


def test_a_report_computes_its_statistics() -> None:
    scores = composite(exact_match, contains)
    report = EvalReport(
        run_id="abc123",
        dataset_name="qa",
        results=tuple(
            EvalResult(
                sample_id=str(i),
                score=scores(output, "Paris"),
                latency_ms=100,
                trajectory=Trajectory(output=output, usage=TokenUsage(10, 2)),
            )
            for i, output in enumerate(["Paris", "It is Paris", "London"])
        ),
        config=EvalConfig(max_concurrent=4, timeout_per_sample_ms=30000),
    )

    assert (report.total_samples, report.successful_samples) == (3, 3)
    assert f"{report.pass_rate:.1%}" == "33.3%"
    assert f"{report.mean_score:.2f}" == "0.50"
    assert report.scores_by_criterion == {
        "exact_match": pytest.approx(1 / 3),
        "contains": pytest.approx(2 / 3),
    }
    assert (report.total_tokens, report.mean_latency_ms) == (36, 100.0)
    assert report.results[1].output == "It is Paris"
    assert report.results[1].aggregate_score == 0.5


@dataclass(slots=True, frozen=True)
class SampleEvaluated:
    run_id: str
    result: EvalResult[Any]


def test_results_accumulate_in_session_state() -> None:
    bus: EventBus = InProcessEventBus()
    session = Session(bus=bus, tags={"eval_run_id": "abc123"})
    session.mutate(EvalResult).seed(())
    session.mutate(EvalResult).register(
        SampleEvaluated,
        lambda state, event: (*state, event.result),
    )

    for id in ("1", "2"):
        bus.publish(SampleEvaluated(run_id="abc123", result=EvalResult(id, Score(1.0))))
    current_results = session.query(EvalResult).all()

    assert [result.sample_id for result in current_results] == ["1", "2"]
