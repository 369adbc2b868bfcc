"""One process at a time owns a run; others are refused, and the run of a dead one is taken over."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.forked_wink import Started, start_python
from tests.processes import plain_environment, until
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalSuite,
    RunStore,
    Sample,
    evaluate,
    exact_match,
    open_store,
    stream,
)
from weakincentives.evals.store import RunManifest
from weakincentives.evals.store.sqlite import ownership
from weakincentives.testing import FakeClock

SAMPLES = [Sample(str(number), number, "ok") for number in range(6)]
SCRIPT = f"""
import errno, os, sys, time
from datetime import timedelta
sys.path[:] = {sys.path!r}
from pathlib import Path
from weakincentives.clock import SystemClock
from weakincentives.errors import WinkError
from weakincentives.evals import EvalSuite, RunStore, open_store, Sample, exact_match
from weakincentives.evals.store.sqlite import ownership

here = Path(sys.argv[1])
go = here / os.environ.get("GO", "go")
if os.environ.get("WITHOUT_LOCKS"):
    ownership.fcntl = None  # as on Windows, and on file systems without locks
    # Without further heartbeats: one that is stopped within a transaction locks the file.
    ownership.HEARTBEAT_SECONDS, ownership.STALE_SECONDS = 1000, 0.5
if os.environ.get("ENOLCK"):
    ownership.HEARTBEAT_SECONDS = 0.1
    def flock(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")
    ownership.fcntl.flock = flock

class Clock(SystemClock):
    def now(self):
        return super().now() + timedelta(seconds=float(os.environ.get("AHEAD", "0")))

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
with open_store(here / "runs.db", clock=Clock()) as store:
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
    with open_store(folder / "runs.db") as store:
        return next((record.status for record in store.runs()), "")


def stored_rows(folder: Path) -> int:
    with open_store(folder / "runs.db") as store:
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

    with open_store(tmp_path / "runs.db") as store:
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

    with open_store(tmp_path / "runs.db") as store, open_store(tmp_path / "runs.db") as other_store:
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

    with open_store(tmp_path / "runs.db") as store:
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

    with open_store(tmp_path / "runs.db") as store:
        with anyio.CancelScope() as scope:
            await resume(store, run_id="r", agent=waits)
        assert store.run("r").status == "interrupted"
        assert await resume(store, resume="r", agent=waits) == 6


def test_a_run_stays_owned_while_its_agent_changes_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    states: set[str] = set()

    def agent(number: int) -> str:
        os.chdir("/")
        states.add(store.run("r").status)
        return "ok"

    with open_store("runs.db") as store:
        suite = EvalSuite(agent, Dataset(SAMPLES), exact_match)
        assert suite.run(store=store, run_id="r", progress=False).passed == 6
    assert states == {"running"}
    assert not list(tmp_path.glob("*.lock"))


async def test_the_owner_writes_a_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.store.sqlite.ownership.HEARTBEAT_SECONDS", 0.01)
    heartbeats: set[Any] = set()

    def agent(number: int) -> str:
        def has_several_heartbeats() -> bool:
            connection = sqlite3.connect(tmp_path / "runs.db")
            heartbeats.update(connection.execute("SELECT heartbeat FROM runs"))
            connection.close()
            return len(heartbeats) > 2

        until(has_several_heartbeats)
        return "ok"

    with open_store(tmp_path / "runs.db") as store:
        assert await resume(store, run_id="r", agent=agent) == 6
        assert store._database.read("SELECT owner, heartbeat FROM runs") == [(None, None)]


# ── machines ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def far(tmp_path: Path) -> Iterator[RunStore]:
    """Return a store whose run `r` belongs to another machine, with a clock that is an hour off."""

    def agent(number: int) -> str:
        return "ok"

    owner = {"pid": 7, "host": "far", "machine": "another", "since": 0, "token": "t"}
    with open_store(tmp_path / "runs.db") as store:
        suite = EvalSuite(agent, Dataset(SAMPLES), exact_match)
        suite.run(store=store, run_id="r", progress=False)
        store.begin(store.run("r").manifest)
        connection = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
        heartbeat = int((time.time() - 3600) * 1e6)
        connection.execute(
            "UPDATE runs SET owner = ?, heartbeat = ?", (json.dumps(owner).encode(), heartbeat)
        )
        connection.close()
        yield store


def write_heartbeats(path: Path, ended: threading.Event) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    while not ended.wait(0.02):
        connection.execute("UPDATE runs SET heartbeat = heartbeat + 1")
    connection.close()


def test_an_owner_on_another_machine_whose_heartbeat_changes_is_alive_whatever_its_clock_says(
    far: RunStore,
) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=write_heartbeats, args=(far.path, ended))
    thread.start()
    with pytest.raises(UsageError, match=r"which belongs to process 7 on far.*wait for it to end"):
        far.claim("r")
    with pytest.raises(UsageError, match="only then can it be removed"):
        far.delete("r")
    ended.set()
    thread.join()


