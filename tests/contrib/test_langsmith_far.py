"""One trace across processes: the submitter, an eval worker, a main-loop worker."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.langsmith_fixtures import needs_threads_at_exit
from tests.processes import TIMEOUT, worker_processes
from weakincentives import Experiment
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.contrib.langsmith.tracer import SpanNode, SpanTracer
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    Sample,
    collect_results,
    collect_results_async,
    exact_match,
    submit_dataset,
    submit_experiments,
)
from weakincentives.runtime.mailbox import InMemoryMailbox, open_mailbox
from weakincentives.testing import LangSmithServer

DATASET = Dataset([Sample(str(n), f"word-{n}", f"WORD-{n}") for n in range(6)], name="words")


def workers(url: str, langsmith: str, *roles: str) -> AbstractContextManager[None]:
    return worker_processes("tests.contrib.langsmith_worker", roles, url, langsmith)


@needs_threads_at_exit
def test_workers_of_one_run_share_an_experiment_and_a_sample_is_one_trace(
    clean_langsmith: None, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    requests, results = (open_mailbox(url, name=name) for name in ("evals", "results"))
    with LangSmithServer() as server:
        with configure_wink(
            "far", api_url=server.url, flush_timeout=TIMEOUT
        ):  # carries the name of the dataset
            submission = submit_dataset(DATASET, requests, reply_to=results)
        with workers(url, server.url, "eval", "main"):
            report = collect_results(results, submission, timeout_seconds=TIMEOUT)

    assert (report.passed, report.errors) == (6, 0), report.results[0]
    [experiment] = server.experiments
    assert experiment["name"] == f"far-words-{report.run_id}"
    assert set(server.projects) == {experiment["name"]}
    assert [each["name"] for each in server.datasets.values()] == ["words"]
    traces = server.traces_of(experiment["name"])
    assert len(traces) == len(server.examples) == 6
    for trace in traces:
        assert server.tree_of(trace)[1:] == [["chain shout", ["llm scripted"]]]
        assert server.feedback_of(trace)["pass"]["score"] == 1.0
        [conversation] = server.children_of(trace)
        assert conversation["dotted_order"].startswith(f"{trace['dotted_order']}.")
        assert conversation["outputs"] == {"output": trace["inputs"]["input"].upper()}


@pytest.mark.anyio
async def test_each_variant_is_an_experiment(clean_langsmith: None, anyio_backend: str) -> None:
    requests: InMemoryMailbox[Any] = InMemoryMailbox(name="requests")
    results: InMemoryMailbox[Any] = InMemoryMailbox(name="results")
    with (
        LangSmithServer() as server,
        configure_wink("p", api_url=server.url, flush_timeout=TIMEOUT),
    ):
        variants = [Experiment("baseline"), Experiment("terse")]
        submission = submit_experiments(DATASET, variants, requests)
        loop: EvalLoop[Any, Any, Any] = EvalLoop(
            lambda sample: sample.expected, exact_match, requests, results
        )
        await loop.run_async(max_iterations=1)
        report = await collect_results_async(results, submission)

    run = f"p-words-{report.run_id}"
    assert {each["name"] for each in server.experiments} == {run, f"{run}-terse"}
    assert len(server.traces_of(run)) == len(server.traces_of(f"{run}-terse")) == 6


@pytest.mark.parametrize("header", ["", "{", "[]", "3", '["a", "b"]', "null"])
def test_invalid_trace_headers_are_ignored(header: str) -> None:
    ended: list[SpanNode] = []
    tracer = SpanTracer("p", ended.append, bool, lambda moment: pytest.fail("no id is needed"))

    with tracer.attach({"wink-langsmith": header, "langsmith-trace": "somewhere"}):
        assert tracer.inject() == {}
        tracer.end(tracer.begin("prompt", "one", {}), {}, None)

    assert [node.parent for node in ended] == [None]
