"""A killed run: its status in the list, what resume runs, and what happens if the code changed."""

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


def start_and_wait_for_half(shell: Shell) -> subprocess.Popen[str]:
    """Start the run, and wait until half of it is stored."""
    process = shell.start_wink("eval", "run", "numbers_eval.py")
    until(lambda: len(shell.lines("calls")) == HALF and listed(shell).get("total") == HALF)
    return process


def listed(shell: Shell) -> dict[str, object]:
    """Return the only run as `wink eval list` has it; nothing if it is not stored yet."""
    records = shell.wink("eval", "list", "--format", "json").json
    return records[0] if records else {}


def let_it_finish(shell: Shell) -> None:
    (shell.folder / "go").touch()


def test_a_killed_run_is_interrupted_and_resume_runs_only_missing_samples(shell: Shell) -> None:
    shell.kill(start_and_wait_for_half(shell))
    before = shell.wink("eval", "list").text
    let_it_finish(shell)
    resumed = shell.wink("eval", "resume").text

    assert "! interrupted" in before
    assert f"{HALF} of {SAMPLES} are stored" in resumed
    assert f"{SAMPLES}/{SAMPLES} passed, 0 errors" in resumed
    assert sorted(map(int, shell.lines("calls"))) == [*range(SAMPLES)]  # each of them once
    assert listed(shell)["status"] == "complete"


def test_resume_refuses_a_changed_helper(shell: Shell) -> None:
    shell.kill(start_and_wait_for_half(shell))
    shell.write(helper_py=HELPER.replace("briefly", "at length"))
    let_it_finish(shell)
    refused = shell.wink("eval", "resume", code=2).err

    assert "helper.py changed" in refused
    assert "--force" in refused
    assert len(shell.lines("calls")) == HALF


def test_force_resumes_with_a_changed_helper_and_marks_the_rows(shell: Shell) -> None:
    shell.kill(start_and_wait_for_half(shell))
    shell.write(helper_py=HELPER.replace("briefly", "at length"))
    let_it_finish(shell)
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


def agent_of(text: str) -> str:
    """Return the version of the agent in the first line of a sample."""
    return text.partition(", agent ")[2][:12]


def test_a_changed_comment_does_not_change_the_agent(shell: Shell) -> None:
    shell.kill(start_and_wait_for_half(shell))
    shell.write(helper_py=f"# As the style guide wants it.\n{HELPER}")
    let_it_finish(shell)

    assert f"{SAMPLES}/{SAMPLES} passed" in shell.wink("eval", "resume").text


def test_resuming_a_running_run_is_refused(shell: Shell) -> None:
    process = start_and_wait_for_half(shell)
    refused = shell.wink("eval", "resume", code=2).err
    let_it_finish(shell)
    shell.end(process)

    assert f"process {process.pid}" in refused
    assert len(shell.lines("calls")) == SAMPLES
