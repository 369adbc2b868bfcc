"""verifiers, with the real package: run by `make neighbours`, in its own venv."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

vf = pytest.importorskip("verifiers.v1", reason="make neighbours installs it")

from weakincentives.chat import ChatMessage  # noqa: E402
from weakincentives.contrib.importers import read_verifiers  # noqa: E402
from weakincentives.contrib.verifiers import verifiers_evaluator, verifiers_reward  # noqa: E402
from weakincentives.errors import EvaluatorError  # noqa: E402
from weakincentives.evals import EvalContext, Sample, Trajectory, numeric  # noqa: E402


class Data(vf.TaskData):  # type: ignore[misc, name-defined]
    answer: str = ""


class Sum(vf.Task):  # type: ignore[misc, name-defined]
    @vf.reward(weight=0.5)
    async def correct(self, trace: Any) -> float:
        return float(self.data.answer in trace.nodes[-1].message.content)

    @vf.reward
    async def brief(self, trace: Any) -> float:
        if "boom" in trace.nodes[-1].message.content:
            raise ValueError("scorer broke")
        return 0.5

    @vf.metric
    async def turns(self, trace: Any) -> float:
        return float(sum(node.sampled for node in trace.nodes))


TASK = Sum(Data(idx=3, prompt="2 + 2?", answer="4"))


def context(answer: str) -> EvalContext:
    messages = (ChatMessage("user", "2 + 2?"), ChatMessage("assistant", answer))
    return EvalContext(sample=Sample("3", "2 + 2?"), trajectory=Trajectory(messages, answer))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_scores_our_trajectory(backend: str) -> None:
    judge = verifiers_evaluator(TASK)
    score = anyio.run(judge.score, context("It is 4."), backend=backend)

    assert (score.value, score.passed) == (1.0, True)  # 1.0 * 0.5 + 0.5
    assert {metric.name: metric.value for metric in score.metrics} == {
        "brief": 0.5,
        "correct": 1.0,
        "turns": 1.0,
    }


def test_a_reward_function_that_raises_is_an_error_and_not_a_score_of_zero() -> None:
    with pytest.raises(EvaluatorError, match="scorer broke"):
        anyio.run(verifiers_evaluator(lambda sample: TASK).score, context("boom"))


def test_our_evaluator_is_a_reward_of_its_task(tmp_path: Any) -> None:
    from verifiers.v1.episode import Episode, GroupInfo
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    ours = verifiers_reward(numeric())

    class Ours(vf.Task):  # type: ignore[misc, name-defined]
        @vf.reward
        async def ours(self, trace: Any) -> float:
            return await ours(trace, self)

    async def episode(answer: str) -> str:
        task = Ours(TASK.data)
        nodes = [
            vf.MessageNode(message=vf.UserMessage(content="2 + 2?")),
            vf.MessageNode(parent=0, message=vf.AssistantMessage(content=answer), sampled=True),
        ]
        identity = TraceTask(type="Ours", data=task.data, key="sum-3")
        trace = Trace(task=identity, agent=AgentInfo(config=vf.AgentConfig()), nodes=nodes)
        await task.score(trace)
        trace.ok = True
        return str(
            Episode(
                task=identity, group=GroupInfo(id="g"), ok=True, traces=[trace]
            ).model_dump_json()
        )

    lines = [anyio.run(episode, answer) for answer in ("It is 4.", "It is 5.")]
    (tmp_path / "traces.jsonl").write_text("\n".join(lines))
    right, wrong = read_verifiers(tmp_path / "traces.jsonl").results

    assert (right.score.value, wrong.score.value) == (1.0, 0.0)
    assert (right.sample_id, right.epoch, wrong.epoch) == ("sum-3", 1, 2)
