"""One process at a time owns a run; others are refused, and the run of a dead one is taken over."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.forked_wink import Started, start_python
from tests.processes import plain_environment, until
from weakincentives.errors import UsageError
from weakincentives.evals import EvalConfig, RunStore, Sample, evaluate, exact_match, stream

SAMPLES = [Sample(str(number), number, "ok") for number in range(6)]
SCRIPT = f"""
import os, sys, time
sys.path[:] = {sys.path!r}
from pathlib import Path
from weakincentives.errors import WinkError
from weakincentives.evals import EvalSuite, RunStore, Sample, exact_match
from weakincentives.evals.store import ownership

here = Path(sys.argv[1])
go = here / os.environ.get("GO", "go")
if os.environ.get("WITHOUT_LOCKS"):
    ownership.fcntl = None  # as on Windows, and on file systems without locks
    # Without further heartbeats: one that is stopped within a transaction locks the file.
    ownership.HEARTBEAT_SECONDS, ownership.STALE_SECONDS = 1000, 0.5

def agent(number: int) -> str:
    with open(here / "calls", "a") as calls:
        calls.write(f"{{number}}\\n")
    if os.environ.get("FORK") and number == 0 and not os.fork():
        while not go.exists():
            time.sleep(0.01)
        os._exit(0)
    while number == 5 and not go.exists():
        time.sleep(0.01)
    return "ok"

suite = EvalSuite(agent, [Sample(str(n), n, "ok") for n in range(6)], exact_match)
with RunStore(here / "runs.db") as store:
    while "wait" in sys.argv and not (here / "start").exists():
        time.sleep(0.001)
    how = {{"resume": "r"}} if "resume" in sys.argv else {{"run_id": "r"}}
    while True:
        try:
            print(suite.run(store=store, **how).total)
        except WinkError as error:
            if os.environ.get("INSIST"):
                continue
            print(f"refused: {{error}}")
        break
