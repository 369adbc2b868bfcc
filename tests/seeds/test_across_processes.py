"""Seeds 000, 001 and 003 with every part in a process of its own, on each back-end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from tests.runtime.mailbox import redis_server, sqs_server
from tests.seeds.cluster import Question
from weakincentives.evals import Dataset, Sample, collect_results, submit_dataset
from weakincentives.runtime.mailbox import open_mailbox
from weakincentives.testing import ModelServer, ServedRequest

DATASET = Dataset([Sample(str(n), Question(f"{n}"), f"{n}!") for n in range(20)])


def exclaims(request: ServedRequest) -> str:
    return request.body["messages"][-1]["content"].split()[-1] + "!"


@pytest.fixture(params=["sqlite", "redis", "sqs"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/mail.db"
    elif request.param == "redis":
        server = redis_server.running()
        with server.client() as client:
            client.flushall()
        yield f"redis://127.0.0.1:{server.port}/0"
    else:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        sqs = sqs_server.running()
        sqs.reset()
        yield f"sqs://any?region=eu-west-1&endpoint={sqs.endpoint}"


@contextmanager
def processes(url: str, model: str, *roles: str) -> Iterator[None]:
    """A process for each role, stopped by SIGTERM at the end, as an operator would."""
    command = [sys.executable, "-m", "tests.seeds.cluster"]
    started = [subprocess.Popen([*command, role, url, model]) for role in roles]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        # One that is still importing when all is done ends by the signal itself.
        assert {process.wait(PATIENCE) for process in started} <= {0, -signal.SIGTERM}


def test_workers_with_a_loop_of_their_own_share_the_work(url: str) -> None:
    """Seed 003's worker and client processes."""
    requests, results = (open_mailbox(url, name=n) for n in ("eval-requests", "eval-results"))
    with ModelServer(exclaims) as server:
        submission = submit_dataset(DATASET, requests)
        with processes(url, server.openai_base_url, "own", "own"):
            report = collect_results(results, submission, timeout_seconds=PATIENCE)

    assert (report.passed, report.errors) == (20, 0), report.results[0]
    assert [result.sample_id for result in report.results] == [s.id for s in DATASET]


def test_eval_loops_and_main_loops_in_processes_apart(url: str) -> None:
    """Seed 000's picture: client, EvalLoop, two main loops."""
    requests, results = (open_mailbox(url, name=n) for n in ("eval-requests", "answers-here"))
    with ModelServer(exclaims) as server:
        submission = submit_dataset(DATASET, requests, reply_to=results)
        with processes(url, server.openai_base_url, "eval", "main", "main"):
            report = collect_results(results, submission, timeout_seconds=PATIENCE)

    assert (report.passed, report.errors) == (20, 0), report.results[0]
