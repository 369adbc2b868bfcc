"""The overhead of tracing is small, whatever the state of the LangSmith server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from tests.contrib.langsmith_fixtures import closed_port
from tests.processes import TIMEOUT
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
def server(state: str) -> Iterator[str]:
    """Start a server in its own process, so that its work does not count as overhead of tracing."""
    if state == "unreachable":
        with closed_port() as url:
            yield url
        return
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER, state], **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def milliseconds_per_sample() -> float:
    """Return the CPU time of this thread, which runs the samples, per sample."""

    async def agent(sample: Sample[str, str]) -> str:
        await anyio.sleep(0.005)
        return sample.expected

    suite = EvalSuite(agent, DATASET, exact_match, config=EvalConfig(max_concurrent=10))
    start = time.thread_time()
    report = suite.run()
    assert (report.passed, report.errors) == (200, 0)
    return (time.thread_time() - start) / 200 * 1000


@pytest.mark.parametrize("state", ["healthy", "hanging", "unreachable"])
def test_tracing_adds_little_time_to_a_sample(clean_langsmith: None, state: str) -> None:
    untraced, traced = [], []
    with server(state) as url:
        start = time.monotonic()
        for _ in range(3):
            untraced.append(milliseconds_per_sample())
            configure_wink("cost", api_url=url, flush_timeout=0.1)
            traced.append(milliseconds_per_sample())
            configure_wink(tracing_enabled=False)
        elapsed = time.monotonic() - start

    figure = f"{state}: {min(untraced):.3f} ms of work for a sample, traced {min(traced):.3f} ms"
    print(figure)  # noqa: T201
    assert min(traced) - min(untraced) < 0.5, figure  # ten times the usual difference
    assert elapsed < TIMEOUT  # waiting for one response would take ten minutes
