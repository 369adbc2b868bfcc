"""An eval in a Python script: its run is stored, can be interrupted with Ctrl-C, and resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.processes import until
from tests.stories.shell import Shell

# The second half waits for the file `go`, so that there is time for Ctrl-C.
SUITE = """
import asyncio
import sys
from pathlib import Path
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, contains, evaluate


async def agent(number: int) -> str:
    while number >= 5 and not Path("go").exists():
        await asyncio.sleep(0.01)
    with Path("calls").open("a") as calls:
        calls.write(f"{number}\\n")
    return f"the number {number}"


samples = [Sample(f"q{n}", n, str(n)) for n in range(10)]
suite = EvalSuite(agent, Dataset(samples, name="numbers"), contains, name="script")
"""
RUN = (
    SUITE
    + """
report = suite.run(resume=sys.argv[1] if len(sys.argv) > 1 else None)
print(report)
"""
)
EVALUATE = (
    SUITE
    + """
async def main():
    print(await evaluate(samples, EvalConfig(), contains, agent=agent))

asyncio.run(main())
"""
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(run_py=RUN, evaluate_py=EVALUATE)
    return shell


def test_a_run_is_stored_in_the_store_of_the_command_line(shell: Shell) -> None:
    (shell.folder / "go").touch()
    printed = shell.python("run.py")
    (record,) = shell.wink("eval", "list", "--format", "json").json

    assert printed.out.startswith("10/10 passed, 0 errors (100.0%, 95% interval")
    assert printed.err == ""  # no progress, because stderr is not a terminal
    assert (shell.folder / ".wink" / "runs.db").exists()
    assert (record["suite"], record["dataset"], record["passed"]) == ("script", "numbers", 10)


def test_ctrl_c_prints_how_to_resume_and_resuming_works(shell: Shell) -> None:
    process = shell.start_python("run.py")
    until(lambda: len(shell.lines("calls")) == 5 and (shell.folder / ".wink").exists())
    os.killpg(process.pid, signal.SIGINT)
    printed = shell.end(process, -signal.SIGINT)  # as shells expect it

    assert "Traceback" not in printed.err
    (line,) = printed.err.splitlines()
    assert "5 of 10" in line
    assert 'run(resume="' in line

    (shell.folder / "go").touch()
    run_id = line.split('resume="')[1].split('"')[0]
    assert shell.python("run.py", run_id).out.startswith("10/10 passed")
    assert sorted(map(int, shell.lines("calls"))) == [*range(10)]  # each of them once


def test_evaluate_stores_nothing_and_prints_nothing(shell: Shell) -> None:
    (shell.folder / "go").touch()
    printed = shell.python("evaluate.py")

    assert printed.out.startswith("10/10 passed, 0 errors")
    assert printed.err == ""
    assert not (shell.folder / ".wink").exists()
