"""Benchmark traced runs against untraced ones, alternating. `python -m bench tracing [samples]`.

Ten concurrent samples take 20 ms each, then 100 ms: at most 500 and 100 samples per second. The
receiver is a separate process, so that only our own work is measured.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import anyio

from weakincentives.contrib.langsmith import configure_wink
from weakincentives.contrib.opentelemetry import configure_otel
from weakincentives.evals import Dataset, EvalConfig, EvalSuite, Sample, exact_match

__all__ = ["run"]

MAX_SLOWDOWN = 1.03  # bar: time of a run traced to LangSmith, to that of an untraced one
TURNS = 7
PAUSES = (0.02, 0.1)  # seconds per sample
SERVER = """
import sys
from weakincentives.testing import Fault, LangSmithServer, OtlpReceiver

behaviour = sys.argv[1]
hang = Fault("hang") if behaviour == "hangs" else None
with OtlpReceiver() if behaviour == "otlp" else LangSmithServer(faults=lambda *_: hang) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def receiving(behaviour: str) -> Iterator[str]:
    if behaviour == "unavailable":
        yield "http://127.0.0.1:9"  # the port of `discard`, which is closed
        return
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SERVER, behaviour]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate("")


def seconds(pause: float, count: int) -> float:
    async def agent(sample: Sample[str, str]) -> str:
        await anyio.sleep(pause)
        return sample.expected

    samples = [Sample(str(number), f"question {number}", "yes") for number in range(count)]
    config = EvalConfig(max_concurrent=10)
    suite = EvalSuite(agent, Dataset(samples, name="traced"), exact_match, config=config)
    start = time.perf_counter()
    assert suite.run().passed == count
    return time.perf_counter() - start


def ratio(pause: float, count: int, tracing: Callable[[], Any]) -> float:
    """Return the median ratio of traced to untraced runs; each pair runs back to back."""
    ratios = []
    for _ in range(TURNS + 1):
        bare = seconds(pause, count)
        with tracing():
            ratios.append(seconds(pause, count) / bare)
    return median(ratios[1:])  # the first pair also imports modules


def measure(count: int) -> dict[str, float]:
    """Return the slowdown of a traced run, by receiver and how it behaves."""
    figures = {}
    for pause in PAUSES:
        size = (pause, round(count * PAUSES[0] / pause))  # runs of the same length
        for behaviour in ("answers", "hangs", "unavailable"):
            with receiving(behaviour) as url:
                to = partial(configure_wink, "bench", api_url=url, api_key="k", flush_timeout=0.1)
                figures[f"LangSmith {behaviour}, {pause * 1000:g} ms"] = ratio(*size, to)
        with receiving("otlp") as url:
            to_otlp = partial(configure_otel, endpoint=url)
            figures[f"OpenTelemetry, {pause * 1000:g} ms"] = ratio(*size, to_otlp)
    return figures


def run(count: int, slack: float = 1.0) -> int:
    """Print the figures; return how many missed their bar. `slack` widens its distance to 1."""
    print("Traced runs / untraced runs, ten concurrent samples\n")
    missed = 0
    for name, value in measure(count).items():
        bar = 1 + (MAX_SLOWDOWN - 1) * slack if name.startswith("LangSmith") else None
        mark = "  missed" if bar is not None and value > bar else ""
        missed += bool(mark)
        rule = "" if bar is None else f"  at most {bar:.2f} x"
        print(f"{name:<42}{value:>7.3f} x{rule}{mark}")
    print()
    return missed
