"""A run that is killed: what the list says, what resume runs, and what happens if code changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.processes import until
from tests.stories.shell import Shell

SAMPLES, HALF = 40, 20
HELPER = """
SYSTEM = "Answer briefly."


def reply(number):
    return f"{SYSTEM} {number}"
"""
# The second half waits for the file `go`, so that a run can be killed in its middle.
EVAL = """
import asyncio
from pathlib import Path
from helper import reply
from weakincentives.evals import Dataset, EvalSuite, Sample, contains


async def agent(number: int) -> str:
    while number >= HALF and not Path("go").exists():
        await asyncio.sleep(0.01)
    with Path("calls").open("a") as calls:
        calls.write(f"{number}\\n")
    return reply(number)


dataset = Dataset([Sample(f"q{n}", n, str(n)) for n in range(SAMPLES)], name="numbers")
suite = EvalSuite(agent, dataset, contains)
""".replace("SAMPLES", str(SAMPLES)).replace("HALF", str(HALF))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(helper_py=HELPER, numbers_eval_py=EVAL)
    return shell


def start_half(shell: Shell) -> subprocess.Popen[str]:
    """Start the run, and wait until half of it is stored."""
    process = shell.start_wink("eval", "run", "numbers_eval.py")
    until(lambda: len(shell.lines("calls")) == HALF and listed(shell).get("total") == HALF)
    return process


def listed(shell: Shell) -> dict[str, object]:
    """Return the only run as `wink eval list` has it; nothing if it is not stored yet."""
    records = shell.wink("eval", "list", "--format", "json").json
    return records[0] if records else {}


def go_on(shell: Shell) -> None:
    (shell.folder / "go").touch()


def test_a_killed_run_is_interrupted_and_resume_runs_only_the_rest(shell: Shell) -> None:
    shell.kill(start_half(shell))
    before = shell.wink("eval", "list").text
    go_on(shell)
    resumed = shell.wink("eval", "resume").text

    assert "! interrupted" in before
    assert f"{HALF} of {SAMPLES} are stored" in resumed
    assert f"{SAMPLES}/{SAMPLES} passed, 0 errors" in resumed
    assert sorted(map(int, shell.lines("calls"))) == [*range(SAMPLES)]  # none of them twice
    assert listed(shell)["status"] == "complete"


def test_a_changed_helper_is_named_and_refused(shell: Shell) -> None:
    shell.kill(start_half(shell))
    shell.write(helper_py=HELPER.replace("briefly", "at length"))
    go_on(shell)
    refused = shell.wink("eval", "resume", code=2).err

    assert "helper.py changed" in refused
    assert "--force" in refused
    assert len(shell.lines("calls")) == HALF


def test_with_force_it_goes_on_and_the_rows_are_marked(shell: Shell) -> None:
    shell.kill(start_half(shell))
    shell.write(helper_py=HELPER.replace("briefly", "at length"))
    go_on(shell)
    resumed = shell.wink("eval", "resume", "--force").text
    exported = shell.wink("eval", "export", "--format", "jsonl").out.splitlines()

    assert "mixes 2 versions of the agent" in resumed
    assert "mixes 2 versions of the agent" in shell.wink("eval", "show").text
    assert len(shell.lines("calls")) == SAMPLES
    assert sum("Answer at length." in line for line in exported) == SAMPLES - HALF
    versions = {line.split('"agent_version":"')[1][:12] for line in exported}
    assert len(versions) == 2
    agents = [agent_of(shell.wink("eval", "show", "latest", name).out) for name in ("q0", "q39")]
    assert set(agents) == versions


def agent_of(shown: str) -> str:
    """Return the version of the agent in the first line of a sample."""
    return shown.partition(", agent ")[2][:12]


def test_a_comment_is_no_change(shell: Shell) -> None:
    shell.kill(start_half(shell))
    shell.write(helper_py=f"# As the style guide wants it.\n{HELPER}")
    go_on(shell)

    assert f"{SAMPLES}/{SAMPLES} passed" in shell.wink("eval", "resume").text


def test_a_second_resume_of_a_run_that_is_running_is_refused(shell: Shell) -> None:
    process = start_half(shell)
    refused = shell.wink("eval", "resume", code=2).err
    go_on(shell)
    shell.end(process)

    assert f"process {process.pid}" in refused
    assert len(shell.lines("calls")) == SAMPLES
