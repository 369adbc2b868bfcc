"""Our evaluators as reward functions of Hugging Face's TRL (`GRPOTrainer`).

Rules of this file:
1. A completion that could not be scored has the reward None, which TRL leaves out of the group's
   baseline. It is never a 0.
2. The reward is `Score.reward`, the same number that an eval of the same completion reports.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ..adapters.wire import wire_calls
from ..chat import ChatMessage
from ..errors import UsageError, short_repr
from ..evals import EvalContext, Sample, Trajectory, criterion
from ..evals.evaluators import EvaluatorFunction
from ..internal.checks import check_whole
from ..internal.concurrency import for_each
from ..internal.isolation import run_isolated
from ..secrets import logger_for

logger = logger_for(__name__)


RewardFunction = Callable[..., Coroutine[Any, Any, list[float | None]]]


def trl_reward(
    evaluator: EvaluatorFunction,
    *,
    expected: str = "expected",
    id: str = "id",
    max_concurrent: int = 16,
    adapter: Any = None,
    on_failure: Callable[[str, BaseException], object] | None = None,
) -> RewardFunction:
    """Return an evaluator as a reward function: `GRPOTrainer(reward_funcs=trl_reward(numeric()))`.

    `expected` and `id` are columns of the training dataset. `adapter` is the model for judges. A
    completion that cannot be scored is logged, and `on_failure` gets its id and the error. TRL
    awaits the function; several of them are weighted by its `reward_weights`.
    """
    check_whole(max_concurrent, 1, "max_concurrent")
    for column, value in (("expected", expected), ("id", id)):
        if not isinstance(value, str) or not value:
            raise UsageError(f"expected a column's name for `{column}`, got {short_repr(value)}")
    judged = criterion(evaluator)

    async def reward(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        rewards: list[float | None] = [None] * len(completions)

        async def score(index: int) -> None:
            own = _columns(columns, index)
            context = _context(
                Sample(str(own.get(id, index)), prompts[index], own.get(expected)),
                completions[index],
                adapter,
            )

            async def evaluate() -> None:
                rewards[index] = (await judged.score_in_thread(context)).reward

            failure = await run_isolated(evaluate)
            if failure is not None:
                logger.warning("no reward for %s: %s", context.sample.id, failure)
                if on_failure is not None:
                    on_failure(context.sample.id, failure)

        await for_each(score, range(len(completions)), max_concurrent)
        return rewards

    reward.__name__ = judged.name  # TRL logs this name
    return reward


def _columns(columns: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the values of this completion; TRL also passes functions and the trainer's state."""
    return {
        name: values[index]
        for name, values in columns.items()
        if isinstance(values, Sequence) and not isinstance(values, str) and len(values) > index
    }


def _context(sample: Sample[Any, Any], completion: Any, adapter: Any) -> EvalContext:
    messages = [*_messages(sample.input, "user"), *_messages(completion, "assistant")]
    trajectory = Trajectory(tuple(messages), messages[-1].content if messages else "")
    return EvalContext(sample=sample, trajectory=trajectory, adapter=adapter)


def _messages(given: Any, role: Any) -> list[ChatMessage]:
    """Return a prompt or a completion as messages: TRL has texts, or lists of messages."""
    if isinstance(given, str):
        return [ChatMessage(role, given)]
    return [_message(message) for message in given]


def _message(data: Mapping[str, Any]) -> ChatMessage:
    return ChatMessage(
        data["role"],
        data.get("content") or "",
        wire_calls(data),
        data.get("tool_call_id"),
        data.get("name"),
    )
