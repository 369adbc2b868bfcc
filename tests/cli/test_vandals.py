"""Agents that close descriptors, fork or break the event loop: a verdict, or a code for none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import TIMEOUT, plain_environment, until

pytestmark = pytest.mark.usefixtures("folder")

WINK = str(Path(sys.executable).with_name("wink"))
SUITE = """
import asyncio, os, resource, sys
import anyio
from pathlib import Path
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

def no_task(loop, coroutine, **options):
    raise RuntimeError("no tasks here")

def fork(*_):
    child = os.fork()
    if child:
        Path("child.txt").write_text(str(child))

async def agent(sample: Sample):
    await anyio.sleep(0.001)
    if sample.id == "3":
        {code}
    return sample.expected

def blocking(sample: Sample):
    if sample.id == "3":
        {blocking}
    return sample.expected

samples = Dataset([Sample(str(i), i, "x") for i in range(10)], name="vandal")
suite = EvalSuite({agent}, samples, exact_match, config=EvalConfig(max_concurrent=2))
"""


def run(code: str, agent: str = "agent") -> subprocess.CompletedProcess[str]:
    blocking = "pass" if "await" in code else code
    Path("vandal.py").write_text(SUITE.format(code=code, blocking=blocking, agent=agent))
    command = [WINK, "eval", "run", "vandal.py", "--quiet", "--fail-under", "100%"]
    return subprocess.run(
        command, env=plain_environment(), capture_output=True, text=True, timeout=TIMEOUT
    )


PRINTED = {
    "closes the standard descriptors": "os.closerange(0, 3)",
    "closes the streams": "sys.stdout.close(); sys.stderr.close()",
    "closes the original streams": "sys.__stdout__.close(); sys.__stderr__.close()",
    "removes the streams": "sys.stdout = sys.stderr = None",
    "replaces a descriptor": "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)",
}


@pytest.mark.parametrize("agent", ["agent", "blocking"])
@pytest.mark.parametrize("what", PRINTED)
def test_the_verdict_is_printed_if_the_agent(what: str, agent: str) -> None:
    ran = run(PRINTED[what], agent)

    assert ran.returncode == 0, ran.stderr
    assert "10/10 passed" in ran.stderr


NO_VERDICT = {
    "closes our descriptors": "os.closerange(3, 64)",
    "closes all descriptors": "os.closerange(0, 4096)",
    "breaks the task factory": "asyncio.get_running_loop().set_task_factory(no_task)",
    "allows no more descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
}


@pytest.mark.parametrize("what", NO_VERDICT)
def test_there_is_an_exit_code_for_no_verdict_if_the_agent(what: str) -> None:
    ran = run(NO_VERDICT[what])

    assert ran.returncode in (2, 3), ran.stderr
    assert "wink: " in ran.stderr


@pytest.mark.parametrize("code", ["fork()", "fork(); await anyio.sleep(0.1)"])
def test_a_fork_that_returns_from_the_agent_is_ended(code: str) -> None:
    ran = run(code)

    assert (ran.returncode, "10/10 passed" in ran.stderr) == (0, True), ran.stderr
    assert "wink: a process that the agent or an evaluator forked returned" in ran.stderr
    assert_gone(int(Path("child.txt").read_text()))


def test_a_fork_that_returns_from_a_blocking_agent_is_ended() -> None:
    ran = run("fork()", "blocking")

    assert (ran.returncode, "10/10 passed" in ran.stderr) == (0, True), ran.stderr
    assert_gone(int(Path("child.txt").read_text()))


def assert_gone(pid: int) -> None:
    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    until(is_gone, 5)
