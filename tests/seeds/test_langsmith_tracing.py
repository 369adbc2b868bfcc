"""LangSmith, configured once, traces every evaluation run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contrib.langsmith_fixtures import flush_langsmith
from tests.processes import TIMEOUT
from tests.seeds.questions import QAInput, QAOutput, answers, qa_prompt
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.evals import Dataset, EvalSuite, Sample, composite, exact_match, llm_judge
from weakincentives.testing import LangSmithServer

DATASET = Dataset(
    [
        Sample("1", QAInput("Capital of France?"), QAOutput("Paris")),
        Sample("2", QAInput("Capital of Italy?"), QAOutput("Rome")),
    ],
    name="qa",
)


@pytest.fixture
def langsmith(clean_langsmith: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[LangSmithServer]:
    with LangSmithServer() as server:
        monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)
        yield server
        configure_wink(tracing_enabled=False)


def test_evaluation_runs_are_traced(
    adapter_replying: Callable[..., Any], langsmith: LangSmithServer
) -> None:
    configure_wink(
        project="my-evals",
        tracing_enabled=True,
        flush_timeout=TIMEOUT,
    )

    evaluator = composite(exact_match, llm_judge("Answers the question correctly and completely"))
    suite = EvalSuite(
        prompt=qa_prompt, dataset=DATASET, evaluator=evaluator, adapter=adapter_replying(answers)
    )
    report = suite.run()
    flush_langsmith()

    # Run-level metadata (run_id, dataset_name)
    [experiment] = langsmith.experiments
    metadata = experiment["extra"]["metadata"]
    assert (metadata["run_id"], metadata["dataset_name"]) == (report.run_id, "qa")
    # Sample-level spans (one per sample)
    spans = langsmith.traces_of(experiment["name"])
    assert [span["extra"]["metadata"]["sample_id"] for span in spans] == ["1", "2"]
    for span, result in zip(spans, report.results, strict=True):
        # Scores as span outputs
        assert span["outputs"]["score"] == result.score.value
        assert span["outputs"]["scores"]["exact_match"] == result.scores[0].value
        assert langsmith.feedback_of(span)["exact_match"]["score"] == result.scores[0].value
        # Tokens and latency as metrics
        metrics = langsmith.feedback_of(span)
        assert metrics["tokens"]["score"] == result.tokens_used > 0
        assert metrics["latency_s"]["score"] == result.latency_ms / 1000
