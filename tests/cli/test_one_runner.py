"""One run, one runner: a second `resume` is refused, and a killed run is shown as interrupted."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.forked_wink import run_wink
from tests.processes import TIMEOUT, plain_environment, until
from weakincentives.internal.formatting import duration

WINK = Path(sys.executable).with_name("wink")
SAMPLES = 200
SUITE = f"""
import os
from pathlib import Path
import anyio
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

HERE = Path(__file__).parent
CALLS = os.open(HERE / "calls.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

async def agent(number: int) -> str:
    os.write(CALLS, f"{{number}}\\n".encode())
    while number >= {SAMPLES} / 2 and not (HERE / "go").exists():
        await anyio.sleep(0.01)
    return "ok"

dataset = Dataset([Sample(str(n), n, "ok") for n in range({SAMPLES})], name="numbers")
suite = EvalSuite(agent, dataset, exact_match, config=EvalConfig(max_concurrent=4))
"""
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no kernel lock on Windows")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "numbers_eval.py").write_text(SUITE)
    return tmp_path


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [WINK, "eval", *args],
        cwd=folder,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wink(folder: Path, *args: str) -> tuple[int, str, str]:
    done = run_wink("eval", *args, cwd=folder, env=plain_environment())
    return done.returncode, done.stdout, done.stderr


def calls(folder: Path) -> list[str]:
    path = folder / "calls.txt"
    return path.read_text().split() if path.exists() else []


def stored(folder: Path) -> int:
    path = folder / ".wink" / "runs.db"
    if not path.exists():
        return 0
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])
    except sqlite3.OperationalError:  # no tables yet
        return 0
    finally:
        connection.close()


def listed(folder: Path) -> dict[str, Any]:
    (record,) = json.loads(wink(folder, "list", "--format", "json")[1])
    return record


def start_run_that_waits_halfway(folder: Path) -> subprocess.Popen[str]:
    """Start a run; return once it has stored half of its samples and waits in the next ones."""
    process = start(folder, "run", "numbers_eval.py")
    until(lambda: stored(folder) == SAMPLES / 2 and len(calls(folder)) == SAMPLES / 2 + 4)
    return process


def test_resuming_a_running_run_is_refused_and_calls_no_agent(folder: Path) -> None:
    process = start_run_that_waits_halfway(folder)
    before = calls(folder)

    code, _, err = wink(folder, "resume")

    assert code == 2
    assert f"belongs to process {process.pid} on " in err
    assert calls(folder) == before
    assert listed(folder)["status"] == "running"
    (folder / "go").touch()
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert len(calls(folder)) == SAMPLES
    assert listed(folder)["status"] == "complete"


def test_a_killed_run_is_listed_as_interrupted_and_can_be_resumed_at_once(folder: Path) -> None:
    process = start_run_that_waits_halfway(folder)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=TIMEOUT)

    assert listed(folder)["status"] == "interrupted"
    assert "! interrupted" in wink(folder, "list")[2]
    result = wink(folder, "show")
    assert ", interrupted" in result[1].splitlines()[0]
    assert f"process {process.pid} on " in result[1]
    assert "To continue: wink eval resume" in result[2]
    (folder / "go").touch()
    assert wink(folder, "resume")[0] == 0
    assert len(calls(folder)) == SAMPLES + 4  # the samples in flight ran twice
    assert listed(folder)["status"] == "complete"


def test_the_time_between_two_resumes_does_not_count_as_running_time(folder: Path) -> None:
    process = start_run_that_waits_halfway(folder)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT)
    ended = time.monotonic()
    before = listed(folder)
    until(lambda: listed(folder)["active_seconds"] == before["active_seconds"])
    idle = time.monotonic() - ended

    (folder / "go").touch()
    assert wink(folder, "resume")[0] == 0

    after = listed(folder)
    elapsed = datetime.fromisoformat(after["finished_at"]) - datetime.fromisoformat(
        after["created_at"]
    )
    assert before["active_seconds"] < after["active_seconds"]
    assert after["active_seconds"] <= elapsed.total_seconds() - idle
    running_time = duration(after["active_seconds"])
    assert f", took {running_time}\n" in wink(folder, "show")[1]
