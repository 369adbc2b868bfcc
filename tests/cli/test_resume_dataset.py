"""A run resumed with a changed dataset is judged by that dataset, on the command line too."""

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
from tests.view.files import answers_in
from weakincentives.evals import open_store

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


class Project:
    """A folder with a suite that loads its dataset from a file."""

    def __init__(self, folder: Path) -> None:
        (folder / "suite.py").write_text(SUITE)
        self.folder = folder

    def write_samples(self, *numbers: int) -> None:
        (self.folder / "numbers.txt").write_text(" ".join(map(str, numbers)))

    def command(self, *args: str) -> list[str]:
        return [str(WINK), "eval", *args]

    def wink(self, *args: str) -> tuple[int, str, str]:
        done = run_wink("eval", *args, cwd=self.folder, env=plain_environment())
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_samples_removed_from_the_dataset_are_not_counted_or_exported(project: Project) -> None:
    project.write_samples(*range(22))
    assert project.wink("run", "suite.py")[0] == 3
    project.write_samples(9, *range(9))
    line = "12 stored samples are no longer in the dataset and are not counted"

    code, _, err = project.wink(
        "run", "suite.py", "--resume", "--fail-under", "1", "-o", "rows.csv"
    )

    assert (code, "10/10 passed" in err, line in err) == (0, True, True), err
    with (project.folder / "rows.csv").open() as file:
        rows = [row["sample_id"] for row in csv.DictReader(file)]
    assert rows == [f"s{n}" for n in (9, *range(9))]
    assert line in project.wink("show")[1]
    assert "10 of 10 rows" in project.wink("show")[1]
    assert "10/10" in project.wink("list")[1]
    data: dict[str, Any] = json.loads(project.wink("show", "--format", "json")[1])
    assert (data["total"], data["planned"], data["not_counted"]) == (10, 10, 12)
    assert project.wink("report", "-o", "page.html")[0] == 0
    assert line in str(answers_in(project.folder / "page.html"))
    code, _, err = project.wink("show", "latest", "s20")
    assert code == 2
    assert "it is stored, but no longer in the dataset" in err
    program = (
        "from suite import suite; from weakincentives.evals import open_store; "
        "store = open_store('.wink/runs.db'); report = suite.run(store=store, resume='latest'); "
        "print(report.passed, report.total, store.run('latest').total)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project.folder, capture_output=True, text=True
    )
    assert done.stdout == "10 10 10\n", done.stderr


def test_a_running_run_cannot_be_resumed_but_a_killed_one_can(project: Project) -> None:
    project.write_samples(*range(4))
    (project.folder / "halt").touch()
    store = project.folder / ".wink" / "runs.db"
    first = subprocess.Popen(
        project.command("run", "suite.py"),
        cwd=project.folder,
        env=plain_environment(),
        stderr=subprocess.DEVNULL,
    )

    def status() -> str:
        if not store.exists():
            return ""
        with open_store(store) as opened:
            return next((record.status for record in opened.runs()), "")

    until(lambda: status() == "running")
    code, _, err = project.wink("resume")
    assert code == 2
    assert f"which belongs to process {first.pid} on " in err
    assert "Traceback" not in err

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert "interrupted" in project.wink("list")[1] + project.wink("list")[2]
    assert "ended before the run did" in project.wink("show")[1]
    (project.folder / "halt").unlink()
    code, _, err = project.wink("resume")
    assert (code, "4/4 passed" in err) == (0, True), err
