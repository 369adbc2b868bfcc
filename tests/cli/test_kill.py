"""A run killed at any moment can be resumed: no sample runs twice, no row is lost."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.forked_wink import Started, start_wink
from tests.processes import TIMEOUT, plain_environment, until
from tests.soak import soak_size
from weakincentives.evals import EvalReport, open_store

SAMPLES, SERIES = 40, 5
KILLS = soak_size(15, 50)
SUITE = f"""
import os
from pathlib import Path
import anyio
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

HERE = Path(__file__).parent
CALLS = os.open(HERE / "calls.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

async def agent(sample: Sample):
    os.write(CALLS, f"{{sample.id}}\\n".encode())
    await anyio.sleep(0.03)
    while int(sample.id) >= {SAMPLES} / 2 and (HERE / "halt").exists():
        await anyio.sleep(0.01)
    if sample.id == "7":
        raise ValueError("seven is too much")
    return "wrong" if int(sample.id) % 5 == 0 else sample.expected

dataset = Dataset([Sample(str(i), i, f"answer {{i}}") for i in range({SAMPLES})], name="killed")
suite = EvalSuite(agent, dataset, exact_match, config=EvalConfig(max_concurrent=2))
"""


class Project:
    """A folder with an eval whose agent records every call in a file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "killed.py").write_text(SUITE)
        self.folder, self.stderr = folder, ""
        self.store = folder / ".wink" / "runs.db"

    def start(self, *args: str) -> Started:
        """Start a command in its own process group; return once it has printed a run id."""
        process = start_wink("eval", *args, cwd=self.folder, env=plain_environment())
        self.stderr = ""
        for line in process.stderr:
            self.stderr += line
            if line.startswith("run "):
                break
        return process

    def wait(self, process: Started) -> int:
        """Wait for a process, keep the rest of its stderr, and return its exit code."""
        self.stderr += process.communicate(TIMEOUT)[1]
        return process.wait()

    def finish(self, *args: str) -> int:
        """Run a command to its end; return its exit code."""
        return self.wait(self.start(*args))

    def next_command(self) -> tuple[str, ...]:
        """Return what a user types after a kill: `resume` if the run was stored, else `run`."""
        return ("resume",) if self.stored() is not None else ("run", "killed.py")

    def stored(self) -> set[str] | None:
        """Return the ids of the samples that have a row; None if there is no run yet."""
        if not self.store.exists():
            return None
        with open_store(self.store) as store:
            runs = store.runs()
            if not runs:
                return None
            return {sample for _, sample, _ in store.keys(runs[0].manifest.run_id)}

    def has_progressed(self, process: Started, stored: set[str]) -> bool:
        """Return whether the process has stored more than these rows, or has exited."""
        return process.poll() is not None or (self.stored() or set()) != stored

    def calls(self) -> Counter[str]:
        """Return how often the agent was called with each sample."""
        file = self.folder / "calls.txt"
        return Counter(file.read_text().split() if file.exists() else ())

    def report(self) -> EvalReport[Any]:
        with open_store(self.store) as store:
            assert len(store.runs()) == 1
            return store.report("latest")


def kill_and_resume(project: Project, kills: int, random: Random) -> int:
    """Start or resume a run and kill it, `kills` times; no stored sample may run again.

    Every other kill waits until this process has stored a row; the others come at a random moment.
    Return how many kills left a run with some of its rows stored.
    """
    partial_runs = 0
    while kills:
        before, stored = project.calls(), project.stored() or set()
        if len(stored) > SAMPLES * 0.8:  # too close to the end to be killed: start over
            assert project.finish(*project.next_command()) == 3, project.stderr
            check_complete(project)
            for file in (*project.store.parent.iterdir(), project.folder / "calls.txt"):
                file.unlink()
            continue
        process = project.start(*project.next_command())
        if kills % 2:
            until(partial(project.has_progressed, process, stored))
        time.sleep(random.uniform(0, 0.05 if kills % 2 else 0.3))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        exit_code = project.wait(process)
        assert not stored & set(project.calls() - before), "a stored sample was run again"
        if exit_code == -signal.SIGKILL:
            kills -= 1
            partial_runs += bool(project.stored())
    return partial_runs


def check_complete(project: Project) -> None:
    report = project.report()
    assert [result.sample_id for result in report.results] == [str(i) for i in range(SAMPLES)]
    assert str(report).startswith("31/40 passed, 1 error (77.5%")


def outcomes(report: EvalReport[Any]) -> list[tuple[Any, ...]]:
    """Return the parts of a report that do not depend on the clock."""
    return [(r.sample_id, r.epoch, r.output, r.score, r.error, r.sample) for r in report.results]


@pytest.mark.soak
def test_a_run_survives_kills_at_any_moment(tmp_path: Path) -> None:
    uninterrupted = Project(tmp_path / "uninterrupted")
    assert uninterrupted.finish("run", "killed.py") == 3
    assert uninterrupted.calls() == Counter({str(i): 1 for i in range(SAMPLES)})

    projects = [Project(tmp_path / f"series{number}") for number in range(SERIES)]
    with ThreadPoolExecutor(SERIES) as pool:
        generators = [Random(number) for number in range(SERIES)]
        partial_runs = pool.map(kill_and_resume, projects, [KILLS // SERIES] * SERIES, generators)
        assert sum(partial_runs) >= KILLS / 2

    for project in projects:
        assert project.finish(*project.next_command()) == 3, project.stderr
        check_complete(project)
        assert outcomes(project.report()) == outcomes(uninterrupted.report())


def test_an_interrupt_stops_cleanly_and_prints_how_to_resume(tmp_path: Path) -> None:
    project = Project(tmp_path / "interrupted")
    (project.folder / "halt").touch()  # so that it cannot end before it is interrupted
    process = project.start("run", "killed.py")
    until(project.stored)
    os.killpg(process.pid, signal.SIGINT)

    assert project.wait(process) == 130
    stderr = project.stderr
    with open_store(project.store) as store:
        record = store.run("latest")
    assert record.status == "interrupted"
    assert f"exit 130: interrupted, {record.total} of {SAMPLES} are stored" in stderr
    assert f"continue: wink eval resume {record.manifest.run_id}" in stderr
    assert "Traceback" not in stderr

    before, stored = project.calls(), project.stored() or set()
    assert 0 < len(stored) < SAMPLES
    (project.folder / "halt").unlink()
    assert project.finish("resume", record.manifest.run_id) == 3
    assert f"reuses {len(stored)} results" in project.stderr
    assert not stored & set(project.calls() - before)
    check_complete(project)
