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

from weakincentives.contrib.langsmith import configure_wink
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample
from weakincentives.testing import LangSmithServer

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
        with LangSmithServer() as gone:
            pass
        yield gone.url
        return
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER, mood], **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def seconds() -> tuple[float, float]:
    """How long 200 samples of 20 ms take, ten at once; and the whole run, with its end."""
    starts, ends = [], []

    async def agent(sample: Sample[str, str]) -> str:
        starts.append(time.perf_counter())
        await anyio.sleep(0.02)
        return sample.expected

    def judge(output: str, expected: str) -> bool:
        ends.append(time.perf_counter())
        return output == expected

    begun = time.perf_counter()
    report = EvalSuite(agent, DATASET, judge, config=EvalConfig(max_concurrent=10)).run()
    assert (report.passed, report.errors) == (200, 0)
    return ends[-1] - starts[0], time.perf_counter() - begun


@pytest.mark.parametrize("mood", ["healthy", "hanging", "away"])
def test_a_run_is_as_fast_as_without_and_its_end_is_bounded(
    clean_langsmith: None, mood: str
) -> None:
    bare, traced, flush_timeout = [], [], 0.1
    with server(mood) as url:
        for _ in range(12):  # until a busy machine was quiet for long enough
            bare.append(seconds()[0])
            configure_wink("cost", api_url=url, flush_timeout=flush_timeout)
            took, whole = seconds()
            configure_wink(tracing_enabled=False)
            traced.append(took)
            assert whole - took < flush_timeout + 2
            slower = min(traced) / min(bare) - 1
            if len(bare) > 2 and slower < 0.1:
                break
    print(f"{mood}: {slower:+.1%} (best of {len(bare)}: {min(bare):.3f} s)")  # noqa: T201
    assert slower < 0.1
