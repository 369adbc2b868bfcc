"""What tracing costs: next to nothing, whatever LangSmith is doing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from tests.contrib.langsmith_sent import nobody
from tests.processes import PATIENCE
from weakincentives.contrib.langsmith import configure_wink
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

DATASET = Dataset([Sample(str(n), f"q{n}", f"{n}") for n in range(200)], name="many")
SERVER = """
import sys
from weakincentives.testing import Fault, LangSmithServer

hang = Fault("hang") if sys.argv[1] == "hanging" else None
with LangSmithServer(faults=lambda method, path: hang) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def server(mood: str) -> Iterator[str]:
    """In a process of its own: what it takes to be a server is not what it takes to trace."""
    if mood == "away":
        with nobody() as url:
            yield url
        return
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER, mood], **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def milliseconds() -> float:
    """What this thread, which runs the samples, works for each of them; however busy others are."""

    async def agent(sample: Sample[str, str]) -> str:
        await anyio.sleep(0.005)
        return sample.expected

    suite = EvalSuite(agent, DATASET, exact_match, config=EvalConfig(max_concurrent=10))
    begun = time.thread_time()
    report = suite.run()
    assert (report.passed, report.errors) == (200, 0)
    return (time.thread_time() - begun) / 200 * 1000


@pytest.mark.parametrize("mood", ["healthy", "hanging", "away"])
def test_no_sample_waits_and_each_costs_next_to_nothing(clean_langsmith: None, mood: str) -> None:
    bare, traced = [], []
    with server(mood) as url:
        begun = time.monotonic()
        for _ in range(3):
            bare.append(milliseconds())
            configure_wink("cost", api_url=url, flush_timeout=0.1)
            traced.append(milliseconds())
            configure_wink(tracing_enabled=False)
        took = time.monotonic() - begun

    figure = f"{mood}: {min(bare):.3f} ms of work for a sample, traced {min(traced):.3f} ms"
    print(figure)  # noqa: T201
    assert min(traced) - min(bare) < 0.5, figure  # ten times what it is
    assert took < PATIENCE  # where one answer that hangs is waited for ten minutes
