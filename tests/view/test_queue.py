"""The page follows a run on queue workers, even if a worker is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.deployments import Deployment
from tests.view.conftest import Open, Serve
from weakincentives.evals import open_store
from weakincentives.evals.store import RunManifest, RunRecord
from weakincentives.evals.store.queue_state import (
    QueueState,
    WorkerState,
    queue_states,
    save_queue_state,
)
from weakincentives.view.queue_page import queue_data

pytestmark = pytest.mark.slow  # it starts processes

TIMEOUT = 120_000  # milliseconds; only a page that hangs takes that long


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, "sqlite:///mail.db#qa")
    yield deployment
    deployment.close()


def test_the_page_follows_workers_of_which_one_is_killed(
    opened: Open, serve: Serve, deployment: Deployment
) -> None:
    deployment.write(*({"waits_for": "go"} if number % 2 else {} for number in range(8)))
    run_id = deployment.submit()
    address = serve(deployment.folder / ".wink" / "runs.db")
    page = opened(address)
    page.wait_for_selector("text=submitted; no collector has run yet")
    killed_worker = deployment.start(*deployment.worker("-j", "2", "--lease", "2"))
    deployment.start("eval", "collect", run_id, "--quiet")
    run = opened(f"{address}#/run/{run_id}")
    run.wait_for_selector(".workers li", timeout=TIMEOUT)
    page.wait_for_selector("text=queued or in flight", timeout=TIMEOUT)
    os.killpg(killed_worker.pid, signal.SIGKILL)
    (deployment.folder / "go").touch()
    deployment.start(*deployment.worker("-j", "2", "--lease", "2"))
    page.wait_for_selector(".chip.complete", timeout=TIMEOUT)
    run.wait_for_selector("text=8 rows", timeout=TIMEOUT)
    run.wait_for_selector(".workers li >> nth=1", timeout=TIMEOUT)
    assert len({result.worker for result in deployment.report(run_id).results}) == 2


def state(
    *, seconds_since_update: float = 0, seconds_since_result: float = 0, **fields: Any
) -> QueueState:
    """Return a queue state of that age, with a worker silent for five minutes."""
    now = datetime.now(UTC)
    worker = WorkerState("host:1", 3, 1, now - timedelta(minutes=5))
    return QueueState(
        updated_at=now - timedelta(seconds=seconds_since_update),
        last_result_at=now - timedelta(seconds=seconds_since_result),
        workers=(worker,),
        **{"missing": 4, **fields},
    )


@pytest.mark.parametrize(
    ("fields", "text", "is_stale"),
    [
        (None, "submitted; no collector has run yet", True),
        ({"queued": 2}, "4 to come, 2 queued or in flight", False),
        ({"ended": True}, "no collector is running; 4 results are missing", True),
        ({"seconds_since_update": 180}, "no collector is running; 4 results are missing", True),
        (
            {"seconds_since_result": 1000, "resubmitted": 2, "dead_lettered": 1},
            "4 to come, missing samples sent again 2 times, 1 dead letter, no result for 10",
            False,
        ),
    ],
)
def test_the_state_of_a_queue_is_summarized(
    fields: dict[str, Any] | None, text: str, is_stale: bool
) -> None:
    now = datetime.now(UTC)
    manifest = RunManifest(run_id="r", created_at=now, kind="submission", queue="redis://h/0#qa")
    queue_state = None if fields is None else state(**fields)
    data = queue_data(RunRecord(manifest=manifest, status="running"), queue_state)
    assert data is not None
    assert data["text"].startswith(text)
    assert data["stale"] is is_stale
    assert data["collect"] == ("wink eval collect r" if is_stale else "")
    assert [worker["silent"] for worker in data["workers"]] == (
        [not is_stale] if queue_state else []
    )


def test_the_state_of_a_queue_is_stored_and_invalid_data_is_ignored(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        for missing in (9, 4):
            save_queue_state(store, "r", state(missing=missing))
        assert queue_states(store, ["r", "other"])["r"].missing == 4
        store.keep("queue-state:broken", b"nonsense")
        assert set(queue_states(store, ["broken", "r"])) == {"r"}
        assert queue_states(store, []) == {}
