"""LangSmith: `evaluate` with `upload_results=False`, so that nothing leaves the process.

The service that would store the results is not part of the comparison, so there is nothing to load
or to resume. `aevaluate` is left out because it sends the runs of the target even then. The
address of the service is a closed port on loopback.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any

from harness import MODEL, Clock, Job, expected, question, run
from sdk import import_sdk

os.environ |= {
    "LANGSMITH_ENDPOINT": "http://127.0.0.1:9",
    "LANGSMITH_API_KEY": "none",
    "LANGSMITH_TRACING": "false",
}

from langsmith import Client, evaluate
from langsmith.schemas import Example


def equal(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return bool(outputs["output"] == reference_outputs["output"])


def evaluated(job: Job, ask: Callable[[str], str]) -> dict[str, Any]:
    def target(inputs: dict[str, Any]) -> dict[str, str]:
        return {"output": ask(inputs["question"])}

    dataset = uuid.UUID(int=1)
    examples = [
        Example(
            id=uuid.UUID(int=each + 2),
            dataset_id=dataset,
            inputs={"question": question(each)},
            outputs={"output": expected(each)},
        )
        for each in range(job.count)
    ]
    results = evaluate(
        target,
        data=examples,
        evaluators=[equal],
        max_concurrency=job.concurrency,
        upload_results=False,
        client=Client(),
    )
    passed = errors = 0
    for row in results:
        errors += row["run"].error is not None
        passed += any(each.score for each in row["evaluation_results"]["results"])
    return {"passed": passed, "errors": errors}


def in_process(job: Job, clock: Clock) -> dict[str, Any]:
    with clock:
        return evaluated(job, lambda _: "yes")


def http(job: Job, clock: Clock) -> dict[str, Any]:
    import_sdk()
    import openai

    with clock, openai.OpenAI(base_url=job.url, api_key="none") as client:

        def ask(text: str) -> str:
            done = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": text}]
            )
            return done.choices[0].message.content or ""

        return evaluated(job, ask)


if __name__ == "__main__":
    nothing = "stores results in its service only"
    kinds = ("store", "load", "interrupt", "resume")
    run({"in_process": in_process, "http": http}, dict.fromkeys(kinds, nothing))
