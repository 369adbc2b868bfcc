"""A run that is traced beside one that is not, in turns. `python -m bench tracing [samples]`.

Ten samples at once wait 20 ms each, and then 100 ms: up to 500 samples a second, and up to 100. The
receiver is a process of its own, so that only what we do is measured.
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

SLOWER = 1.03  # bar: a run traced to LangSmith, to the same one untraced
TURNS = 7
PAUSES = (0.02, 0.1)  # seconds a sample takes
SERVER = """
import sys
from weakincentives.testing import Fault, LangSmithServer, OtlpReceiver

mood = sys.argv[1]
hang = Fault("hang") if mood == "hangs" else None
with OtlpReceiver() if mood == "otlp" else LangSmithServer(faults=lambda *_: hang) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def receiving(mood: str) -> Iterator[str]:
    if mood == "away":
        yield "http://127.0.0.1:9"  # the port of `discard`, where nobody listens
        return
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SERVER, mood]
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
    """The median of the ratios of neighbours: whatever else the machine does comes to both."""
    ratios = []
    for _ in range(TURNS + 1):
        bare = seconds(pause, count)
        with tracing():
            ratios.append(seconds(pause, count) / bare)
    return median(ratios[1:])  # the first imports


def measure(count: int) -> dict[str, float]:
    """By receiver and its mood: how many times as long a traced run takes."""
    figures = {}
    for pause in PAUSES:
        size = (pause, round(count * PAUSES[0] / pause))  # runs of the same length
        for mood in ("answers", "hangs", "away"):
            with receiving(mood) as url:
                to = partial(configure_wink, "bench", api_url=url, api_key="k", flush_timeout=0.1)
                figures[f"LangSmith {mood}, {pause * 1000:g} ms"] = ratio(*size, to)
        with receiving("otlp") as url:
            to_otlp = partial(configure_otel, endpoint=url)
            figures[f"OpenTelemetry, {pause * 1000:g} ms"] = ratio(*size, to_otlp)
    return figures


def run(count: int, slack: float = 1.0) -> int:
    """Print the figures; how many missed their bar, whose distance to 1 is times `slack`."""
    print("Traced runs, ten samples at once, to the same untraced\n")
    missed = 0
    for name, value in measure(count).items():
        bar = 1 + (SLOWER - 1) * slack if name.startswith("LangSmith") else None
        mark = "  missed" if bar is not None and value > bar else ""
        missed += bool(mark)
        rule = "" if bar is None else f"  at most {bar:.2f} x"
        print(f"{name:<42}{value:>7.3f} x{rule}{mark}")
    print()
    return missed
