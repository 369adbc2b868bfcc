"""`wink worker` with an agent that ends its worker: reported in a line, counted, given up."""

from __future__ import annotations

import os
import signal

import pytest

from tests.cli.deployments import Place, place
from tests.processes import PATIENCE, until

__all__ = ["place"]

LIMIT = 5  # deliveries, without --max-deliveries
EXITS = "asyncio.get_running_loop().call_soon(sys.exit)"
HARM = {
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
        {harm}
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


def worker(place: Place, harm: str, *words: str, agent: str = "agent") -> tuple[str, ...]:
    (place.folder / "harm.py").write_text(AGENT.format(harm=harm))
    how = ("--timeout", "0", "--shutdown-timeout", "0.1", "--lease", "1")
    return ("worker", "eval", "--agent", f"harm.py:{agent}", *how, *words)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_worker_that_ends_without_being_stopped_fails_and_reports_why(place: Place) -> None:
    place.write(*({} for _ in range(3)))
    place.submit()

    code, _, said = place.wink(*worker(place, EXITS))

    assert code == 1
    assert "wink worker: the worker ended because a callback" in said


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("harm", HARM)
def test_a_sample_that_ends_its_workers_becomes_an_error_row(place: Place, harm: str) -> None:
    place.write(*({} for _ in range(4)))
    run_id = place.submit()

    workers = place.start(*worker(place, HARM[harm], "-n", "2", "-j", "1", "--drain"))
    _, said = workers.communicate(timeout=PATIENCE)

    assert workers.returncode == 0, said
    assert place.wink("eval", "collect", run_id)[0] == 3
    errors = [result.sample_id for result in place.report(run_id).results if result.error]
    assert (errors, place.report(run_id).total) == (["1"], 4)
    assert place.calls()["1"] <= LIMIT


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_an_agent_that_ignores_its_cancellation_cannot_block_its_worker(place: Place) -> None:
    place.write({})
    place.submit()
    process = place.start(*worker(place, "pass", agent="stubborn"))
    until(lambda: place.calls().total() == 1)

    os.kill(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode in (0, 1), said
