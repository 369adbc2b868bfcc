"""The engine with its store on, beside bare loops and what is ideal. `python -m bench engine`.

Each figure is CPU time where the work is ours, and wall time where waiting is the point.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio

from weakincentives.evals import EvalConfig, Sample, exact_match, open_store, stream
from weakincentives.internal.garbage import collect_less_often

from .http import serving

__all__ = ["run"]

ZERO = 100.0  # µs a sample beyond a bare loop, with every row on disk
GROWTH = 40.0  # MB of memory that 100,000 samples may take beyond 1,000
IDEAL = 0.90  # of the ideal rate, with an agent that only waits
HTTP, SDK, WAITING = 2.5, 1.15, 1.15
TURNS, FEW_TURNS = 5, 2
WHOLE = 2_000  # samples; with fewer, the bars have slack, and fewer turns are enough


def samples(count: int) -> Iterator[Sample[str, str]]:
    return (Sample(str(number), f"question {number}", "yes") for number in range(count))


async def instant(question: str) -> str:
    return "yes"


async def slow(question: str) -> str:
    await anyio.sleep(0.1)
    return "yes"


async def evaluated(agent: Any, count: int, at_once: int, folder: str, **more: Any) -> int:
    """Stream the results of a run, as a user would; return how many samples passed."""
    config = EvalConfig(max_concurrent=at_once, **more)
    passed = 0
    with open_store(Path(folder) / "runs.db") as store:
        options = {"agent": agent} if agent is not None else {}
        async for result in stream(samples(count), config, exact_match, store=store, **options):
            passed += result.passed
    return passed


def timed(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def in_folder(call: Callable[..., Awaitable[Any]], *args: Any, **more: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        passed = anyio.run(lambda: call(*args, folder, **more))
    assert passed is None or passed == args[1], (passed, args)


def zero_latency(count: int) -> float:
    """Return the overhead in µs per sample over a loop that only calls and compares."""

    async def bare() -> None:
        for sample in samples(count):
            assert await instant(sample.input) == sample.expected

    ours = min(
        timed(lambda: in_folder(evaluated, instant, count, 10), time.process_time) for _ in range(3)
    )
    floor = timed(lambda: anyio.run(bare), time.process_time)
    return (ours - floor) / count * 1e6


def growth(count: int) -> float:
    """Return how many MB more `count` samples take than 1,000, each in a separate process."""
    code = "from bench.engine import peak; import sys; print(peak(int(sys.argv[1])))"
    few, many = (
        float(subprocess.check_output([sys.executable, "-c", code, str(each)], text=True))
        for each in (1_000, count)
    )
    return many - few


def peak(count: int) -> float:
    in_folder(evaluated, instant, count, 10)
    return highest_memory()


def highest_memory() -> float:
    """Return the peak memory of this process in MB. `ru_maxrss` would include the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def waiting(count: int) -> float:
    """Return the share of the ideal rate that 500 concurrent samples of 100 ms reach."""
    ideal = count / 500 * 0.1
    return ideal / min(
        timed(lambda: in_folder(evaluated, slow, count, 500), time.perf_counter) for _ in range(2)
    )


# --- over HTTP -----------------------------------------------------------------------------------


async def by_aiohttp(url: str, count: int, at_once: int, folder: str) -> None:
    """Write the answers to a file, with a minimal hand-written loop."""
    import aiohttp

    remaining = samples(count)
    connector = aiohttp.TCPConnector(limit=at_once)
    with (Path(folder) / "results.jsonl").open("w") as file:
        async with aiohttp.ClientSession(connector=connector) as session:

            async def worker() -> None:
                for sample in remaining:
                    body = {"model": "m", "messages": [{"role": "user", "content": sample.input}]}
                    async with session.post(f"{url}/chat/completions", json=body) as response:
                        output = (await response.json())["choices"][0]["message"]["content"]
                    row = {"id": sample.id, "output": output, "passed": output == sample.expected}
                    file.write(json.dumps(row) + "\n")

            async with anyio.create_task_group() as group:
                for _ in range(at_once):
                    group.start_soon(worker)


