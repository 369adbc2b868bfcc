"""Prime Intellect's verifiers: its tasks as our evaluators, our evaluators as its rewards.

For the newer stack (`verifiers.v1`, from 0.2 on). Nothing here runs a model or uploads anything.
Its files are read without the package: `contrib.importers.read_verifiers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ... import serde
from ...chat import ChatMessage
from ...errors import EvaluatorError, MissingExtraError
from ...evals import Criterion, EvalContext, Sample, Score, Trajectory, criterion
from ...evals.evaluators import EvaluatorFunction
from ...internal.threads import in_thread
from ..importers.imported_values import chat_message
from ..importers.verifiers import score_of_trace


def _package() -> Any:
    try:
        import verifiers.v1
    except ImportError:
        raise MissingExtraError("verifiers", "verifiers", "tasks of verifiers") from None
    return verifiers.v1


def verifiers_evaluator(task: Any, *, name: str = "reward") -> Criterion:
    """Return a task of verifiers as an evaluator of trajectories.

    `task` is a `Task`, or a function from the sample to one. Its rewards and metrics score the
    messages of a trajectory, live or stored, without a model. The value is the weighted sum of the
    rewards, as in verifiers; each is a metric. A reward function that raises is an error.
    """
    vf = _package()
    task_of: Callable[[Sample[Any, Any]], Any] = (
        (lambda sample: task) if isinstance(task, vf.Task) else task
    )

    async def evaluate(sample: Sample[Any, Any], output: Any, *, context: EvalContext) -> Score:
        own = task_of(sample)
        trace = _trace(own, context.trajectory.messages, sample, output)
        try:
            await _on_asyncio(own.score, trace)
        except Exception as error:
            raise EvaluatorError(f"the task of verifiers raised: {error}") from error
        trace.ok = True
        score, (problem, _) = score_of_trace(trace.model_dump(mode="json"), [])
        if score is None:
            raise EvaluatorError(problem)
        return Score(score.value, metrics=score.metrics, criterion=name)

    return criterion(evaluate, name=name)


def _trace(
    task: Any, messages: Sequence[ChatMessage], sample: Sample[Any, Any], output: Any
) -> Any:
    vf = _package()
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    kinds = {
        "system": vf.SystemMessage,
        "developer": vf.SystemMessage,
        "user": vf.UserMessage,
        "tool": vf.ToolMessage,
    }
    if not messages:
        text = output if isinstance(output, str) else serde.encode(output).decode()
        messages = [ChatMessage("user", str(sample.input)), ChatMessage("assistant", text)]
    nodes = []
    for index, message in enumerate(messages):
        if message.role == "assistant":
            calls = [
                vf.ToolCall(
                    id=call.id, name=call.name, arguments=serde.encode(call.arguments).decode()
                )
                for call in message.tool_calls
            ]
            given = vf.AssistantMessage(content=message.content, tool_calls=calls or None)
        else:
            known = {"tool_call_id": message.tool_call_id} if message.role == "tool" else {}
            given = kinds[message.role](content=message.content, **known)
        nodes.append(
            vf.MessageNode(
                parent=index - 1 if index else None,
                message=given,
                sampled=message.role == "assistant",
            )
        )
    identity = TraceTask(type=type(task).__name__, data=task.data)
    return Trace(task=identity, agent=AgentInfo(config=vf.AgentConfig()), nodes=nodes)


def verifiers_reward(
    evaluator: EvaluatorFunction, *, expected: str = "answer"
) -> Callable[..., Awaitable[float]]:
    """Return an evaluator as a reward function of verifiers.

    Plug it into a task by its configuration, `task.rewards.ours = {fn = "mine.py:reward"}`, or call
    it in a method with `@vf.reward`. `expected` is the field of the task's data. Errors of the
    evaluator propagate: verifiers then leaves the reward empty.
    """
    judged = criterion(evaluator)

    async def reward(trace: Any, task: Any) -> float:
        data = task.data.model_dump(mode="json")
        messages = tuple(chat_message(node.message.model_dump(mode="json")) for node in trace.nodes)
        replies = [message for message in messages if message.role == "assistant"]
        sample = Sample(
            str(data.get("id") or data.get("idx")), data.get("prompt"), data.get(expected)
        )
        trajectory = Trajectory(messages, replies[-1].content if replies else "")
        context = EvalContext(sample=sample, trajectory=trajectory)
        return (await judged.score_in_thread(context)).reward

    reward.__name__ = judged.name
    return reward


async def _on_asyncio(call: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Await a call of verifiers, which needs asyncio: under trio, in a thread with a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:

        async def main() -> Any:
            return await call(*args)

        return await in_thread(asyncio.run, main())
    return await call(*args)
