"""A missing API key is one error before the first sample."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.judging import saying, verdict
from weakincentives import MainLoop, MarkdownSection, Prompt, PromptTemplate
from weakincentives.adapters import adapter_for
from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalConfig,
    EvalLoop,
    EvalRequest,
    EvalSuite,
    Sample,
    all_of,
    contains,
    evaluate,
    exact_match,
    llm_judge,
    open_store,
    stream,
)
from weakincentives.evals.judges import judge_panel, llm_rubric
from weakincentives.runtime import InMemoryMailbox, Session

QA = PromptTemplate[str](
    ns="t", key="qa", sections=[MarkdownSection(title="Q", template="$question", key="q")]
)
SAMPLES = [Sample("1", "2+2?", "4")]
NO_KEY = r"expected a key for (openai|anthropic), got none - set .* (OPENAI|ANTHROPIC)_API_KEY"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("OPENAI", "ANTHROPIC"):
        for name in ("API_KEY", "BASE_URL"):
            monkeypatch.delenv(f"{provider}_{name}", raising=False)


class Loop(MainLoop[str, str]):
    def initialize(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt(QA).bind(question=request), Session()


def must_not_run(question: str) -> str:
    raise AssertionError("no sample is started")


async def read_stream(model: str) -> None:
    config = EvalConfig(endpoint=model)
    async for _ in stream(SAMPLES, config, exact_match):
        raise AssertionError("no sample is started")


@pytest.mark.parametrize("name", ["openai/gpt-4o", "anthropic/claude-opus-5"])
@pytest.mark.parametrize(
    "run",
    [
        lambda name: EvalSuite(QA, SAMPLES, exact_match, name).run(),
        lambda name: EvalSuite(Loop(adapter=adapter_for(name)), SAMPLES, exact_match).run(),
        lambda name: anyio.run(evaluate, SAMPLES, EvalConfig(endpoint=name), exact_match),
        lambda name: anyio.run(read_stream, name),
        lambda name: EvalSuite(must_not_run, SAMPLES, llm_judge(adapter_for(name), "x")).run(),
        lambda name: EvalSuite(must_not_run, SAMPLES, llm_judge("x"), name).run(),
        lambda name: EvalSuite(
            must_not_run,
            SAMPLES,
            all_of(contains, judge_panel(llm_rubric(adapter_for(name), {"a": "b"}))),
        ).run(),
    ],
    ids=["prompt", "loop", "endpoint", "stream", "judge", "context", "panel"],
)
def test_a_missing_key_is_one_error_and_nothing_runs(name: str, run: Any) -> None:
    with pytest.raises(UsageError, match=NO_KEY):
        run(name)


def test_a_worker_reports_a_missing_key_before_it_takes_a_request() -> None:
    requests: InMemoryMailbox[EvalRequest[str, str]] = InMemoryMailbox(name="requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox(name="results")
    requests.send(EvalRequest(SAMPLES[0]))
    loop = EvalLoop(Loop(adapter=adapter_for("gpt-4o")), exact_match, requests, results)

    with pytest.raises(UsageError, match=NO_KEY):
        loop.run(max_iterations=1)
    assert requests.approximate_count() == 1


def test_a_run_that_cannot_start_is_not_stored(tmp_path: Any) -> None:
    with open_store(tmp_path / "runs.db") as store:
        with pytest.raises(UsageError, match=NO_KEY):
            EvalSuite(QA, SAMPLES, exact_match, "gpt-4o").run(store=store)
        assert store.runs() == []


def test_an_adapter_that_is_not_used_needs_no_key() -> None:
    report = EvalSuite(lambda question: "4", SAMPLES, exact_match, "openai/gpt-4o").run()
    judge = llm_judge(saying(verdict("good")), "x")

    assert report.passed == 1
    assert EvalSuite(lambda question: "4", SAMPLES, judge, "openai/gpt-4o").run().passed == 1
