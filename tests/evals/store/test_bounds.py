"""Results wait for the store: unwritten results are bounded in bytes and in time."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.processes import TIMEOUT, plain_environment, until
from weakincentives.chat import ChatMessage
from weakincentives.evals import (
    EvalConfig,
    Sample,
    Trajectory,
    evaluate,
    exact_match,
    open_store,
    stream,
)

WINK = Path(sys.executable).with_name("wink")
LARGE = 5_000_000
SUITE = """
import atexit, base64, os, random
from pathlib import Path
from weakincentives.evals import Dataset, EvalSuite, Sample

TEXT = base64.b64encode(random.Random(1).randbytes(3 * {size} // 4)).decode()
FINISHED = os.open("finished.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

def agent(sample: Sample):
    output = TEXT[sample.input:] + TEXT[:sample.input]
    os.write(FINISHED, f"{{sample.id}}\\n".encode())
    return output

def fine(output, expected):
    return True

@atexit.register
def write_peak():
    Path("status.txt").write_text(Path("/proc/self/status").read_text())

dataset = Dataset([Sample(str(n), n, "") for n in range({count})], name="large")
suite = EvalSuite(agent, dataset, fine)
"""


def start_run(folder: Path, size: int, count: int, concurrency: int) -> subprocess.Popen[bytes]:
    (folder / "large_eval.py").write_text(SUITE.format(size=size, count=count))
    return subprocess.Popen(
        [WINK, "eval", "run", "large_eval.py", "-j", str(concurrency), "--quiet"],
        cwd=folder,
        env=plain_environment(),
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says the peak")
def test_large_outputs_do_not_accumulate_in_memory(tmp_path: Path) -> None:
    with start_run(tmp_path, LARGE, count=80, concurrency=4) as process:
        assert process.wait(TIMEOUT * 3) == 0

    peak = (tmp_path / "status.txt").read_text().partition("VmHWM:")[2].split()[0]
    assert int(peak) / 1024 < 210  # MB; all 80 outputs are 400 MB
    with open_store(tmp_path / ".wink/runs.db") as store:
        assert store.run("latest").total == 80
        assert {len(row.result.output) for row in store.rows("latest")} == {LARGE}


@pytest.mark.parametrize(
    ("size", "concurrency", "unwritten"),
    [
        (LARGE, 4, 4),  # each sample waits until its own row is written
        (500_000, 8, 8),
        (50_000, 16, 2_000_000 // 50_000 + 16 + 1),
    ],
)
def test_a_killed_run_with_large_outputs_loses_few_results(
    tmp_path: Path, size: int, concurrency: int, unwritten: int
) -> None:
    finished = tmp_path / "finished.txt"

    def enough_finished() -> bool:
        return finished.exists() and len(finished.read_text().split()) > 3 * unwritten

    with start_run(tmp_path, size, 100_000, concurrency) as process:
        until(enough_finished)
        os.kill(process.pid, signal.SIGKILL)

    with open_store(tmp_path / ".wink/runs.db") as store:
        stored = store.run("latest").total
    assert len(finished.read_text().split()) - stored <= unwritten


@pytest.mark.anyio
@pytest.mark.parametrize(
    "output",
    [
        {"deep": [{"text": "x" * 200_000}]},
        ["x" * 100] * 5_000,
        list(range(100_000)),
        Trajectory(messages=[ChatMessage("assistant", "x" * 1_000)] * 200, output="short"),
    ],
    ids=["nested", "long list", "numbers", "messages"],
)
async def test_a_large_row_is_on_disk_before_the_next_sample_starts(
    tmp_path: Path, output: Any
) -> None:
    """Another connection reads it, for every way in which a row can be large."""
    stored_counts: list[int] = []

    async def agent(number: int) -> Any:
        with sqlite3.connect(tmp_path / "runs.db") as other:
            stored_counts.extend(other.execute("SELECT count(*) FROM rows").fetchone())
        return output

    samples = [Sample(str(number), number, None) for number in range(5)]
    with open_store(tmp_path / "runs.db") as store:
        config = EvalConfig(max_concurrent=1)
        await evaluate(samples, config, lambda output, expected: True, agent=agent, store=store)

    assert stored_counts == [0, 1, 2, 3, 4]


@pytest.mark.anyio
async def test_large_rows_that_are_rescored_are_stored(tmp_path: Path) -> None:
    async def agent(number: int) -> str:
        return "x" * 200_000

    def first(output: str, expected: str) -> bool:
        return True

    def second(output: str, expected: str) -> bool:
        return len(output) == 200_000

    samples = [Sample(str(number), number, "") for number in range(5)]
    config = EvalConfig(max_concurrent=2)
    with open_store(tmp_path / "runs.db") as store:
        await evaluate(samples, config, first, agent=agent, store=store, run_id="run")
        await evaluate(samples, config, second, agent=agent, store=store, resume="run")
        rows = list(store.rows("run"))

    assert [row.result.score.criterion for row in rows] == ["second"] * 5
    assert all(row.result.passed and len(row.result.output) == 200_000 for row in rows)


@pytest.mark.anyio
async def test_a_large_result_is_stored_even_if_the_reader_stops(tmp_path: Path) -> None:
    async def agent(number: int) -> str:
        return "x" * 1_000_000

    samples = (Sample(str(number), number, "") for number in range(100))
    with open_store(tmp_path / "runs.db") as store:
        config = EvalConfig(max_concurrent=3)
        async with stream(samples, config, exact_match, agent=agent, store=store) as results:
            first = await anext(results)
        assert first.sample_id in {row.result.sample_id for row in store.rows("latest")}
        assert store.run("latest").status == "interrupted"


@pytest.mark.anyio
async def test_results_wait_while_another_process_locks_the_store(tmp_path: Path) -> None:
    """No sample starts once the oldest unwritten result has waited for too long."""
    finished, twenty_finished = 0, anyio.Event()

    async def agent(number: int) -> str:
        nonlocal finished
        await anyio.sleep(0.02)
        finished += 1
        if finished == 20:
            twenty_finished.set()
        return "ok"

    async def lock_store() -> None:
        await twenty_finished.wait()
        with sqlite3.connect(tmp_path / "runs.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            before = finished
            await anyio.sleep(2)
            finished_while_locked.append(finished - before)
            other.execute("ROLLBACK")

    finished_while_locked: list[int] = []
    samples = [Sample(str(number), number, "ok") for number in range(600)]
    config = EvalConfig(max_concurrent=4)
    with open_store(tmp_path / "runs.db") as store, anyio.fail_after(TIMEOUT):
        async with anyio.create_task_group() as group:
            group.start_soon(lock_store)
            await evaluate(samples, config, exact_match, agent=agent, store=store)

    assert 0 < finished_while_locked[0] < 150  # it would be 400 if nothing waited
    assert finished == 600


def test_a_large_row_that_cannot_be_written_raises_at_once(tmp_path: Path) -> None:
    code = """
import random, resource, signal, sys
from datetime import datetime, UTC
from weakincentives.errors import StoreError
from weakincentives.evals import EvalResult, open_store, Score, Trajectory
from weakincentives.evals.store.manifest import RunManifest
from weakincentives.evals.store.stored_row import StoredRow
with open_store(sys.argv[1]) as store:
    store.begin(RunManifest(run_id="run", created_at=datetime.now(UTC)))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    text = random.Random(0).randbytes(500_000).hex()
    result = EvalResult("1", Score(1.0), trajectory=Trajectory(output=text), run_id="run")
    try:
        store.put(StoredRow(result=result))
    except StoreError:
        print("refused")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.flush()
    print(store.run("run").total, store.pending)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "runs.db")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert process.stdout.split() == ["refused", "1", "0"], process


@pytest.mark.anyio
async def test_an_output_whose_size_cannot_be_measured_does_not_end_the_run(tmp_path: Path) -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    async def agent(number: int) -> Any:
        return [Odd()]

    with open_store(tmp_path / "runs.db") as store:
        samples = [Sample("1", 1, None)]
        report = await evaluate(
            samples, EvalConfig(), lambda output, expected: True, agent=agent, store=store
        )
        assert report.passed == store.run("latest").passed == 1
