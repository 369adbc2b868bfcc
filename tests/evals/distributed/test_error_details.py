"""An error in another process has type, location and traceback, like one in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.processes import running_loops
from tests.seeds.in_memory_cluster import Cluster
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalResult,
    Sample,
    collect_results,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime.mailbox import SqliteMailbox

DATASET = Dataset([Sample("a", "index", "A")])


def retrieve(*_: Any) -> str:
    raise ConnectionError("refused")


def check_details(result: EvalResult[Any]) -> None:
    assert (result.error, result.error_source) == ("refused", "agent")
    details = result.error_details
    assert details is not None
    assert details.type == "ConnectionError"
    assert details.where.endswith("test_error_details.py:27 in retrieve")
    assert details.traceback.endswith("ConnectionError: refused")
    assert "weakincentives/" not in details.traceback


def test_a_result_from_a_worker_has_the_details(tmp_path: Path) -> None:
    requests: Any = SqliteMailbox("requests", tmp_path / "queue.db")
    results: Any = SqliteMailbox("results", tmp_path / "queue.db")
    submission = submit_dataset(DATASET, requests, reply_to=results)
    EvalLoop(retrieve, exact_match, requests).run(max_iterations=1)

    (result,) = collect_results(results, submission, timeout_seconds=60).results

    check_details(result)


@pytest.mark.parametrize("mailbox", ["memory", "sqlite"])
def test_a_result_of_a_remote_main_loop_has_the_details(tmp_path: Path, mailbox: str) -> None:
    cluster = Cluster()
    if mailbox == "sqlite":
        cluster.main = SqliteMailbox("main", tmp_path / "queue.db")  # type: ignore[assignment]
    submission = cluster.submit(DATASET)
    with running_loops(cluster.main_loop(retrieve), cluster.eval_loop()):
        (result,) = collect_results(cluster.results, submission, timeout_seconds=60).results

    check_details(result)
