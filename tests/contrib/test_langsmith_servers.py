"""LangSmith of every age and in every mood: what gets there, and that evals never notice."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from tests.contrib.langsmith_sent import nobody, sends_at_the_end, sent
from tests.processes import PATIENCE
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.contrib.langsmith.runs import example_of
from weakincentives.evals import Dataset, EvalConfig, EvalReport, EvalSuite, Sample, exact_match
from weakincentives.testing import Fault, LangSmithServer

Start = Callable[..., LangSmithServer]

DATASET = Dataset([Sample(str(n), f"{n}", f"{n % 2}") for n in range(12)], name="twelve")
ID, RUN, NOW = UUID(int=7), "the-run", "2026-01-02T03:04:05+00:00"
QUALITY = {"exact_match", "pass", "latency_s"}


def run() -> EvalReport[Any]:
    config = EvalConfig(max_concurrent=4)
    report = EvalSuite(lambda sample: sample.input, DATASET, exact_match, config=config).run()
    sent()
    return report


@pytest.mark.parametrize(
    "mode",
    [
        {},
        {"zstd": True},
        {"example_parts": True},
        {"multipart": False},
        {"info": False},
        {"info": False, "multipart": False},
    ],
    ids=lambda mode: "-".join(mode) or "plain",
)
def test_servers_of_every_age_get_all(langsmith: Start, mode: dict[str, bool]) -> None:
    server = langsmith(**mode)

    report = run()

    [experiment] = server.experiments
    traces = server.traces_of(experiment["name"])
    assert len(traces) == len(server.examples) == report.total == 12
    for trace in traces:
        assert set(server.feedback_of(trace)) == QUALITY
        assert trace["reference_example_id"] in server.examples
    assert experiment["end_time"]
    sent = {path for method, path in server.requests if method == "POST"}
    assert ("/runs/batch" in sent) == ("multipart" in mode)


def test_feedback_that_goes_one_by_one_finds_its_run(langsmith: Start) -> None:
    server = langsmith(multipart=False)

    run()

    refused = [path for _, path in server.requests].count("/feedback") - len(server.feedback)
    assert refused == 0


@pytest.mark.parametrize("refusal", ["forbidden", "missing", "invalid", "html", "other"])
def test_without_experiments_the_traces_are_in_the_project_that_was_named(
    langsmith: Start, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = langsmith(refusal=refusal)

    reports = [run(), run()]

    traces = server.traces_of("my-evals")
    assert [report.total for report in reports] == [12, 12]
    assert sorted(trace["name"] for trace in traces) == sorted([*map(str, range(12))] * 2)
    assert all(trace["outputs"]["passed"] in (True, False) for trace in traces)
    [said] = [record.getMessage() for record in caplog.records]
    assert "makes no experiment" in said
    assert "its traces are in the project 'my-evals'" in said


def test_without_the_right_to_make_examples_the_experiment_has_its_traces(
    langsmith: Start, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = Fault("status", status=403, message="Forbidden")
    server = langsmith(
        faults=lambda method, path: forbidden if path.endswith("/examples/bulk") else None
    )

    run()

    [experiment] = server.experiments
    traces = server.traces_of(experiment["name"])
    assert len(traces) == 12
    assert set(server.feedback_of(traces[0])) == QUALITY
    assert [record.getMessage().partition(" for ")[0] for record in caplog.records] == [
        "LangSmith makes no examples"
    ]


def test_a_server_that_is_down_for_a_moment_has_refused_nothing(langsmith: Start) -> None:
    unavailable = Fault("status", status=503, message="unavailable")
    server = langsmith(
        faults=lambda method, path: unavailable if path.endswith("/datasets") else None
    )

    run()

    assert server.traces_of("my-evals") == []


def test_another_process_that_is_a_moment_faster_is_joined(langsmith: Start) -> None:
    """The dataset, an example and the experiment appear between the question and the wish."""

    def rival(method: str, path: str) -> None:
        if (method, path) == ("POST", "/datasets"):
            server.datasets[str(ID)] = {"id": str(ID), "name": "twelve", "created_at": NOW}
        elif (method, path) == ("POST", "/examples/bulk") and not server.examples:
            example = {"id": str(example_of(ID, DATASET[3])["id"]), "dataset_id": str(ID)}
            server.examples[example["id"]] = example
        elif (method, path) == ("POST", "/sessions"):
            name = f"my-evals-twelve-{RUN}"
            same = {"tenant_id": str(ID), "reference_dataset_id": str(ID), "start_time": NOW}
            server.projects[name] = {"id": str(ID), "name": name, **same}

    server = langsmith(faults=rival)

    suite = EvalSuite(lambda sample: sample.input, DATASET, exact_match)
    suite.run(run_id=RUN)
    sent()

    [experiment], [dataset] = server.experiments, server.datasets.values()
    assert experiment["id"] == dataset["id"] == str(ID)
    traces = server.traces_of(experiment["name"])
    assert {each["reference_example_id"] for each in traces} == set(server.examples)
    assert len(server.examples) == len(traces) == 12
    assert all(each["session_id"] == str(ID) for each in server.feedback)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_recovers_gets_all(langsmith: Start, status: int) -> None:
    left = {"/datasets": 1, "/runs/multipart": 1, "/sessions": 1}

    def at_first(method: str, path: str) -> Fault | None:
        if method == "GET" or not left.get(path):
            return None
        left[path] -= 1
        return Fault("status", status, retry_after=0)

    server = langsmith(faults=at_first)

    report = run()

    assert report.total == 12
    assert len(server.traces_of(server.experiments[0]["name"])) == 12
    assert not any(left.values())


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", 400),
        Fault("status", 401),
        Fault("status", 403),
        Fault("status", 422),
        Fault("malformed"),
        Fault("garbage"),
        Fault("close"),
        Fault("hang"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}" if fault.kind == "status" else fault.kind,
)
def test_a_server_that_is_wrong_changes_no_result_and_is_told_of_once(
    langsmith: Start, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    langsmith(faults=lambda method, path: fault, flush_timeout=0.3)
    start = time.monotonic()

    report = run()
    tracing = configure_wink(tracing_enabled=False)

    assert (report.total, report.errors) == (12, 0)
    assert time.monotonic() - start < PATIENCE  # where one that hangs is waited for ten minutes
    assert tracing.sent == 0
    assert [record.name for record in caplog.records] == ["weakincentives.contrib.langsmith"]
    assert "LangSmith did not get 12 of 12 traces" in caplog.text


def test_nobody_at_the_other_end(clean_langsmith: None, caplog: pytest.LogCaptureFixture) -> None:
    with nobody() as url:
        tracing = configure_wink("my-evals", api_url=url, flush_timeout=0.3)
        assert run().errors == 0
        tracing.close()

    assert (tracing.sent, tracing.failed + tracing.dropped) == (0, 12)
    assert len(caplog.records) == 1


def test_only_runs_are_refused(langsmith: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Datasets and experiments are made, and then nothing comes."""
    server = langsmith(faults=lambda method, path: Fault("status", 413) if "runs" in path else None)

    assert run().errors == 0

    assert server.runs == []
    [said] = caplog.records
    assert "12 of 12 traces (12 could not be sent" in said.getMessage()
    assert "413" in said.getMessage()


