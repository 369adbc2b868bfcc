"""`wink worker` with an agent that ends its worker: one line, a counted delivery, a limit."""

from __future__ import annotations

import os
import signal

import pytest

from tests.cli.deployments import Deployment, deployment
from tests.processes import TIMEOUT, until

__all__ = ["deployment"]  # a fixture

LIMIT = 5  # deliveries, without --max-deliveries
EXIT_IN_CALLBACK = "asyncio.get_running_loop().call_soon(sys.exit)"
WAYS_TO_END = {
    "the process": "os._exit(0)",
    "a signal": "os.kill(os.getpid(), signal.SIGTERM)",
}
AGENT = """
import asyncio, os, signal, sys
from qa import CALLS
from weakincentives.evals import Sample

async def agent(sample: Sample):
    os.write(CALLS, f"{{sample.id}}\\n".encode())
    if sample.id == "1":
        {code}
        await asyncio.sleep(3600)
    return sample.expected

async def stubborn(sample: Sample):
    os.write(CALLS, f"{{sample.id}}\\n".encode())
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""


def worker(deployment: Deployment, code: str, *args: str, agent: str = "agent") -> tuple[str, ...]:
    (deployment.folder / "ending.py").write_text(AGENT.format(code=code))
    options = ("--timeout", "0", "--shutdown-timeout", "0.1", "--lease", "1")
    return ("worker", "eval", "--agent", f"ending.py:{agent}", *options, *args)


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_a_worker_that_ends_without_being_stopped_fails_and_reports_why(
    deployment: Deployment,
) -> None:
    deployment.write(*({} for _ in range(3)))
    deployment.submit()

    code, _, stderr = deployment.wink(*worker(deployment, EXIT_IN_CALLBACK))

    assert code == 1
    assert "wink worker: the worker ended because a callback" in stderr


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
@pytest.mark.parametrize("way", WAYS_TO_END)
def test_a_sample_that_ends_its_workers_becomes_an_error_row(
    deployment: Deployment, way: str
) -> None:
    deployment.write(*({} for _ in range(4)))
    run_id = deployment.submit()

    workers = deployment.start(
        *worker(deployment, WAYS_TO_END[way], "-n", "2", "-j", "1", "--drain")
    )
    _, stderr = workers.communicate(timeout=TIMEOUT)

    assert workers.returncode == 0, stderr
    assert deployment.wink("eval", "collect", run_id)[0] == 3
    errors = [result.sample_id for result in deployment.report(run_id).results if result.error]
    assert (errors, deployment.report(run_id).total) == (["1"], 4)
    assert deployment.calls()["1"] <= LIMIT


@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
def test_an_agent_that_ignores_its_cancellation_cannot_block_its_worker(
    deployment: Deployment,
) -> None:
    deployment.write({})
    deployment.submit()
    process = deployment.start(*worker(deployment, "pass", agent="stubborn"))
    until(lambda: deployment.calls().total() == 1)

    os.kill(process.pid, signal.SIGTERM)
    _, stderr = process.communicate(timeout=TIMEOUT)

    assert process.returncode in (0, 1), stderr
