"""Ctrl-C in a real process: environments are closed, the run is stored as such and resumable."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine import TIMEOUT
from weakincentives.evals import open_store

SCRIPT = """
import asyncio, os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # even if the parent ignores SIGINT
import anyio, trio
from weakincentives.evals import EvalConfig, EvalSuite, open_store, Sample, contains, evaluate
from weakincentives.rollouts import CalculatorEnvironment

how, again = sys.argv[1], len(sys.argv) > 2
samples = [Sample(str(number), f"question {number}", "answer") for number in range(8)]

def note(what):
    with open("notes.txt", "a") as notes:
        notes.write(f"{what}\\n")
    os.write(1, f"{what}\\n".encode())  # atomic, unlike print() in threads

class Environment(CalculatorEnvironment):
    def __init__(self, sample):
        super().__init__()
        self.id = sample.id
        note(f"opened {self.id}")

    async def close(self):
        await anyio.sleep(0.01)
        note(f"closed {self.id}")

async def endpoint(messages):
    number = int(messages[-1].content.split()[-1])
    note(f"asked {number}")
    if number >= 3 and "again" not in sys.argv:
        await anyio.sleep_forever()
    return "answer"

def agent(question):
    number = int(question.split()[-1])
    note(f"asked {number}")
    while number >= 3 and "again" not in sys.argv and not Path("interrupted").exists():
        time.sleep(0.01)
    return "answer"

config = EvalConfig(endpoint=endpoint, max_concurrent=2)
store = open_store("runs.db")
options = {"store": store, "resume": "latest" if again else None}

async def main():
    return await evaluate(samples, config, contains, None, Environment, **options)

async def suite_inside():
    return suite.run(**options)

unlimited = EvalConfig(max_concurrent=2, timeout_per_sample_ms=None)
suite = EvalSuite(agent, samples, contains, config=unlimited)
run = {
    "asyncio": lambda: asyncio.run(main()),
    "trio": lambda: trio.run(main),
    "suite": lambda: suite.run(**options),
    "suite inside trio": lambda: trio.run(suite_inside),
}[how]
print(run(), flush=True)
"""


def _wait_until_interrupted(folder: Path) -> None:
    """Wait until the run is stored as interrupted; threads of agents may still be running."""
    deadline = time.monotonic() + TIMEOUT
    with open_store(folder / "runs.db") as store:
        while store.run("latest").status != "interrupted":
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("how", ["asyncio", "trio", "suite", "suite inside trio"])
def test_an_interrupted_run_closes_its_environments_and_can_be_resumed(
    how: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SCRIPT, how]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert "asked 4\n" in process.stdout
            os.kill(process.pid, signal.SIGINT)
            _wait_until_interrupted(tmp_path)
            (tmp_path / "interrupted").touch()
            _, stderr = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()

    if "suite" in how:
        assert re.fullmatch(
            r"interrupted, 3 of 8 results are stored in runs\.db - to continue: "
            r'suite\.run\(store=\.\.\., resume="[-0-9a-f]+"\)\n',
            stderr,
        )
    else:
        assert "KeyboardInterrupt" in stderr
    assert process.returncode == -signal.SIGINT
    notes = (tmp_path / "notes.txt").read_text().splitlines()
    opened = sorted(note.split()[1] for note in notes if note.startswith("opened"))
    assert sorted(note.split()[1] for note in notes if note.startswith("closed")) == opened
    assert opened == (list("01234") if "suite" not in how else [])
    with open_store(tmp_path / "runs.db") as store:
        assert store.run("latest").status == "interrupted"
        stored = {row.result.sample_id for row in store.rows("latest")}
        assert stored == set("012")

    resumed = subprocess.run(
        [*command, "again"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )

    assert "8/8 passed, 0 errors" in resumed.stdout
    called = {line.split()[1] for line in resumed.stdout.splitlines() if "asked" in line}
    assert called == set("34567")
    with open_store(tmp_path / "runs.db") as store:
        assert store.run("latest").status == "complete"
        assert store.report("latest").total == 8
