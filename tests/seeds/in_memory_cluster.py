"""The cluster of the specifications in one process: eval loops, main loops and their mailboxes."""

from __future__ import annotations

from typing import Any

from tests.processes import TIMEOUT
from tests.seeds.loops import QALoop
from weakincentives import BASELINE
from weakincentives.adapters import ScriptedAdapter
from weakincentives.evals import (
    Dataset,
    EvalLoop,
    EvalLoopConfig,
    Sample,
    exact_match,
    submit_dataset,
)
from weakincentives.runtime import ControlDispatcher, InMemoryMailbox

__all__ = ["DATASET", "Cluster", "adds"]

DATASET = Dataset([Sample(str(n), f"{n}+1?", str(n + 1)) for n in range(12)], name="sums")


def adds(request: Any) -> str:
    number = request.messages[-1].content.split()[-1].removesuffix("+1?")
    return str(int(number) + 1)


class Cluster:
    """Three mailboxes, and the loops that work on them."""

    def __init__(self) -> None:
        self.requests: InMemoryMailbox[Any] = InMemoryMailbox("eval-requests")
        self.main: InMemoryMailbox[Any] = InMemoryMailbox("mainloop-requests")
        self.results: InMemoryMailbox[Any] = InMemoryMailbox("eval-results")

    def main_loop(self, answer: Any = adds, **options: Any) -> QALoop:
        return QALoop(
            adapter=ScriptedAdapter(answer),
            bus=ControlDispatcher(),
            requests=self.main,
            **options,
        )

    def eval_loop(self, evaluator: Any = exact_match, **options: Any) -> EvalLoop[Any, Any, Any]:
        timeout = options.pop("mainloop_timeout", TIMEOUT)
        return EvalLoop(
            evaluator=evaluator,
            requests=self.requests,
            mainloop_requests=self.main,
            config=EvalLoopConfig(mainloop_timeout=timeout),
            **options,
        )

    def submit(self, dataset: Dataset[Any, Any] = DATASET) -> Any:
        return submit_dataset(dataset, BASELINE, self.requests, reply_to=self.results)
