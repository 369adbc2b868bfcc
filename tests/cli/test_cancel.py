"""`wink eval cancel`, `wink eval rm` and `--priority`: real workers on SQLite and a real server."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.deployments import Deployment, deployment
from tests.forked_wink import Started
from tests.processes import TIMEOUT, until
from weakincentives.evals import open_store
from weakincentives.runtime.mailbox import open_mailbox

__all__ = ["deployment"]  # a fixture

# Samples of the first dataset wait for ever; both note when an agent begins and when it ends.
AGENT = """
import os, time
from pathlib import Path
import anyio

LOG = os.open(Path(__file__).parent / "log.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

def note(what, sample):
    os.write(LOG, f"{what} {sample.id} {time.time()}\\n".encode())

async def agent(sample):
    note("begin", sample)
    try:
        await anyio.sleep(1000 if sample.metadata.get("hangs") else 0)
    finally:
        note("end", sample)
    return "yes"
"""
SOON = 10.0  # seconds after a cancellation in which agents must have ended, on a busy machine


class Fleet:
    """Two worker processes on a deployment, and the log of their agent."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.folder = deployment, deployment.folder
        (self.folder / "fleet.py").write_text(AGENT)

    def submit(self, name: str, count: int, *options: str, **metadata: Any) -> str:
        """Submit samples `NAME-0`, `NAME-1`, ...; return the run id."""
        lines = (
            {"id": f"{name}-{n}", "input": "?", "expected": "yes", "metadata": metadata}
            for n in range(count)
        )
        (self.folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines))
        code, out, err = self.deployment.wink(
            *("eval", "submit", "--dataset", f"{name}.jsonl", "--run-id", name, *options)
        )
        assert code == 0, err
        return out.strip()

    def start(self, *options: str, count: int = 2) -> list[Started]:
        agent = ("worker", "eval", "--agent", "fleet.py:agent", "--evaluator", "exact_match")
        return [self.deployment.start(*agent, "-j", "4", *options) for _ in range(count)]

    def log(self, what: str, name: str = "") -> list[tuple[str, float]]:
        """Return the samples of a run that began, or ended, and when."""
        file = self.folder / "log.txt"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(id, float(at)) for kind, id, at in lines if kind == what and id.startswith(name)]

    def status(self, run_id: str) -> tuple[str, str]:
        with open_store(self.folder / ".wink" / "runs.db") as store:
            record = store.run(run_id)
        return record.status, record.note

    def queued(self, suffix: str = "") -> int:
        name = f"{self.deployment.queue.partition('#')[2]}{suffix}"
        with open_mailbox(self.deployment.queue, name=name) as mailbox:
            return mailbox.approximate_count()


