"""Eval loops and main loops in separate processes, on every mailbox backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.processes import TIMEOUT, forked_workers
from tests.runtime.mailbox import redis_server, sqs_server
from tests.seeds.cluster import Question, work
from weakincentives.evals import Dataset, Sample, collect_results, submit_dataset
from weakincentives.runtime.mailbox import open_mailbox
from weakincentives.testing import ModelServer, ServedRequest

DATASET = Dataset([Sample(str(n), Question(f"{n}"), f"{n}!") for n in range(20)])


def add_exclamation_mark(request: ServedRequest) -> str:
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


def worker_processes(url: str, model: str, *roles: str) -> AbstractContextManager[None]:
    return forked_workers(work, *((role, url, model) for role in roles))


def test_workers_with_their_own_main_loop_share_the_work(url: str) -> None:
    """Worker processes and a client process."""
    requests, results = (open_mailbox(url, name=n) for n in ("eval-requests", "eval-results"))
    with ModelServer(add_exclamation_mark) as server:
        submission = submit_dataset(DATASET, requests)
        with worker_processes(url, server.openai_base_url, "own", "own"):
            report = collect_results(results, submission, timeout_seconds=TIMEOUT)

    assert (report.passed, report.errors) == (20, 0), report.results[0]
    assert [result.sample_id for result in report.results] == [s.id for s in DATASET]


def test_eval_loops_and_main_loops_in_separate_processes(url: str) -> None:
    """A client, an eval loop and two main loops."""
    requests, results = (open_mailbox(url, name=n) for n in ("eval-requests", "answers-here"))
    with ModelServer(add_exclamation_mark) as server:
        submission = submit_dataset(DATASET, requests, reply_to=results)
        with worker_processes(url, server.openai_base_url, "eval", "main", "main"):
            report = collect_results(results, submission, timeout_seconds=TIMEOUT)

    assert (report.passed, report.errors) == (20, 0), report.results[0]
    for result, sample in zip(report.results, DATASET, strict=True):
        assert result.sample == sample  # typed, as in memory
        assert result.trajectory is not None
        assert result.trajectory.messages[-1].content == sample.expected
        assert result.trajectory.stop_reason == "stop"
