"""WINK: `stream` with a run store, which holds no results in memory.

Over HTTP the model is `http/m` (our own client) or, as variant `sdk`, `openai/m`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

from harness import MODEL, Clock, Job, answer_or_interrupt, expected, question, run, stop_at

from weakincentives.evals import EvalConfig, Sample, exact_match, open_store, stream
from weakincentives.rollouts import Endpoint

RUN = "bench"


def samples(count: int) -> Iterator[Sample[str, str]]:
    return (Sample(str(each), question(each), expected(each)) for each in range(count))


async def evaluate(job: Job, config: EvalConfig, **options: Any) -> dict[str, Any]:
    passed = errors = 0
    with open_store(job.path / "runs.db") as store:
        results = stream(samples(job.count), config, exact_match, store=store, **options)
        async for result in results:
            passed += result.passed
            errors += result.error is not None
    return {"passed": passed, "errors": errors}


def in_process(job: Job, clock: Clock) -> dict[str, Any]:
    config = EvalConfig(max_concurrent=job.concurrency)
    with clock:
        return asyncio.run(evaluate(job, config, agent=answer_or_interrupt, run_id=RUN))


def http(job: Job, clock: Clock) -> dict[str, Any]:
    os.environ["OPENAI_API_KEY"] = "none"
    if job.variant == "sdk":
        import openai  # noqa: F401 - its import is measured by itself
    provider = "openai" if job.variant == "sdk" else "http"
    endpoint = Endpoint(f"{provider}/{MODEL}", base_url=job.url)
    config = EvalConfig(max_concurrent=job.concurrency, endpoint=endpoint)
    with clock:
        return asyncio.run(evaluate(job, config))


def load(job: Job, clock: Clock) -> dict[str, Any]:
    with clock, open_store(job.path / "runs.db") as store:
        report = store.report("latest")
        passed = sum(result.passed for result in report.results)
        _ = str(report)
    return {"passed": passed, "errors": 0}


def interrupt(job: Job, clock: Clock) -> dict[str, Any]:
    with stop_at(job.done), contextlib.suppress(KeyboardInterrupt):
        in_process(job, clock)
    return {}


def resume(job: Job, clock: Clock) -> dict[str, Any]:
    config = EvalConfig(max_concurrent=job.concurrency)
    with clock:
        return asyncio.run(evaluate(job, config, agent=answer_or_interrupt, resume=RUN))


if __name__ == "__main__":
    run(
        {
            "in_process": in_process,
            "http": http,
            "store": in_process,
            "load": load,
            "interrupt": interrupt,
            "resume": resume,
        },
        {},
    )
