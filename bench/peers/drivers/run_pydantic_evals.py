"""pydantic-evals: `Dataset.evaluate` with `EqualsExpected`; the task calls the OpenAI SDK.

It stores nothing by itself. For `load`, the report is written as JSON with its own type adapter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from harness import Clock, Job, answer_or_interrupt, expected, question, run
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EqualsExpected
from pydantic_evals.reporting import EvaluationReport, EvaluationReportAdapter
from sdk import import_sdk, sdk_client


def passed(report: EvaluationReport[Any, Any, Any]) -> int:
    return sum(all(each.value for each in case.assertions.values()) for case in report.cases)


async def evaluate(job: Job, task: Callable[[str], Awaitable[str]]) -> Any:
    cases = [
        Case(name=str(each), inputs=question(each), expected_output=expected(each))
        for each in range(job.count)
    ]
    dataset = Dataset(name="bench", cases=cases, evaluators=[EqualsExpected()])
    return await dataset.evaluate(task, max_concurrency=job.concurrency, progress=False)


def figures(report: Any) -> dict[str, Any]:
    return {"passed": passed(report), "errors": len(report.failures)}


def in_process(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        report = asyncio.run(evaluate(job, answer_or_interrupt))
    return figures(report)


async def over_http(job: Job) -> Any:
    async with sdk_client(job.url) as ask:
        return await evaluate(job, ask)


def http(job: Job, clock: Clock) -> dict[str, Any]:
    import_sdk()
    with clock:
        report = asyncio.run(over_http(job))
    return figures(report)


def store(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        report = asyncio.run(evaluate(job, answer_or_interrupt))
        (job.path / "report.json").write_bytes(EvaluationReportAdapter.dump_json(report))
    return figures(report)


def load(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        data = (job.path / "report.json").read_bytes()
        report = EvaluationReportAdapter.validate_json(data)
        report.averages()
    return figures(report)


if __name__ == "__main__":
    run(
        {"in_process": in_process, "http": http, "store": store, "load": load},
        {"interrupt": "keeps results in memory", "resume": "keeps results in memory"},
    )