def test_a_refused_process_leaves_the_lock_of_an_owner_on_another_machine(
    far: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines may share a folder, but not their locks: its file is the lock of the owner there."""
    path = ownership.lock_path(far.path, b"r")
    path.touch()
    ended = threading.Event()
    thread = threading.Thread(target=write_heartbeats, args=(far.path, ended))
    thread.start()
    with pytest.raises(UsageError, match="which belongs to process 7 on far"):
        far.claim("r")
    ended.set()
    thread.join()
    assert path.exists()
    monkeypatch.setattr("weakincentives.evals.store.sqlite.ownership.STALE_SECONDS", 0.1)
    far.claim("r").release()
    assert not path.exists()


class StallingClock(FakeClock):
    """A clock of a process that stalls for a minute whenever it looks at it."""

    def monotonic(self) -> float:
        self.advance(60)
        return super().monotonic()


def test_a_process_that_stalls_while_it_watches_does_not_take_the_run_of_a_healthy_owner(
    far: RunStore,
) -> None:
    """It may stall in a transaction of its own, in which the owner cannot write a heartbeat."""
    ended = threading.Event()
    thread = threading.Thread(target=write_heartbeats, args=(far.path, ended))
    thread.start()
    try:
        with (
            open_store(far.path, clock=StallingClock()) as store,
            pytest.raises(UsageError, match="which belongs to process 7 on far"),
        ):
            store.claim("r")
    finally:
        ended.set()
        thread.join()


STALLED = f"""
import sys
sys.path[:] = {sys.path!r}
from datetime import UTC, datetime
from weakincentives.evals import RunStore, open_store
from weakincentives.evals.store import RunManifest
from weakincentives.evals.store.sqlite import ownership

ownership.HEARTBEAT_SECONDS, ownership.STALE_SECONDS = 1000, 0.2
with open_store(sys.argv[1]) as store, open_store(sys.argv[1]) as other:
    claim = store.claim("r", new=True)
    store.begin(RunManifest(run_id="r", created_at=datetime.now(UTC)), claim)
    in_flight = claim.track(8)
    ownership._machine = lambda: "another"
    ownership.fcntl.flock = lambda file, operation: None  # each machine has its own locks
    other.claim("r").release()
    in_flight.end(in_flight.begin("sample", 1))
print("alive")
"""


@needs_kernel_locks
def test_an_owner_that_stalled_does_not_crash_when_another_machine_has_taken_its_run(
    tmp_path: Path,
) -> None:
    process = start_python(STALLED, str(tmp_path / "runs.db"), cwd=Path.cwd(), env={**os.environ})
    assert stdout_of(process) == "alive\n"


def test_an_owner_on_another_machine_whose_heartbeat_does_not_change_is_dead(
    far: RunStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("weakincentives.evals.store.sqlite.ownership.STALE_SECONDS", 0.1)
    claim = far.claim("r")
    assert far._database.read("SELECT owner FROM runs") == [(claim.columns[0],)]
    claim.release()

    assert "run 'r' belongs to process 7 on far" in caplog.text
    assert "watching its heartbeat for up to 0.1 seconds" in caplog.text


def test_a_reader_does_not_wait_and_says_when_the_last_heartbeat_was(far: RunStore) -> None:
    record = far.run("r")

    assert record.status == "running"
    assert re.fullmatch(r"process 7 on far, last heartbeat 2.* by its clock", record.note)


@needs_kernel_locks
@pytest.mark.parametrize("ahead", ["60", "-60"])
def test_without_locks_a_healthy_owner_keeps_its_run_if_clocks_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: str
) -> None:
    monkeypatch.setattr("weakincentives.evals.store.sqlite.ownership.fcntl", None)
    first = start_process(tmp_path, ENOLCK="1", AHEAD=ahead)
    until(lambda: status(tmp_path) == "running" and stored_rows(tmp_path) == 5)

    assert f"belongs to process {first.pid} on" in stdout_of(
        start_process(tmp_path, "resume", ENOLCK="1")
    )
    (tmp_path / "go").touch()
    assert stdout_of(first) == "6\n"
    assert sorted((tmp_path / "calls").read_text().split()) == list("012345")


def test_the_running_time_does_not_follow_the_date_of_a_machine(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "runs.db", clock=clock) as store:
        claim = store.claim("r", new=True)
        store.begin(RunManifest(run_id="r", created_at=clock.now()), claim)
        clock.advance(10)
        clock.set_back(3600)
        store.finish("r", "interrupted")
        claim.release()
        clock.advance(1000)
        clock.set_back(-7200)
        claim = store.claim("r")
        store.begin(store.run("r").manifest, claim)
        clock.advance(5)
        store.finish("r", "complete")

        assert store.run("r").active_seconds == 15


# ── suspended owners ────────────────────────────────────────────────────────────────────────────

WITHOUT_LOCKS = {"WITHOUT_LOCKS": "1"}


@needs_kernel_locks
def test_an_owner_whose_run_was_taken_over_stores_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weakincentives.evals.store.sqlite.ownership.fcntl", None)
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
    assert "took it over, because it saw no heartbeat of this process for 0.5 seconds" in answer
    assert (status(tmp_path), stored_rows(tmp_path)) == ("running", 5)
    (tmp_path / "go on").touch()
    assert stdout_of(second) == "6\n"
    assert status(tmp_path) == "complete"
