"""An environment of verifiers (0.4) for the tests: sums, one of whose rewards may raise."""

from __future__ import annotations

from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["Sums"]


class SumData(vf.TaskData):
    answer: str = ""


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @property
    def key(self) -> str:
        return f"sum-{self.data.idx}"

    @vf.reward(weight=0.5)
    async def correct(self, trace: vf.Trace) -> float:
        reply = trace.nodes[-1].message.content or ""
        if "boom" in reply:
            raise ValueError("scorer broke")
        return float(self.data.answer in reply)

    @vf.reward(weight=0.5)
    async def brief(self, trace: vf.Trace) -> float:
        return 1.0 if len(trace.nodes[-1].message.content or "") < 20 else 0.0

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(sum(node.sampled for node in trace.nodes))


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self) -> Iterable[SumTask]:
        for number in range(4):
            data = SumData(prompt=f"{number} + {number}?", answer=str(2 * number))
            yield SumTask(data, self.config.task)
