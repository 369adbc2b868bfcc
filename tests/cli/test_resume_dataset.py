"""A run that is resumed with another dataset is judged by that dataset, on the command line too."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked_wink import run_wink
from tests.processes import plain_environment, until
from weakincentives.evals import RunStore

WINK = Path(sys.executable).with_name("wink")
SUITE = """
import os, time
from pathlib import Path
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match

here = Path(__file__).parent

def agent(number: int) -> str:
    while (here / "halt").exists():
        time.sleep(0.01)
    if number in (11, 12):
        raise ConnectionError("lost")
    return "ok" if number < 10 else "no"

def load():
    numbers = map(int, (here / "numbers.txt").read_text().split())
    return Dataset([Sample(f"s{n}", n, "ok") for n in numbers], name="changing")

suite = EvalSuite(agent, load(), exact_match)
"""


class Place:
    """Make a folder with a suite that loads its dataset from a file."""

    def __init__(self, folder: Path) -> None:
        (folder / "suite.py").write_text(SUITE)
        self.folder = folder

    def samples(self, *numbers: int) -> None:
        (self.folder / "numbers.txt").write_text(" ".join(map(str, numbers)))

    def command(self, *words: str) -> list[str]:
        return [str(WINK), "eval", *words]

    def wink(self, *words: str) -> tuple[int, str, str]:
        done = run_wink("eval", *words, cwd=self.folder, env=plain_environment())
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_removed_samples_are_in_no_verdict_and_in_no_file(place: Place) -> None:
    place.samples(*range(22))
    assert place.wink("run", "suite.py")[0] == 3
    place.samples(9, *range(9))
    line = "12 stored samples are no longer in the dataset and are not counted"

    code, _, err = place.wink("run", "suite.py", "--resume", "--fail-under", "1", "-o", "rows.csv")

    assert (code, "10/10 passed" in err, line in err) == (0, True, True), err
    with (place.folder / "rows.csv").open() as file:
        rows = [row["sample_id"] for row in csv.DictReader(file)]
    assert rows == [f"s{n}" for n in (9, *range(9))]
    assert line in place.wink("show")[1]
    assert "10 of 10 rows" in place.wink("show")[1]
    assert "10/10" in place.wink("list")[1]
    found: dict[str, Any] = json.loads(place.wink("show", "--format", "json")[1])
    assert (found["total"], found["planned"], found["not_counted"]) == (10, 10, 12)
    assert place.wink("report", "-o", "page.html")[0] == 0
    assert line in (place.folder / "page.html").read_text()
    code, _, err = place.wink("show", "latest", "s20")
    assert code == 2
    assert "it is stored, but no longer in the dataset" in err
    program = (
        "from suite import suite; from weakincentives.evals import RunStore; "
        "store = RunStore('.wink/runs.db'); report = suite.run(store=store, resume='latest'); "
        "print(report.passed, report.total, store.run('latest').total)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place.folder, capture_output=True, text=True
    )
    assert done.stdout == "10 10 10\n", done.stderr


def test_a_second_command_is_refused_and_a_killed_one_is_gone_on_with(place: Place) -> None:
    place.samples(*range(4))
    (place.folder / "halt").touch()
    store = place.folder / ".wink" / "runs.db"
    first = subprocess.Popen(
        place.command("run", "suite.py"),
        cwd=place.folder,
        env=plain_environment(),
        stderr=subprocess.DEVNULL,
    )

    def status() -> str:
        if not store.exists():
            return ""
        with RunStore(store) as opened:
            return next((record.status for record in opened.runs()), "")

    until(lambda: status() == "running")
    code, _, err = place.wink("resume")
    assert code == 2
    assert f"which belongs to process {first.pid} on " in err
    assert "Traceback" not in err

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert "interrupted" in place.wink("list")[1] + place.wink("list")[2]
    assert "ended before the run did" in place.wink("show")[1]
    (place.folder / "halt").unlink()
    code, _, err = place.wink("resume")
    assert (code, "4/4 passed" in err) == (0, True), err