async def by_sdk(url: str, count: int, at_once: int, folder: str) -> None:
    import httpx2
    import openai

    remaining = samples(count)
    limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    client = openai.DefaultAsyncHttpxClient(limits=limits)
    with (Path(folder) / "results.jsonl").open("w") as file:
        async with openai.AsyncOpenAI(base_url=url, api_key="k", http_client=client) as sdk:

            async def worker() -> None:
                for sample in remaining:
                    messages: Any = [{"role": "user", "content": sample.input}]
                    done = await sdk.chat.completions.create(model="m", messages=messages)
                    output = done.choices[0].message.content
                    row = {"id": sample.id, "output": output, "passed": output == sample.expected}
                    file.write(json.dumps(row) + "\n")

            async with anyio.create_task_group() as group:
                for _ in range(at_once):
                    group.start_soon(worker)


async def by_endpoint(name: str, url: str, count: int, at_once: int, folder: str) -> None:
    from weakincentives.rollouts import Endpoint

    endpoint = Endpoint(name, base_url=url)
    await evaluated(None, count, at_once, folder, endpoint=endpoint, timeout_per_sample_ms=60_000)


def over_http(count: int) -> dict[str, float]:
    """Return ratios to a bare loop on the same HTTP library, and to the ideal time."""
    os.environ["OPENAI_API_KEY"] = "k"
    clock = time.perf_counter

    def time_of(call: Any, *args: Any) -> float:
        return timed(lambda: in_folder(call, *args), clock)

    def ratio(name: str, bare: Any, url: str, calls: int) -> float:
        """Return the ratio of the best times. Both alternate, so other load affects both."""
        turns = [
            (time_of(by_endpoint, name, url, calls, 50), time_of(bare, url, calls, 50))
            for _ in range(TURNS if count >= WHOLE else FEW_TURNS)
        ]
        ours, theirs = zip(*turns, strict=True)
        return min(ours) / min(theirs)

    with serving(None, delay=0.0) as url:
        fast = ratio("http/m", by_aiohttp, url, count)
        # A slower client needs fewer calls for an equally stable figure.
        sdk = ratio("openai/m", by_sdk, url, count if count >= WHOLE else max(200, count // 3))
    with serving(None, delay=0.1) as url:
        ideal = count / 200 * 0.1
        late = min(time_of(by_endpoint, "http/m", url, count, 200) for _ in range(3)) / ideal
    return {"fast": fast, "sdk": sdk, "late": late}


# --- the command ---------------------------------------------------------------------------------


def helping() -> float:
    """Return the time of `wink --help` as a multiple of starting Python."""
    wink = Path(sys.executable).with_name("wink")

    def start(*command: str) -> float:
        return timed(
            lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL),
            time.perf_counter,
        )

    pairs = [(start(str(wink), "--help"), start(sys.executable, "-c", "pass")) for _ in range(15)]
    return min(ours for ours, _ in pairs) / min(floor for _, floor in pairs)


def run(count: int, slack: int = 1) -> int:
    """Print the figures; return how many missed their bar. `slack` is a factor on each bar."""
    print(f"Engine, store on, {count:,} samples\n")
    collect_less_often()  # as `wink` does; it applies to the bare loops, too
    http = over_http(min(count, WHOLE))
    figures = [
        ("no latency, beyond a bare loop", zero_latency(count), "µs", ZERO, False),
        ("memory beyond that of 1,000 samples", growth(count), "MB", GROWTH, False),
        ("100 ms, 500 at once, of the ideal", waiting(min(count, 20_000)), "", IDEAL, True),
        ("HTTP 0 ms, 50 at once / bare aiohttp", http["fast"], "x", HTTP, False),
        ("HTTP 0 ms, 50 at once, SDK / bare SDK", http["sdk"], "x", SDK, False),
        ("HTTP 100 ms, 200 at once / ideal", http["late"], "x", WAITING, False),
        ("wink --help / python -c pass", helping(), "x", 3.0, False),
    ]
    missed = 0
    for name, value, unit, bar, at_least in figures:
        wrong = value * slack < bar if at_least else value > bar * slack
        missed += wrong
        rule = "at least" if at_least else "at most"
        mark = "  missed" if wrong else ""
        print(f"{name:<42}{value:>9.2f} {unit:<3}{rule:>9} {bar:g} {unit}{mark}")
    print()
    return missed
