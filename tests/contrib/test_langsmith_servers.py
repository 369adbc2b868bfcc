"""LangSmith servers of all versions, healthy and failing: what they receive; evals never fail."""

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

from tests.contrib.langsmith_fixtures import closed_port, flush_langsmith, needs_threads_at_exit
from tests.processes import TIMEOUT
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.contrib.langsmith.langsmith_runs import example_of
from weakincentives.evals import Dataset, EvalConfig, EvalReport, EvalSuite, Sample, exact_match
from weakincentives.testing import Fault, LangSmithServer

Start = Callable[..., LangSmithServer]

DATASET = Dataset([Sample(str(n), f"{n}", f"{n % 2}") for n in range(12)], name="twelve")
ID, RUN, NOW = UUID(int=7), "the-run", "2026-01-02T03:04:05+00:00"
QUALITY = {"exact_match", "pass", "latency_s"}


def run() -> EvalReport[Any]:
    config = EvalConfig(max_concurrent=4)
    report = EvalSuite(lambda sample: sample.input, DATASET, exact_match, config=config).run()
    flush_langsmith()
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
def test_servers_of_all_versions_receive_everything(
    langsmith: Start, mode: dict[str, bool]
) -> None:
    server = langsmith(**mode)

    report = run()

    [experiment] = server.experiments
    traces = server.traces_of(experiment["name"])
    assert len(traces) == len(server.examples) == report.total == 12
    for trace in traces:
        assert set(server.feedback_of(trace)) == QUALITY
        assert trace["reference_example_id"] in server.examples
    assert experiment["end_time"]
    posted = {path for method, path in server.requests if method == "POST"}
    assert ("/runs/batch" in posted) == ("multipart" in mode)


def test_feedback_sent_one_by_one_arrives_after_its_run(langsmith: Start) -> None:
    server = langsmith(multipart=False)

    run()

    refused = [path for _, path in server.requests].count("/feedback") - len(server.feedback)
    assert refused == 0