@pytest.fixture
def fleet(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.chdir(deployment.folder)  # the path of a SQLite queue is relative
    return Fleet(deployment)


def test_a_small_run_behind_a_large_one_starts_at_once_and_both_end(fleet: Fleet) -> None:
    large, small = fleet.submit("large", 2000), fleet.submit("small", 3)

    workers = fleet.start("--drain")
    for worker in workers:
        _, err = worker.communicate(timeout=TIMEOUT)
        assert worker.returncode == 0, err

    order = [id.partition("-")[0] for id, _ in fleet.log("begin")]
    assert max(n for n, name in enumerate(order) if name == "small") < 50
    for run_id in (large, small):
        assert fleet.deployment.wink("eval", "collect", run_id)[0] == 0
    assert len(order) == len(set(fleet.log("begin"))) == 2003


def test_a_run_of_a_higher_priority_comes_first(fleet: Fleet) -> None:
    fleet.submit("low", 5, "--priority=-1")
    fleet.submit("normal", 5)
    fleet.submit("high", 5, "--priority", "7")

    (worker,) = fleet.start("--drain", "-j", "1", count=1)
    worker.communicate(timeout=TIMEOUT)

    order = [id.partition("-")[0] for id, _ in fleet.log("begin")]
    assert order == ["high"] * 5 + ["normal"] * 5 + ["low"] * 5


def test_cancelling_ends_what_runs_and_leaves_the_other_runs_alone(fleet: Fleet) -> None:
    fleet.submit("large", 2000, hangs=True)
    workers = fleet.start()
    until(lambda: len(fleet.log("begin", "large")) == 8)
    collector = fleet.deployment.start("eval", "collect", "large")
    fleet.submit("small", 3)

    code, _, err = fleet.deployment.wink("eval", "cancel", "large")
    cancelled_at = time.time()

    assert code == 0, err
    assert "large is cancelled: 0 of 2,000 are stored, 2,000 samples taken back" in err
    _, err = collector.communicate(timeout=TIMEOUT)
    assert collector.returncode == 3
    assert "cancelled, 0 of 2,000 are stored" in err
    assert "continue:" not in err  # it stays cancelled
    assert fleet.deployment.wink("eval", "collect", "small")[0] == 0
    until(lambda: len(fleet.log("end", "large")) == 8)
    assert max(at for _, at in fleet.log("end", "large")) < cancelled_at + SOON
    assert len(fleet.log("begin", "large")) == 8
    assert fleet.status("large") == ("cancelled", "0 of 2,000 are stored")
    assert fleet.queued() == fleet.queued("-dlq") == 0
    for worker in workers:
        os.kill(worker.pid, signal.SIGTERM)
        worker.communicate(timeout=TIMEOUT)
        assert worker.returncode == 0


def test_finished_samples_of_a_cancelled_run_are_stored_and_no_other_begins(fleet: Fleet) -> None:
    fleet.submit("mine", 6)
    (worker,) = fleet.start("--drain", count=1)
    worker.communicate(timeout=TIMEOUT)
    fleet.deployment.wink("eval", "submit", "--dataset", "mine.jsonl", "--run-id", "mine")
    again = fleet.submit("mine2", 4)

    code, _, err = fleet.deployment.wink("eval", "cancel", again)
    assert (code, "0 of 4 are stored, 4 samples taken back" in err) == (0, True), err
    code, _, err = fleet.deployment.wink("eval", "cancel", "mine")

    assert (code, "6 of 6 are stored\n" in err or "is complete" in err) == (0, True), err
    assert fleet.status("mine")[0] == "complete"
    assert fleet.status("mine2") == ("cancelled", "0 of 4 are stored")


def test_a_cancelled_run_stays_cancelled(fleet: Fleet) -> None:
    wink = fleet.deployment.wink
    fleet.submit("mine", 4)

    assert [wink("eval", "cancel", "mine")[0] for _ in range(2)] == [0, 0]
    assert "mine was cancelled already: 0 of 4" in wink("eval", "cancel", "mine")[2]
    for options in ((), ("--retry-errors",), ("--resubmit-after", "0.1")):
        code, _, err = wink("eval", "collect", "mine", *options)
        assert (code, "cancelled, 0 of 4 are stored" in err) == (3, True), err
    code, _, err = wink("eval", "submit", "--dataset", "mine.jsonl", "--run-id", "mine")
    assert (code, "was cancelled - submit the samples again without" in err) == (2, True), err
    assert fleet.queued() == 0
    assert fleet.status("mine") == ("cancelled", "0 of 4 are stored")
    assert "- cancelled" in wink("eval", "list")[2]
    assert "cancelled" in wink("eval", "show", "mine")[1]
    assert wink("eval", "report", "mine", "-o", "page.html")[0] == 0
    assert "cancelled" in (fleet.folder / "page.html").read_text()


def test_only_a_submitted_run_is_cancelled(fleet: Fleet) -> None:
    wink = fleet.deployment.wink
    fleet.submit("mine", 1)
    assert wink("eval", "run", "--agent", "fleet.py:agent", "--dataset", "mine.jsonl")[0] == 0

    code, _, err = wink("eval", "cancel", "latest")
    assert (code, "expected a run that `wink eval submit` began, got " in err) == (2, True), err
    code, _, err = wink("eval", "cancel", "unknown")
    assert (code, "unknown" in err) == (2, True)


def test_removing_a_submitted_run_cancels_it(fleet: Fleet) -> None:
    fleet.submit("mine", 200, hangs=True)
    fleet.submit("other", 3)
    fleet.start(count=1)
    until(lambda: len(fleet.log("begin", "mine")) == 4 or len(fleet.log("end", "other")) == 3)

    code, _, err = fleet.deployment.wink("eval", "rm", "mine", "--yes")

    assert (code, "cancelled mine: 200 samples taken back" in err) == (0, True), err
    until(lambda: len(fleet.log("end", "other")) == 3 and fleet.queued() == 0)
    began = len(fleet.log("begin", "mine"))
    until(lambda: len(fleet.log("end", "mine")) == began)
    assert began <= 4
    assert fleet.deployment.wink("eval", "show", "mine")[0] == 2
    again = ("eval", "submit", "--dataset", "mine.jsonl", "--run-id", "mine")
    assert "was cancelled" in fleet.deployment.wink(*again)[2]
    assert fleet.deployment.wink("eval", "show", "mine")[0] == 2


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_a_run_whose_queue_is_gone_is_removed_on_demand(fleet: Fleet) -> None:
    fleet.submit("mine", 2)
    Path("mail.db").unlink()

    code, _, err = fleet.deployment.wink("eval", "rm", "mine", "--yes")
    assert (code, "so it was not removed" in err and "--no-cancel" in err) == (2, True), err
    assert fleet.deployment.wink("eval", "rm", "mine", "--yes", "--no-cancel")[0] == 0
