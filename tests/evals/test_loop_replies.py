"""The reply mailbox of an `EvalLoop` is closed after each run, and never blocks a main loop."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes import running_loops
from tests.runtime.mailbox import sqs_server
from tests.seeds.in_memory_cluster import DATASET, Cluster
from weakincentives.evals import collect_results
from weakincentives.runtime.mailbox import InMemoryMailbox, SQSMailbox


@pytest.fixture(params=["memory", "sqs"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    new_cluster = Cluster()
    if request.param == "sqs":
        server = sqs_server.running()
        server.reset()
        new_cluster.main = SQSMailbox("mainloop-requests", server.client)  # type: ignore[assignment]
    return new_cluster


def reply_queues(mailbox: Any) -> list[str]:
    if isinstance(mailbox, InMemoryMailbox):
        return []
    names = mailbox.queue.client.list_queues()["QueueUrls"]
    return [name for name in names if "-replies-" in name]


def test_the_reply_mailbox_is_removed_after_each_run(
    cluster: Cluster,
) -> None:
    for _ in range(2):
        eval_loop = cluster.eval_loop()
        submission = cluster.submit()
        with running_loops(cluster.main_loop(), eval_loop):
            report = collect_results(cluster.results, submission, timeout_seconds=60)
        assert report.passed == len(DATASET)

        assert reply_queues(cluster.main) == []


def test_a_reply_to_a_closed_mailbox_is_counted_and_does_not_block(cluster: Cluster) -> None:
    submission = cluster.submit(DATASET[:1])
    cluster.eval_loop(mainloop_timeout=0.1).run(max_iterations=1)
    (result,) = collect_results(cluster.results, submission, timeout_seconds=10).results
    assert result.error_source == "infrastructure"

    main_loop = cluster.main_loop()
    main_loop.run(max_iterations=1)

    assert main_loop.metrics()["unanswered_total"] == 1
    assert main_loop.metrics()["acknowledged_total"] == 1