@pytest.mark.parametrize("refusal", ["forbidden", "missing", "invalid", "html", "other"])
def test_without_experiments_traces_go_to_the_configured_project(
    langsmith: Start, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = langsmith(refusal=refusal)

    reports = [run(), run()]

    traces = server.traces_of("my-evals")
    assert [report.total for report in reports] == [12, 12]
    assert sorted(trace["name"] for trace in traces) == sorted([*map(str, range(12))] * 2)
    assert all(trace["outputs"]["passed"] in (True, False) for trace in traces)
    [message] = [record.getMessage() for record in caplog.records]
    assert "creates no experiment" in message
    assert "its traces are in the project 'my-evals'" in message


def test_without_permission_to_create_examples_the_experiment_has_its_traces(
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
        "LangSmith creates no examples"
    ]


def test_a_server_that_is_briefly_down_does_not_count_as_refusing_experiments(
    langsmith: Start,
) -> None:
    unavailable = Fault("status", status=503, message="unavailable")
    server = langsmith(
        faults=lambda method, path: unavailable if path.endswith("/datasets") else None
    )

    run()

    assert server.traces_of("my-evals") == []


def test_objects_that_another_process_creates_first_are_reused(langsmith: Start) -> None:
    """The dataset, an example and the experiment appear between the lookup and the creation."""

    def create_first(method: str, path: str) -> None:
        if (method, path) == ("POST", "/datasets"):
            server.datasets[str(ID)] = {"id": str(ID), "name": "twelve", "created_at": NOW}
        elif (method, path) == ("POST", "/examples/bulk") and not server.examples:
            example = {"id": str(example_of(ID, DATASET[3])["id"]), "dataset_id": str(ID)}
            server.examples[example["id"]] = example
        elif (method, path) == ("POST", "/sessions"):
            name = f"my-evals-twelve-{RUN}"
            fields = {"tenant_id": str(ID), "reference_dataset_id": str(ID), "start_time": NOW}
            server.projects[name] = {"id": str(ID), "name": name, **fields}

    server = langsmith(faults=create_first)

    suite = EvalSuite(lambda sample: sample.input, DATASET, exact_match)
    suite.run(run_id=RUN)
    flush_langsmith()

    [experiment], [dataset] = server.experiments, server.datasets.values()
    assert experiment["id"] == dataset["id"] == str(ID)
    traces = server.traces_of(experiment["name"])
    assert {each["reference_example_id"] for each in traces} == set(server.examples)
    assert len(server.examples) == len(traces) == 12
    assert all(each["session_id"] == str(ID) for each in server.feedback)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_recovers_receives_everything(langsmith: Start, status: int) -> None:
    remaining_faults = {"/datasets": 1, "/runs/multipart": 1, "/sessions": 1}

    def fail_first(method: str, path: str) -> Fault | None:
        if method == "GET" or not remaining_faults.get(path):
            return None
        remaining_faults[path] -= 1
        return Fault("status", status, retry_after=0)

    server = langsmith(faults=fail_first)

    report = run()

    assert report.total == 12
    assert len(server.traces_of(server.experiments[0]["name"])) == 12
    assert not any(remaining_faults.values())


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
def test_a_failing_server_changes_no_result_and_is_logged_once(
    langsmith: Start, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    langsmith(faults=lambda method, path: fault, flush_timeout=0.3)
    start = time.monotonic()

    report = run()
    tracing = configure_wink(tracing_enabled=False)

    assert (report.total, report.errors) == (12, 0)
    assert time.monotonic() - start < TIMEOUT  # waiting for a hanging server would take ten minutes
    assert tracing.sent == 0
    assert [record.name for record in caplog.records] == ["weakincentives.contrib.langsmith"]
    assert "LangSmith did not get 12 of 12 traces" in caplog.text


def test_an_unreachable_server_is_logged_once(
    clean_langsmith: None, caplog: pytest.LogCaptureFixture
) -> None:
    with closed_port() as url:
        tracing = configure_wink("my-evals", api_url=url, flush_timeout=0.3)
        assert run().errors == 0
        tracing.close()

    assert (tracing.sent, tracing.failed + tracing.dropped) == (0, 12)
    assert len(caplog.records) == 1


def test_traces_that_the_server_refuses_are_counted(
    langsmith: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The server accepts datasets and experiments, and refuses all runs."""
    server = langsmith(faults=lambda method, path: Fault("status", 413) if "runs" in path else None)

    assert run().errors == 0

    assert server.runs == []
    [record] = caplog.records
    assert "12 of 12 traces (12 could not be sent" in record.getMessage()
    assert "413" in record.getMessage()


def test_log_messages_of_other_clients_are_kept(
    langsmith: Start, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("langsmith.client")
    before = [*log.filters]  # left by tests with hanging servers
    langsmith(faults=lambda method, path: Fault("status", 400))
    run()
    caplog.clear()

    log.warning("of a client of mine")
    configure_wink(tracing_enabled=False)

    assert caplog.records[0].getMessage() == "of a client of mine"
    assert [each for each in log.filters if each not in before] == []


def test_a_full_queue_drops_traces_and_counts_them(
    clean_langsmith: None, caplog: pytest.LogCaptureFixture
) -> None:
    blocked, resume = Event(), Event()

    def slow(method: str, path: str) -> None:
        if path == "/datasets":
            blocked.set()
            resume.wait(TIMEOUT)

    with LangSmithServer(faults=slow) as server:
        tracing = configure_wink("p", api_url=server.url, queue_size=5, flush_timeout=0.05)
        EvalSuite(lambda sample: sample.input, DATASET[:1], exact_match).run()
        flush_langsmith()
        assert blocked.wait(TIMEOUT)  # while it sends a batch of one
        run()
        resume.set()
        tracing.close(TIMEOUT)

    assert tracing.dropped >= 7
    assert tracing.sent + tracing.dropped == 1 + 12
    assert f"{tracing.dropped} were dropped from the full queue" in caplog.text


def test_flush_returns_whether_it_finished_in_time(clean_langsmith: None) -> None:
    resume = Event()

    def slow(method: str, path: str) -> None:
        if path == "/datasets":
            resume.wait(TIMEOUT)

    with LangSmithServer(faults=slow) as server:
        tracing = configure_wink("p", api_url=server.url, flush_timeout=0.05)
        run()
        assert tracing.flush(0.05) is False
        resume.set()
        assert tracing.flush(TIMEOUT) is True
        assert repr(tracing) == "<LangSmithTracing p: 12 sent, 0 failed, 0 dropped>"
        tracing.close()
        tracing.close()
        assert tracing.flush() is True


SCRIPT = """
import sys
from weakincentives.contrib.langsmith import langsmith_client, sender
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

langsmith_client.TIMEOUT_MS = 600_000, 600_000
sender.FLUSH_TIMEOUT_SECONDS = 600.0
configure_wink("p", api_url=sys.argv[1], flush_timeout=float(sys.argv[2]))
report = EvalSuite(lambda sample: sample.input, Dataset([Sample("1", "1", "1")]), exact_match).run()
print(report.passed)
"""


def run_script(url: str, flush_timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, url, str(flush_timeout)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


@needs_threads_at_exit
def test_a_process_sends_remaining_traces_at_exit(clean_langsmith: None) -> None:
    with LangSmithServer() as server:
        done = run_script(server.url, TIMEOUT)  # no flush, no close

    assert done.stdout == "1\n"
    assert len(server.runs) == 1
    assert server.experiments[0]["end_time"]


def test_a_hanging_server_does_not_block_the_exit_of_a_process(clean_langsmith: None) -> None:
    with LangSmithServer(faults=lambda method, path: Fault("hang")) as server:
        done = run_script(server.url, 0.2)  # without the timeout it would wait for ten minutes

    assert done.stdout == "1\n"
    assert "LangSmith did not get 1 of 1 traces" in done.stderr
