"""A provider that answers every third call with 429: every way to run an eval still passes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import (
    AnthropicAdapter,
    HTTPAdapter,
    OpenAIAdapter,
    RetryPolicy,
    adapter_for,
    retrying,
)
from weakincentives.cli import main
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    EvalSuite,
    Sample,
    Score,
    evaluate,
    exact_match,
    llm_judge,
    open_store,
)
from weakincentives.rollouts import Endpoint
from weakincentives.testing import Fault, ModelServer, ServedRequest

COUNT = 20
SAMPLES = Dataset([Sample(str(n), f"Question {n}", "4") for n in range(COUNT)], name="sums")
CONFIG = EvalConfig(max_concurrent=COUNT, timeout=60)
QA = PromptTemplate[str](
    ns="t", key="qa", sections=[MarkdownSection(title="Q", template="$question", key="q")]
)
SUITE = """
from weakincentives import MarkdownSection, PromptTemplate
from weakincentives.adapters import adapter_for
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

qa = PromptTemplate[str](
    ns="t", key="qa", sections=[MarkdownSection(title="Q", template="$question", key="q")]
)
samples = [Sample(str(n), f"Question {n}", "4") for n in range(20)]
suite = EvalSuite(qa, Dataset(samples, name="sums"), exact_match, ADAPTER)
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    def reply(request: ServedRequest) -> str | Fault:
        busy = request.number % 3 == 0
        return Fault("status", 429, retry_after=0.01) if busy else "4"

    with ModelServer(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_base_url)
        yield server


def run_suite(adapter: Any) -> EvalReport[Any]:
    return EvalSuite(QA, SAMPLES, exact_match, adapter, CONFIG).run()


def run_with_endpoint(endpoint: Any) -> EvalReport[Any]:
    config = EvalConfig(max_concurrent=COUNT, timeout=60, endpoint=endpoint)
    return anyio.run(evaluate, SAMPLES, config, exact_match)


def run_with_judge(judge: Any) -> EvalReport[Any]:
    return EvalSuite(lambda question: "4", SAMPLES, is_four(judge), config=CONFIG).run()


def is_four(judge: Any) -> Callable[..., Any]:
    """Return a user-defined evaluator that calls a model."""
    prompt = PromptTemplate[str](
        ns="t", key="judge", sections=[MarkdownSection(title="Q", template="$output", key="q")]
    )

    async def four(output: str, expected: str) -> Score:
        response = await judge.evaluate_async(prompt.bind(output=output))
        return Score(float(response.output == "4"))

    return four


WAYS_TO_RUN: dict[str, Callable[[], EvalReport[Any]]] = {
    "EvalSuite(adapter_for(name))": lambda: run_suite(adapter_for("openai/x")),
    "EvalSuite(name)": lambda: run_suite("openai/x"),
    "EvalSuite(Endpoint)": lambda: run_suite(Endpoint("openai/x", temperature=0)),
    "OpenAIAdapter": lambda: run_suite(OpenAIAdapter("x")),
    "AnthropicAdapter": lambda: run_suite(AnthropicAdapter("x")),
    "HTTPAdapter": lambda: run_suite(HTTPAdapter("x")),
    "http/x": lambda: run_suite(adapter_for("http/x")),
    "EvalConfig(endpoint=name)": lambda: run_with_endpoint("openai/x"),
    "EvalConfig(endpoint=Endpoint)": lambda: run_with_endpoint(
        Endpoint("anthropic/x", max_tokens=9)
    ),
    "EvalConfig(endpoint=adapter)": lambda: run_with_endpoint(adapter_for("openai/x")),
    "an evaluator's model": lambda: run_with_judge(adapter_for("openai/x")),
}


@pytest.mark.parametrize("way", WAYS_TO_RUN)
def test_in_python_every_sample_passes(
    server: ModelServer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-test")

    report = WAYS_TO_RUN[way]()

    assert (report.passed, report.errors) == (COUNT, 0), report.errored_samples()[:1]
    assert len(server.requests) > COUNT


@pytest.mark.parametrize(
    "args",
    [
        ["--prompt", "suite.py:qa", "--dataset", "sums.jsonl", "--model", "openai/x"],
        ["named.py"],
        ["suite.py"],
        ["suite.py", "--model", "openai/y"],
        ["suite.py", "--model", "http/y"],
    ],
    ids=" ".join,
)
def test_on_the_command_line_every_sample_passes(
    server: ModelServer, args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.py").write_text(SUITE.replace("ADAPTER", 'adapter_for("openai/x")'))
    (tmp_path / "named.py").write_text(SUITE.replace("ADAPTER", '"openai/x"'))
    rows = [{"id": s.id, "input": s.input, "expected": s.expected} for s in SAMPLES]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))

    assert main(["eval", "run", *args, "-j", "20", "--no-progress"]) == 0

    with open_store() as store:
        record = store.run("latest")
    assert (record.passed, record.errors) == (COUNT, 0)


def test_no_verdict_of_a_judge_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(request: ServedRequest) -> str | Fault:
        busy = request.number % 3 == 0
        verdict = json.dumps({"reason": "it is", "rating": "good"})
        return Fault("status", 429, retry_after=0.01) if busy else verdict

    with ModelServer(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        judge = llm_judge("openai/x", "Correct")
        report = EvalSuite(lambda question: "4", SAMPLES, judge, config=CONFIG).run()

    assert (report.passed, report.errors) == (COUNT, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OpenAIAdapter[str]("x", retries=2),
        lambda: OpenAIAdapter[str]("x", retries=2).around(lambda model: model),
        lambda: OpenAIAdapter[str]("x").around(retrying(RetryPolicy(max_attempts=3))),
        lambda: (
            OpenAIAdapter[str]("x")
            .around(retrying(RetryPolicy(max_attempts=5)))
            .around(lambda model: model)
            .around(retrying(RetryPolicy(max_attempts=3)))
        ),
    ],
)
def test_retries_never_multiply(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(lambda request: Fault("status", 429, retry_after=0.0)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        report = EvalSuite(QA, SAMPLES[:1], exact_match, make()).run()

        assert len(server.requests) == 3
    assert report.results[0].error_source == "infrastructure"


@pytest.mark.parametrize("name", ["openai/x", "http/x"])
def test_without_retries_a_busy_or_broken_server_is_an_infrastructure_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for status in (429, 500, 503):
        with ModelServer([Fault("status", status)]) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
            report = EvalSuite(QA, SAMPLES[:1], exact_match, adapter_for(name, retries=0)).run()

            assert len(server.requests) == 1
        assert report.results[0].error_source == "infrastructure"