"""
pytestmark = pytest.mark.anyio
needs_kernel_locks = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no kernel lock here"
)


def start_process(folder: Path, *arguments: str, **variables: str) -> Started:
    environment = {**plain_environment(), **variables}
    return start_python(SCRIPT, str(folder), *arguments, cwd=Path.cwd(), env=environment)


def stdout_of(process: Started) -> str:
    return process.communicate(timeout=60)[0]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Started]:
    """Start a process that runs the run `r` and waits for the file `go` in its last sample."""
    process = start_process(tmp_path)
    until(lambda: status(tmp_path) == "running" and stored_rows(tmp_path) == 5)
    yield process
    (tmp_path / "go").touch()
    stdout_of(process)


def status(folder: Path) -> str:
    with RunStore(folder / "runs.db") as store:
        return next((record.status for record in store.runs()), "")


def stored_rows(folder: Path) -> int:
    with RunStore(folder / "runs.db") as store:
        return store.run("r").total


async def resume(store: RunStore, **options: Any) -> int:
    def agent(number: int) -> str:
        return "ok"

    options.setdefault("agent", agent)
    report = await evaluate(SAMPLES, EvalConfig(), exact_match, store=store, **options)
    return report.total


# ── processes ───────────────────────────────────────────────────────────────────────────────────


@needs_kernel_locks
def test_a_second_process_is_refused_and_the_owner_is_named(owner: Started, tmp_path: Path) -> None:
    second = stdout_of(start_process(tmp_path, "resume"))

    assert second.startswith("refused: expected a run that no process is running, got 'r'")
    assert f"process {owner.pid} on " in second
    assert "since 2" in second
    assert "wait for it to end, or stop it, then resume" in second
    (tmp_path / "go").touch()
    assert stdout_of(owner) == "6\n"
    assert sorted((tmp_path / "calls").read_text().split()) == list("012345")
    assert stdout_of(start_process(tmp_path, "resume")) == "6\n"
    assert [path.name for path in tmp_path.iterdir() if "lock" in path.name] == []


@needs_kernel_locks
def test_a_suspended_process_still_owns_its_run(owner: Started, tmp_path: Path) -> None:
    owner.send_signal(signal.SIGSTOP)
    assert f"process {owner.pid} on " in stdout_of(start_process(tmp_path, "resume"))
    assert status(tmp_path) == "running"
    owner.send_signal(signal.SIGCONT)


@needs_kernel_locks
def test_the_run_of_a_killed_process_can_be_taken_over_at_once(
    owner: Started, tmp_path: Path
) -> None:
    owner.kill()
    owner.wait()

    with RunStore(tmp_path / "runs.db") as store:
        record = store.run("r")
    assert record.status == "interrupted"
    assert record.note.startswith(f"process {owner.pid} on ")
    assert record.note.endswith(" ended before the run did")
    (tmp_path / "go").touch()
    assert stdout_of(start_process(tmp_path, "resume")) == "6\n"
    assert status(tmp_path) == "complete"


@needs_kernel_locks
def test_a_child_that_outlives_the_owner_does_not_own_its_run(tmp_path: Path) -> None:
    process = start_process(tmp_path, FORK="1")
    until(lambda: status(tmp_path) == "running" and stored_rows(tmp_path) == 5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: status(tmp_path) == "interrupted")

    second = start_process(tmp_path, "resume")
    until(lambda: status(tmp_path) == "running")
    (tmp_path / "go").touch()
    assert stdout_of(second) == "6\n"
    stdout_of(process)


@needs_kernel_locks
def test_if_several_processes_start_one_run_id_exactly_one_runs(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    processes = [start_process(tmp_path, "wait") for _ in range(4)]
    (tmp_path / "start").touch()
    answers = [stdout_of(process) for process in processes]

    assert answers.count("6\n") == 1
    assert sum(answer.startswith("refused: expected") for answer in answers) == 3
    assert sorted((tmp_path / "calls").read_text().split()) == list("012345")


# ── one process ─────────────────────────────────────────────────────────────────────────────────


async def test_a_second_task_in_the_same_process_is_refused(tmp_path: Path) -> None:
    def other(number: int) -> str:
        return "other"

    with RunStore(tmp_path / "runs.db") as store, RunStore(tmp_path / "runs.db") as other_store:
        async with stream(
            SAMPLES, EvalConfig(1), exact_match, agent=other, store=store, run_id="r"
        ) as results:
            await anext(results)
            with pytest.raises(UsageError, match=rf"process {os.getpid()} on .*, this one, since"):
                await resume(other_store, resume="r", agent=other)
            with pytest.raises(UsageError, match="which belongs to process"):
                await resume(store, run_id="r")
        assert await resume(other_store, resume="r", agent=other) == 6


async def test_ownership_is_released_after_a_failure(tmp_path: Path) -> None:
    def other(number: int) -> str:
        return "other"

    with RunStore(tmp_path / "runs.db") as store:
        assert await resume(store, run_id="r", agent=other) == 6
        for _ in range(2):
            with pytest.raises(UsageError, match="its agent was"):
                await resume(store, resume="r")
            with pytest.raises(UsageError, match="expected the id of a new run, got 'r'"):
                await resume(store, run_id="r")
        assert store.run("r").status == "complete"
        assert await resume(store, resume="r", agent=other) == 6


async def test_ownership_is_released_after_cancellation(tmp_path: Path) -> None:
    async def waits(number: int) -> str:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        return "ok"

    with RunStore(tmp_path / "runs.db") as store:
        with anyio.CancelScope() as scope:
            await resume(store, run_id="r", agent=waits)
        assert store.run("r").status == "interrupted"
        assert await resume(store, resume="r", agent=waits) == 6


async def test_the_owner_writes_a_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.store.ownership.HEARTBEAT_SECONDS", 0.01)
    heartbeats: set[Any] = set()

    def agent(number: int) -> str:
        def has_several_heartbeats() -> bool:
            connection = sqlite3.connect(tmp_path / "runs.db")
            heartbeats.update(connection.execute("SELECT heartbeat FROM runs"))
            connection.close()
            return len(heartbeats) > 2

        until(has_several_heartbeats)
        return "ok"

    with RunStore(tmp_path / "runs.db") as store:
        assert await resume(store, run_id="r", agent=agent) == 6
        assert store._database.read("SELECT owner, heartbeat FROM runs") == [(None, None)]


# ── machines ────────────────────────────────────────────────────────────────────────────────────


def set_owner(path: Path, heartbeat_age: float) -> None:
    """Make a process on another machine the owner, with a heartbeat of this age in seconds."""
    from weakincentives.clock import SYSTEM_CLOCK

    now = SYSTEM_CLOCK.now().timestamp() * 1e6
    owner = {"pid": 7, "host": "far", "machine": "another", "since": int(now), "token": "t"}
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(
        "UPDATE runs SET owner = ?, heartbeat = ?",
        (json.dumps(owner).encode(), int(now - heartbeat_age * 1e6)),
    )
    connection.close()


async def test_the_heartbeat_decides_if_the_owner_is_on_another_machine(tmp_path: Path) -> None:
    def agent(number: int) -> str:
        return "ok"

    path = tmp_path / "runs.db"
    with RunStore(path) as store:
        with anyio.CancelScope() as scope:
            async for _ in stream(
                SAMPLES, EvalConfig(), exact_match, agent=agent, store=store, run_id="r"
            ):
                scope.cancel()
        store.begin(store.run("r").manifest)
        set_owner(path, heartbeat_age=5)
        assert store.run("r").status == "running"
        with pytest.raises(UsageError, match=r"process 7 on far.*machine is gone, try again in 30"):
            await resume(store, resume="r", agent=agent)
        set_owner(path, heartbeat_age=31)
        assert store.run("r").status == "interrupted"
        assert await resume(store, resume="r", agent=agent) == 6
        assert store.run("r").status == "complete"


# ── suspended owners ────────────────────────────────────────────────────────────────────────────

WITHOUT_LOCKS = {"WITHOUT_LOCKS": "1"}


@needs_kernel_locks
def test_an_owner_whose_run_was_taken_over_stores_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.store.ownership.fcntl", None)
    first = start_process(tmp_path, **WITHOUT_LOCKS)
    until(lambda: status(tmp_path) == "running" and stored_rows(tmp_path) == 5)
    first.send_signal(signal.SIGSTOP)
    second = start_process(tmp_path, "resume", **WITHOUT_LOCKS, INSIST="1", GO="go on")
    until(lambda: (tmp_path / "calls").read_text().split().count("5") == 2)
    (tmp_path / "go").touch()
    first.send_signal(signal.SIGCONT)

    answer = stdout_of(first)
    assert answer.startswith("refused: expected to own the run 'r'")
    assert f"process {second.pid} on " in answer
    assert (status(tmp_path), stored_rows(tmp_path)) == ("running", 5)
    (tmp_path / "go on").touch()
    assert stdout_of(second) == "6\n"
    assert status(tmp_path) == "complete"
