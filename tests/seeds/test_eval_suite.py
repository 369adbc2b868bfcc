"""A complete EvalSuite with a user-defined judge, its events and a slice of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.seeds.questions import QAInput, QAOutput, answers, numeric_judge, qa_prompt
from weakincentives import Session
from weakincentives.adapters import Limiter
from weakincentives.errors import ProviderError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalContext,
    EvalReport,
    EvalResult,
    EvalSuite,
    Sample,
    Score,
    composite,
    exact_match,
    llm_judge,
    load_jsonl,
)
from weakincentives.evals.model import EvalRunCompleted, EvalRunStarted, SampleEvaluated
from weakincentives.runtime import InProcessEventBus

ROWS = """\
{"id": "1", "input": {"question": "Capital of France?"}, "expected": {"answer": "Paris"}}
{"id": "2", "input": {"question": "Capital of Italy?"}, "expected": {"answer": "Rome"}}
{"id": "3", "input": {"question": "Where is the Louvre?"}, "expected": {"answer": "Paris"}}
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset[QAInput, QAOutput]:
    path = tmp_path / "qa_eval.jsonl"
    path.write_text(ROWS)
    return load_jsonl(path, QAInput, QAOutput)


evaluator = composite(
    exact_match,
    llm_judge("Answers the question correctly and completely"),
    llm_judge("Response is concise and well-formatted"),
)


def test_the_usage_example(
    adapter_replying: Callable[..., Any], dataset: Dataset[QAInput, QAOutput]
) -> None:
    adapter = adapter_replying(answers)
    suite = EvalSuite(
        prompt=qa_prompt,
        dataset=dataset,
        evaluator=evaluator,
        adapter=adapter,
        config=EvalConfig(max_concurrent=4, timeout_per_sample_ms=30000),
    )

    report = suite.run(tags={"experiment": "baseline"})

    assert isinstance(report, EvalReport)
    assert (report.total_samples, report.successful_samples) == (3, 3)
    assert report.dataset_name == "qa_eval"
    assert f"Pass rate: {report.pass_rate:.1%}" == "Pass rate: 0.0%"
    assert f"Mean score: {report.mean_score:.2f}" == "Mean score: 0.72"
    assert report.scores_by_criterion == {
        "exact_match": pytest.approx(2 / 3),
        "Answers the question correctly and completely": 1.0,
        "Response is concise and well-formatted": 0.5,
    }
    assert report.total_tokens > 0
    assert [result.output for result in report.results] == [QAOutput("Paris")] * 3
    assert [len(result.scores) for result in report.results] == [3, 3, 3]


def test_a_user_defined_judge_calls_the_adapter_of_the_run_within_its_concurrency(
    adapter_replying: Callable[..., Any], dataset: Dataset[QAInput, QAOutput]
) -> None:
    def model(question: str) -> dict[str, Any]:
        if "evaluation judge" in question:
            return {"score": 0.9, "passed": True, "rationale": "close"}
        return {"answer": "Paris"}

    limiter = Limiter(2)
    suite = EvalSuite(
        qa_prompt,
        dataset,
        composite(numeric_judge("Accuracy"), numeric_judge("Style")),
        adapter_replying(model).around(limiter),
        EvalConfig(max_concurrent=3),
    )

    report = suite.run()

    assert [result.error for result in report.results] == [None] * 3
    assert report.scores_by_criterion == {"Accuracy": 0.9, "Style": 0.9}
    assert (limiter.state.requests, limiter.state.in_flight) == (9, 0)


def test_every_sample_has_its_own_session_with_the_tags_of_the_run(
    adapter_replying: Callable[..., Any], dataset: Dataset[QAInput, QAOutput]
) -> None:
    tags_and_run_ids: dict[str, Any] = {}

    def record_session(
        sample: Sample[Any, Any], output: Any, *, context: EvalContext
    ) -> tuple[Score, ...]:
        assert context.session is not None
        tags_and_run_ids[sample.id] = dict(context.session.tags), context.run_id
        return (Score(criterion="look", value=1.0, passed=True),)

    suite = EvalSuite(qa_prompt, dataset, record_session, adapter_replying(answers))
    report = suite.run(tags={"experiment": "baseline"})

    assert tags_and_run_ids == {
        id: (
            {"eval_run_id": report.run_id, "sample_id": id, "experiment": "baseline"},
            report.run_id,
        )
        for id in ("1", "2", "3")
    }


def test_events_are_published_and_results_accumulate_in_a_session(
    adapter_replying: Callable[..., Any], dataset: Dataset[QAInput, QAOutput]
) -> None:
    bus = InProcessEventBus()
    events: list[Any] = []
    bus.subscribe(EvalRunStarted, events.append)
    bus.subscribe(EvalRunCompleted, events.append)
    session = Session(bus=bus)
    session.mutate(EvalResult).seed(())
    session.mutate(EvalResult).register(
        SampleEvaluated,
        lambda state, event: (*state, event.result),
    )
    so_far: list[int] = []
    bus.subscribe(SampleEvaluated, lambda _: so_far.append(len(session.query(EvalResult).all())))

    report = EvalSuite(qa_prompt, dataset, exact_match, adapter_replying(answers)).run(bus=bus)
    current_results = session.query(EvalResult).all()

    by_id = {result.sample_id: result for result in current_results}  # in the order of completion
    assert tuple(by_id[result.sample_id] for result in report.results) == report.results
    assert so_far == [1, 2, 3]
    started, completed = events
    assert started == EvalRunStarted(report.run_id, "qa_eval", 3)
    assert completed == EvalRunCompleted(
        report.run_id, report.pass_rate, report.mean_score, report.total_tokens
    )


@dataclass
class Unreliable:
    """An adapter that fails on the second call."""

    adapter: Any
    calls: int = 0

    def evaluate(self, prompt: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == 2:
            raise ProviderError("no capacity", retryable=False)
        return self.adapter.evaluate(prompt, **options)


@pytest.mark.parametrize(("stop", "total"), [(False, 3), (True, 2)])
def test_an_error_is_a_result_and_can_stop_the_run(
    adapter_replying: Callable[..., Any],
    dataset: Dataset[QAInput, QAOutput],
    stop: bool,
    total: int,
) -> None:
    suite = EvalSuite(
        qa_prompt,
        dataset,
        exact_match,
        Unreliable(adapter_replying(answers)),
        EvalConfig(1, stop_on_error=stop),
    )

    report = suite.run()

    failed = report.results[1]
    assert (report.total_samples, report.successful_samples) == (total, total - 1)
    assert (failed.success, failed.output, failed.scores) == (False, None, ())
    assert (failed.error, failed.tokens_used) == ("no capacity", 0)
    assert failed.latency_ms >= 0
