"""The page follows a run that workers on a queue work on, while one of them dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.deployments import Place
from tests.view.conftest import Open, Serve
from weakincentives.evals import RunManifest, RunRecord, RunStore
from weakincentives.evals.store.queue_state import (
    QueueState,
    WorkerState,
    queue_states,
    save_queue_state,
)
from weakincentives.view.queues import queue_data

MINUTES = 120_000  # milliseconds, only a page that hangs needs as long


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path, "sqlite:///mail.db#qa")
    yield found
    found.close()


def test_the_page_follows_workers_and_one_that_is_killed(
    opened: Open, serve: Serve, place: Place
) -> None:
    place.write(*({"waits_for": "go"} if number % 2 else {} for number in range(8)))
    run_id = place.submit()
    address = serve(place.folder / ".wink" / "runs.db")
    page = opened(address)
    page.wait_for_selector("text=submitted; no collector has run yet")
    doomed = place.start(*place.worker("-j", "2", "--lease", "2"))
    place.start("eval", "collect", run_id, "--quiet")
    run = opened(f"{address}#/run/{run_id}")
    run.wait_for_selector(".workers li", timeout=MINUTES)
    page.wait_for_selector("text=queued or in flight", timeout=MINUTES)
    os.killpg(doomed.pid, signal.SIGKILL)
    (place.folder / "go").touch()
    place.start(*place.worker("-j", "2", "--lease", "2"))
    page.wait_for_selector(".chip.complete", timeout=MINUTES)
    run.wait_for_selector("text=8 rows", timeout=MINUTES)
    run.wait_for_selector(".workers li >> nth=1", timeout=MINUTES)
    assert len({result.worker for result in place.report(run_id).results}) == 2


def state(*, updated: float = 0, last: float = 0, **more: Any) -> QueueState:
    """Return a state that was seen that many seconds ago, with a worker that has been silent."""
    now = datetime.now(UTC)
    worker = WorkerState("host:1", 3, 1, now - timedelta(minutes=5))
    return QueueState(
        updated_at=now - timedelta(seconds=updated),
        last_result_at=now - timedelta(seconds=last),
        workers=(worker,),
        **{"missing": 4, **more},
    )


@pytest.mark.parametrize(
    ("seen", "text", "is_stale"),
    [
        (None, "submitted; no collector has run yet", True),
        ({"queued": 2}, "4 to come, 2 queued or in flight", False),
        ({"ended": True}, "no collector is running; 4 results are missing", True),
        ({"updated": 180}, "no collector is running; 4 results are missing", True),
        (
            {"last": 1000, "resubmitted": 2, "dead_lettered": 1},
            "4 to come, missing samples sent again 2 times, 1 dead letter, no result for 10",
            False,
        ),
    ],
)
def test_what_is_known_of_a_queue_is_said(
    seen: dict[str, Any] | None, text: str, is_stale: bool
) -> None:
    now = datetime.now(UTC)
    manifest = RunManifest(run_id="r", created_at=now, kind="submission", queue="redis://h/0#qa")
    found = None if seen is None else state(**seen)
    data = queue_data(RunRecord(manifest=manifest, status="running"), found)
    assert data is not None
    assert data["text"].startswith(text)
    assert data["stale"] is is_stale
    assert data["collect"] == ("wink eval collect r" if is_stale else "")
    assert [worker["silent"] for worker in data["workers"]] == ([not is_stale] if found else [])


def test_the_state_of_a_queue_is_stored_and_damage_is_ignored(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        for missing in (9, 4):
            save_queue_state(store, "r", state(missing=missing))
        assert queue_states(store, ["r", "other"])["r"].missing == 4
        store.keep("queue-state:broken", b"nonsense")
        assert set(queue_states(store, ["broken", "r"])) == {"r"}
        assert queue_states(store, []) == {}