def test_the_logging_of_others_is_left_alone(
    langsmith: Start, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("langsmith.client")
    before = [*log.filters]  # of servers that hang in other tests
    langsmith(faults=lambda method, path: Fault("status", 400))
    run()
    caplog.clear()

    log.warning("of a client of mine")
    configure_wink(tracing_enabled=False)

    assert caplog.records[0].getMessage() == "of a client of mine"
    assert [each for each in log.filters if each not in before] == []


def test_a_full_queue_drops_and_counts(
    clean_langsmith: None, caplog: pytest.LogCaptureFixture
) -> None:
    stands, goes_on = Event(), Event()

    def slow(method: str, path: str) -> None:
        if path == "/datasets":
            stands.set()
            goes_on.wait(PATIENCE)

    with LangSmithServer(faults=slow) as server:
        tracing = configure_wink("p", api_url=server.url, queue_size=5, flush_timeout=0.05)
        EvalSuite(lambda sample: sample.input, DATASET[:1], exact_match).run()
        sent()
        assert stands.wait(PATIENCE)  # with a batch of one in its hands
        run()
        goes_on.set()
        tracing.close(PATIENCE)

    assert tracing.dropped >= 7
    assert tracing.sent + tracing.dropped == 1 + 12
    assert f"{tracing.dropped} found no place in the queue" in caplog.text


def test_flush_says_whether_it_was_in_time(clean_langsmith: None) -> None:
    goes_on = Event()

    def slow(method: str, path: str) -> None:
        if path == "/datasets":
            goes_on.wait(PATIENCE)

    with LangSmithServer(faults=slow) as server:
        tracing = configure_wink("p", api_url=server.url, flush_timeout=0.05)
        run()
        assert tracing.flush(0.05) is False
        goes_on.set()
        assert tracing.flush(PATIENCE) is True
        assert repr(tracing) == "<LangSmithTracing p: 12 sent, 0 failed, 0 dropped>"
        tracing.close()
        tracing.close()
        assert tracing.flush() is True


PROCESS = """
import sys
from weakincentives.contrib.langsmith import client, sender
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

client.TIMEOUT_MS = 600_000, 600_000
sender.FLUSH_TIMEOUT_SECONDS = 600.0
configure_wink("p", api_url=sys.argv[1], flush_timeout=float(sys.argv[2]))
report = EvalSuite(lambda sample: sample.input, Dataset([Sample("1", "1", "1")]), exact_match).run()
print(report.passed)
"""


def process(url: str, flush_timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROCESS, url, str(flush_timeout)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


@sends_at_the_end
def test_a_process_that_ends_sends_what_it_has(clean_langsmith: None) -> None:
    with LangSmithServer() as server:
        done = process(server.url, PATIENCE)  # no flush, no close

    assert done.stdout == "1\n"
    assert len(server.runs) == 1
    assert server.experiments[0]["end_time"]


def test_a_server_that_hangs_does_not_hold_up_the_end_of_a_process(clean_langsmith: None) -> None:
    with LangSmithServer(faults=lambda method, path: Fault("hang")) as server:
        done = process(server.url, 0.2)  # would wait for ten minutes, and is given five

    assert done.stdout == "1\n"
    assert "LangSmith did not get 1 of 1 traces" in done.stderr
