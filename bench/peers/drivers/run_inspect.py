"""Inspect AI: `eval` with a task, `.eval` logs, and `eval_retry` to resume.

Without display, realtime log or recorded model calls, which its documentation names as what costs
most. In process a solver answers without a model; over HTTP `generate()` asks its provider
`openai`, with as many connections as samples in flight.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from harness import MODEL, Clock, Job, answer_or_interrupt, expected, job, question, run, stop_at

requested = job()
requested.path.mkdir(parents=True, exist_ok=True)
os.chdir(requested.path)
os.environ |= {
    "OPENAI_API_KEY": "none",
    "INSPECT_LOG_DIR": str(requested.path / "logs"),
    "XDG_DATA_HOME": str(requested.path / "data"),  # its buffer and trace files
    "XDG_CACHE_HOME": str(requested.path / "cache"),
}

from inspect_ai import Task, eval, eval_retry, task  # noqa: E402 - reads the environment
from inspect_ai.dataset import MemoryDataset, Sample  # noqa: E402
from inspect_ai.log import list_eval_logs, read_eval_log  # noqa: E402
from inspect_ai.model import ModelOutput  # noqa: E402
from inspect_ai.scorer import match  # noqa: E402
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver  # noqa: E402

QUIET = {"display": "none", "log_realtime": False, "log_model_api": False, "log_level": "error"}


@solver
def answer() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        text = await answer_or_interrupt(state.input_text)
        state.output = ModelOutput.from_content("none", text)
        return state

    return solve


@task
def bench(count: int, model: bool) -> Task:
    samples = [
        Sample(id=each, input=question(each), target=expected(each)) for each in range(count)
    ]
    return Task(
        dataset=MemoryDataset(samples),
        solver=generate() if model else answer(),
        scorer=match(location="exact"),
    )


def figures(log: Any) -> dict[str, Any]:
    samples = log.samples or []
    right = sum(each.scores["match"].value == "C" for each in samples if each.scores)
    return {"passed": right, "errors": sum(each.error is not None for each in samples)}


def in_process(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        done = eval(
            bench(job.count, False), model=None, max_samples=job.concurrency, **QUIET
        )  # the samples come with the log
    return figures(done[0]) if done else {}  # a cancelled eval returns no log


def http(job: Job, clock: Clock) -> dict[str, Any]:
    import openai  # noqa: F401 - its import is measured by itself

    with clock:
        done = eval(
            bench(job.count, True),
            model=f"openai/{MODEL}",
            model_base_url=job.url,
            model_args={"responses_api": False},
            max_samples=job.concurrency,
            max_connections=job.concurrency,
            **QUIET,
        )
    return figures(done[0])


def load(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        log = read_eval_log(list_eval_logs(str(job.path / "logs"))[0])
        return figures(log)


def interrupt(job: Job, clock: Clock) -> dict[str, Any]:
    with stop_at(job.done), contextlib.suppress(KeyboardInterrupt, SystemExit):
        in_process(job, clock)
    return {}


def resume(job: Job, clock: Clock) -> dict[str, Any]:
    quiet = {key: value for key, value in QUIET.items() if key != "log_model_api"}
    with clock:
        log = list_eval_logs(str(job.path / "logs"))[0]
        done = eval_retry(log.name, max_samples=job.concurrency, **quiet)
    return figures(done[0])


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
