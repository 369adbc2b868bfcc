"""DeepEval: the application answers first, then `evaluate` scores the test cases.

As its documentation shows: outputs are collected by a loop of the user's (here as concurrent as for
the others), test cases are built from them, and `ExactMatchMetric` scores them. Telemetry,
the cache, the progress display and the printed table are off; results go to a folder as JSON.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from harness import Clock, Job, answer_or_interrupt, expected, job, question, run
from sdk import import_sdk, sdk_client

os.environ |= {"DEEPEVAL_TELEMETRY_OPT_OUT": "1", "DEEPEVAL_NO_INSPECT_PROMPT": "1"}
job().path.mkdir(parents=True, exist_ok=True)
os.chdir(job().path)  # it writes to `.deepeval` in the working directory

from deepeval import evaluate  # noqa: E402 - reads the environment
from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig  # noqa: E402
from deepeval.metrics import ExactMatchMetric  # noqa: E402
from deepeval.test_case import LLMTestCase  # noqa: E402
from deepeval.test_run.test_run import TestRun  # noqa: E402


async def outputs(job: Job, ask: Callable[[str], Awaitable[str]]) -> list[str]:
    """Ask all questions, with the concurrency of the job."""
    answers = [""] * job.count
    todo = iter(range(job.count))

    async def worker() -> None:
        for index in todo:
            answers[index] = await ask(question(index))

    async with asyncio.TaskGroup() as group:
        for _ in range(job.concurrency):
            group.create_task(worker())
    return answers


def evaluated(job: Job, answers: list[str], folder: str | None) -> dict[str, Any]:
    cases = [
        LLMTestCase(
            name=str(each),
            input=question(each),
            actual_output=answers[each],
            expected_output=expected(each),
        )
        for each in range(job.count)
    ]
    result = evaluate(
        cases,
        [ExactMatchMetric()],
        async_config=AsyncConfig(max_concurrent=job.concurrency),
        display_config=DisplayConfig(
            show_indicator=False,
            print_results=False,
            results_folder=folder,
            inspect_after_run=False,
        ),
        cache_config=CacheConfig(write_cache=False, use_cache=False),
        error_config=ErrorConfig(ignore_errors=True),
    )
    return {
        "passed": sum(bool(each.success) for each in result.test_results),
        "errors": job.count - len(result.test_results),
    }


def in_process(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        return evaluated(job, asyncio.run(outputs(job, answer_or_interrupt)), "results")


async def over_http(job: Job) -> list[str]:
    async with sdk_client(job.url) as ask:
        return await outputs(job, ask)


def http(job: Job, clock: Clock) -> dict[str, Any]:
    import_sdk()
    with clock:
        return evaluated(job, asyncio.run(over_http(job)), "results")


def load(job: Job, clock: Clock) -> dict[str, Any]:
    path = next((job.path / "results").rglob("test_run_*.json"))
    with clock, path.open() as file:
        done = TestRun.load(file)
        passed = sum(bool(each.success) for each in done.test_cases)
    return {"passed": passed, "errors": 0}


if __name__ == "__main__":
    late = "stores results when all are done"
    run(
        {"in_process": in_process, "http": http, "store": in_process, "load": load},
        {"interrupt": late, "resume": late},
    )
