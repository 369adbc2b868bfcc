"""The public weakincentives package: `EvalLoop` over an `AgentLoop` and in-memory mailboxes.

An `EvalLoop` handles one sample at a time; over HTTP, as many run in threads as calls are in
flight. It has no adapter for the chat API, so that ours calls the OpenAI SDK.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from harness import MODEL, Clock, Job, expected, question, run
from sdk import import_sdk

from weakincentives import BASELINE
from weakincentives.adapters import PromptResponse, ProviderAdapter
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalRequest,
    Sample,
    collect_results,
    exact_match,
)
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import AgentLoop, InMemoryMailbox, Session

TEMPLATE = PromptTemplate(
    ns="bench", key="ask", sections=(MarkdownSection(title="Task", template="Answer.", key="task"),)
)


class Adapter(ProviderAdapter):
    """Answer at once, or ask the model server."""

    def __init__(self, url: str) -> None:
        self.client: Any = None
        if url:
            import openai

            self.client = openai.OpenAI(base_url=url, api_key="none")

    def evaluate(self, prompt: Any, *, session: Any, **_: Any) -> Any:
        text = "yes"
        if self.client is not None:
            messages: Any = [{"role": "user", "content": session.tags["question"]}]
            done = self.client.chat.completions.create(model=MODEL, messages=messages)
            text = done.choices[0].message.content or ""
        return PromptResponse(prompt_name="ask", text=text, output=text)


class Agent(AgentLoop):
    """Prepare the prompt of a sample."""

    def prepare(self, request: str, *, experiment: Any = None) -> Any:
        return Prompt(TEMPLATE), Session(tags={"question": request})


def evaluate(job: Job, loops: int) -> Any:
    requests: Any = InMemoryMailbox(name="requests")
    results: Any = InMemoryMailbox(name="results")
    dataset = Dataset(
        samples=tuple(Sample(str(n), question(n), expected(n)) for n in range(job.count))
    )
    for sample in dataset:
        requests.send(EvalRequest(sample=sample, experiment=BASELINE), reply_to=results)
    adapter = Adapter(job.url)
    workers = [
        EvalLoop(
            loop=Agent(adapter=adapter, requests=InMemoryMailbox(name="agent")),
            evaluator=exact_match,
            requests=requests,
        )
        for _ in range(loops)
    ]
    if loops == 1:
        workers[0].run(max_iterations=job.count)  # it receives one message at a time
    else:
        for each in workers:
            threading.Thread(target=each.run, daemon=True).start()
    report = collect_results(results, expected_count=job.count, timeout_seconds=3600)
    requests.close()  # wakes the loops that wait for more
    return report


def figures(report: Any) -> dict[str, Any]:
    return {
        "passed": sum(each.score.passed for each in report.results),
        "errors": sum(each.error is not None for each in report.results),
    }


def in_process(job: Job, clock: Clock) -> dict[str, Any]:
    logging.disable(logging.INFO)
    with clock:
        report = evaluate(job, 1)
    return figures(report)


def http(job: Job, clock: Clock) -> dict[str, Any]:
    logging.disable(logging.INFO)
    import_sdk()
    with clock:
        report = evaluate(job, job.concurrency)
    return figures(report)


if __name__ == "__main__":
    nothing = "stores no results"
    kinds = ("store", "load", "interrupt", "resume")
    run({"in_process": in_process, "http": http}, dict.fromkeys(kinds, nothing))
