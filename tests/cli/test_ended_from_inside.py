"""Agents and evaluators that cancel tasks or end the event loop: such a run is never complete."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.forked_wink import run_python, run_wink
from tests.processes import plain_environment
from weakincentives.evals import open_store

pytestmark = pytest.mark.usefixtures("folder")

SUITES = """
import asyncio
import sys

from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample

def later(call):
    asyncio.get_running_loop().call_soon(call)

def timer():
    later(asyncio.current_task().cancel)

def itself():
    asyncio.current_task().cancel()

def interrupt():
    raise KeyboardInterrupt

class Panic(BaseException):
    pass

def panic():
    raise Panic("called `Option::unwrap()` on a `None` value")

def generator_exit():
    raise GeneratorExit

def every_task():
    for task in asyncio.all_tasks():
        task.cancel()

def loop_stop():
    later(asyncio.get_running_loop().stop)

def exit_in_callback():
    later(sys.exit)

def nothing():
    pass

def suite(name, agent_does=nothing, evaluator_does=nothing):
    async def agent(number):
        if number == 10:
            agent_does()
            await asyncio.sleep(0.05)
        await asyncio.sleep(0)
        return "ok"

    async def evaluator(sample, output, *, context):
        if sample.input == 10:
            evaluator_does()
            await asyncio.sleep(0.05)
        return output == sample.expected

    samples = Dataset([Sample(str(number), number, "ok") for number in range(40)], name=name)
    return EvalSuite(agent, samples, evaluator, config=EvalConfig(max_concurrent=4), name=name)
"""


def write_suite(action: str, component: str) -> None:
    Path("suites.py").write_text(f"{SUITES}\nit = suite('it', {component}_does={action})\n")


def wink(*args: str) -> tuple[int, str, dict[str, Any]]:
    """Return the exit code, stderr, and the verdict as data."""
    command = ("eval", *args, "--format", "json")
    done = run_wink(*command, cwd=Path.cwd(), env=plain_environment())
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr, json.loads(done.stdout)["runs"][0] if done.stdout else {}


@pytest.mark.parametrize("component", ["agent", "evaluator"])
@pytest.mark.parametrize("action", ["timer", "itself", "panic", "generator_exit"])
def test_only_the_sample_that_cancels_its_task_is_an_error(action: str, component: str) -> None:
    write_suite(action, component)

    code, err, run = wink("run", "suites.py", "--fail-under", "1.0")

    assert code == 3, err
    assert (run["status"], run["total"], run["passed"], run["errors"]) == ("complete", 40, 39, 1)
    with open_store() as store:
        (bad,) = (each for each in store.report("latest").results if not each.success)
    assert (bad.sample_id, bad.error_source) == ("10", component)
    assert bad.error


@pytest.mark.parametrize("component", ["agent", "evaluator"])
@pytest.mark.parametrize("action", ["every_task", "loop_stop", "exit_in_callback"])
def test_ending_the_event_loop_is_an_error(action: str, component: str) -> None:
    write_suite(action, component)

    code, err, run = wink("run", "suites.py", "--fail-under", "0.1")

    assert code == 3, err
    assert run["status"] == "interrupted"
    assert run["total"] < 40
    assert f"{run['total']} of 40 are stored" in err

    baseline = ("eval", "baseline", "latest", "-o", "baseline.json")
    assert run_wink(*baseline, cwd=Path.cwd(), env=plain_environment()).returncode == 3


def test_a_keyboard_interrupt_in_an_agent_counts_as_ctrl_c() -> None:
    write_suite("interrupt", "agent")

    code, err, run = wink("run", "suites.py")

    assert code == 130, err
    assert run["status"] == "interrupted"


SCRIPT = f"""{SUITES}
import sys
from weakincentives.evals import open_store
from weakincentives.errors import RunIncompleteError

with open_store() as store:
    try:
        report = suite("it", agent_does=globals()[sys.argv[1]]).run(store=store)
    except RunIncompleteError as error:
        print("incomplete:", error)
    else:
        print(report)
    print(store.run("latest").status)
"""


@pytest.mark.parametrize(
    ("action", "verdict_start"),
    [
        ("timer", "39/40 passed, 1 error"),
        ("every_task", "incomplete: expected the run to reach its last sample, got "),
        ("loop_stop", "incomplete: expected the run to reach its last sample, got "),
    ],
)
def test_ending_the_event_loop_is_an_error_in_python_too(action: str, verdict_start: str) -> None:
    done = run_python(SCRIPT, action, cwd=Path.cwd(), env=dict(os.environ))

    verdict, status = done.stdout.splitlines()
    assert verdict.startswith(verdict_start), done.stderr
    assert status == ("complete" if action == "timer" else "interrupted")
