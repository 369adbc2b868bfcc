"""An eval as a pytest test: twenty concurrent slow samples, a gate, and a run without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.shell import Output, Shell

pytestmark = pytest.mark.slow  # it starts processes

EVAL = """
import asyncio
import pytest
from weakincentives.evals import EvalConfig, Sample, contains

samples = [Sample(f"q{n}", f"question {n}", "yes") for n in range(20)]
config = EvalConfig(max_concurrent=CONCURRENT)
running, counts = 0, []


async def ask(question):
    global running
    running += 1
    counts.append(running)
    with open("counts.txt", "a") as file:
        print(running, file=file)
    while max(counts) < config.max_concurrent:  # the model answers once that many calls are waiting
        await asyncio.sleep(0.01)
    running -= 1
    if question == "question 7":
        raise ConnectionError("the model is down")
    return "no" if question in ("question 3", "question 5") else "yes"
"""
GATED = """
@pytest.mark.wink_eval(dataset=samples, evaluator=contains, fail_under=0.8, config=config)
async def test_answers(question):
    if question == "question 7":
        return "yes"
    return await ask(question)
"""
RECORDED = """
@pytest.mark.wink_eval(dataset=samples, evaluator=contains, record_only=True, config=config)
async def test_answers(question):
    return await ask(question)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(conftest_py='pytest_plugins = ["weakincentives.pytest_plugin"]\n')
    return shell


def run_pytest(shell: Shell, test: str, *args: str, code: int = 0, concurrent: int = 10) -> Output:
    shell.write(test_answers_py=EVAL.replace("CONCURRENT", str(concurrent)) + test)
    return shell.python("-m", "pytest", "-p", "no:cacheprovider", *args, code=code)


@pytest.mark.parametrize("concurrent", [1, 10])
def test_the_config_sets_how_many_samples_run_concurrently(shell: Shell, concurrent: int) -> None:
    run_pytest(shell, GATED, concurrent=concurrent)

    counts = [*map(int, shell.lines("counts.txt"))]
    assert (len(counts), max(counts)) == (19, concurrent)


def test_the_gate_is_a_separate_item(shell: Shell) -> None:
    passed = run_pytest(shell, GATED, "-v").text
    failed = run_pytest(shell, GATED.replace("0.8", "0.95"), code=1).text

    assert "test_answers[q0] PASSED" in passed
    assert "test_answers[q3] MISSED (0)" in passed
    assert "test_answers[fail_under=0.8] PASSED" in passed
    assert "18/20 passed" in failed
    assert "fail_under=0.95" in failed
    assert "contains: got 'no', expected it to contain 'yes'" in failed


def test_a_stricter_gate_on_other_samples_is_still_the_same_agent(shell: Shell) -> None:
    for gate, end in (("0.8", "[:]"), ("0.7", "[:19]")):
        run_pytest(
            shell, GATED.replace("0.8", gate).replace("dataset=samples", f"dataset=samples{end}")
        )
    later, earlier = shell.wink("eval", "list", "--format", "json").json

    assert (earlier["total"], later["total"]) == (20, 19)
    assert later["agent_version"] == earlier["agent_version"]


def test_a_run_without_a_gate_fails_no_test(shell: Shell) -> None:
    printed = run_pytest(shell, RECORDED).text
    output = shell.wink("eval", "show").text

    assert "17 passed, 3 missed" in printed
    assert "q7: error: ConnectionError: the model is down" in printed
    assert "17/20 passed, 1 error" in output
    assert "ConnectionError" in output
