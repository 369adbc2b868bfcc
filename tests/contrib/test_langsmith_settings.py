"""Settings for LangSmith: endpoint, redaction, hidden content; properties of what is sent."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given

from tests import strategies
from tests.contrib.langsmith_fixtures import flush_langsmith
from tests.processes import TIMEOUT
from weakincentives import serde
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.contrib.langsmith.langsmith_runs import example_of, feedback_on
from weakincentives.errors import MissingExtraError, UsageError
from weakincentives.evals import Dataset, EvalReport, EvalSuite, Sample, Score, exact_match
from weakincentives.testing import LangSmithServer

Start = Callable[..., LangSmithServer]

SUMS = Dataset([Sample("a", "2 + 2", "4"), Sample("b", "3 + 3", "5")], name="sums")


def echo(sample: Sample[str, str]) -> str:
    return sample.input


def run() -> EvalReport[Any]:
    report = EvalSuite(echo, SUMS, exact_match).run()
    flush_langsmith()
    return report


def only_experiment(server: LangSmithServer) -> dict[str, Any]:
    [experiment] = server.experiments
    return experiment


def test_secrets_are_redacted(langsmith: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "kQ7-0b5e9d31c2"
    monkeypatch.setenv("SERVICE_API_KEY", key)
    server = langsmith()
    dataset = Dataset([Sample("1", f"use {key}", key, {"note": key})], name="keys")

    def leaks(sample: Sample[str, str]) -> str:
        raise RuntimeError(f"401 for {sample.expected}")

    EvalSuite(echo, dataset, lambda output, expected: Score(1.0, reason=output)).run()
    flush_langsmith()
    EvalSuite(leaks, dataset, exact_match).run()
    flush_langsmith()

    everything = repr((server.runs, server.examples, server.feedback, server.projects))
    assert key not in everything
    assert "401 for ***" in everything


@pytest.mark.parametrize("hidden", ["INPUTS", "OUTPUTS"])
def test_hidden_inputs_and_outputs_are_hidden_everywhere(
    langsmith: Start, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    monkeypatch.setenv(f"LANGSMITH_HIDE_{hidden}", "true")
    server = langsmith()
    dataset = Dataset([Sample("1", "the-input", "the-output")], name="hidden")

    def quotes(output: str, expected: str) -> Score:
        return Score(1.0, reason=f"said {output}")

    EvalSuite(lambda sample: sample.expected, dataset, quotes).run()
    flush_langsmith()

    everything = repr((server.runs, server.examples, server.feedback))
    assert ("the-input" in everything) == (hidden != "INPUTS")
    assert ("the-output" in everything) == (hidden != "OUTPUTS")
    [trace] = server.traces_of(only_experiment(server)["name"])
    assert server.feedback_of(trace)["pass"]["score"] == 1.0


def test_nothing_is_sent_if_tracing_is_disabled(langsmith: Start) -> None:
    server = langsmith()
    configure_wink(tracing_enabled=False)

    assert run().total == 2

    assert server.runs == []


def test_a_given_client_is_used_and_not_closed(clean_langsmith: None) -> None:
    from langsmith import Client

    with LangSmithServer() as server:
        client = Client(server.url, api_key="of-my-own")
        with configure_wink("mine", client=client, flush_timeout=TIMEOUT) as tracing:
            run()
        assert tracing.sent == 2
        assert len(server.traces_of(only_experiment(server)["name"])) == 2
        assert client.read_dataset(dataset_name="sums").name == "sums"
        client.close(timeout=1)


def test_the_endpoint_is_read_from_the_environment(
    clean_langsmith: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LangSmithServer() as server:
        monkeypatch.setenv("LANGSMITH_ENDPOINT", f"{server.url}/api/v1")
        monkeypatch.setenv("LANGSMITH_PROJECT", "of-the-environment")
        with configure_wink(flush_timeout=TIMEOUT):
            run()

        assert only_experiment(server)["name"].startswith("of-the-environment-sums-")


def test_a_remote_server_needs_a_key(clean_langsmith: None) -> None:
    before = set(os.environ)

    with pytest.raises(UsageError, match=r"an API key for https.*set LANGSMITH_API_KEY"):
        configure_wink("my-evals")

    assert set(os.environ) == before


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"project": 3}, "name of a `project`"),
        ({"queue_size": 0}, "`queue_size` of at least 1"),
        ({"flush_timeout": -1}, "seconds for `flush_timeout`"),
        ({"client": object(), "api_url": "http://localhost:1"}, "got both"),
        ({"client": object()}, "a `langsmith.Client`"),
        ({"api_url": "localhost:1984", "api_key": "k"}, "http://.* got 'localhost:1984' - set LA"),
        ({"api_url": 1984, "api_key": "k"}, "got 1984"),
        ({"api_url": "https:///api", "api_key": "k"}, "an address with http:// or https://"),
    ],
)
def test_invalid_settings_are_refused(
    clean_langsmith: None, wrong: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        configure_wink(**wrong)


@given(strategies.results)
def test_feedback_on_any_result_is_valid_for_langsmith(result: Any) -> None:
    from langsmith.schemas import APIFeedbackSource, FeedbackCreate

    feedback = list(feedback_on(result))

    assert len({each.key for each in feedback}) == len(feedback)
    for each in feedback:
        checked = FeedbackCreate(
            id=uuid4(),
            run_id=uuid4(),
            trace_id=uuid4(),
            key=each.key,
            score=each.score,
            value=each.value,
            comment=each.comment,
            feedback_source=APIFeedbackSource(),
        )
        assert checked.score is None or abs(checked.score) < 100_000
    if not result.success:
        assert {each.key for each in feedback if each.quality} <= {"evaluator_error"}


@given(strategies.samples)
def test_a_serialized_sample_is_the_same_example(sample: Sample[Any, Any]) -> None:
    dataset_id = uuid4()
    decoded = serde.decode(serde.encode(sample), Sample[Any, Any])

    assert example_of(dataset_id, sample) == example_of(dataset_id, decoded)
    assert serde.plain(example_of(dataset_id, sample)["inputs"]) is not None


def test_without_the_package_the_error_has_the_install_command(
    clean_langsmith: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langsmith", None)

    with pytest.raises(MissingExtraError, match=r"weakincentives-evals\[langsmith\]"):
        configure_wink("my-evals", api_url="http://localhost:1")
    assert configure_wink(tracing_enabled=False).sent == 0
