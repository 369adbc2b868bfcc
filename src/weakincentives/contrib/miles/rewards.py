"""Evaluators as reward models of miles.

A sample that cannot be scored is not a 0: it is FAILED and left out of the loss. miles requires a
number; by default it is 0, so groups with such a sample should be filtered.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ...chat import ChatMessage
from ...evals import EvalContext, Sample, Score, Trajectory, criterion
from ...evals.evaluators import EvaluatorFunction
from ...internal.checks import check_whole
from ...internal.concurrency import for_each
from ...internal.isolation import run_isolated
from ...secrets import logger_for

logger = logger_for(__name__)

Reward = dict[str, float]
RewardModel = Callable[..., Awaitable[Reward | list[Reward]]]


def miles_reward(
    evaluator: EvaluatorFunction,
    *,
    adapter: Any = None,
    max_concurrent: int = 16,
    failed: float = 0.0,
    on_failure: Callable[[str, BaseException], object] | None = None,
) -> RewardModel:
    """Return an evaluator as a reward model of miles.

    Name it with `--custom-rm-path my_module.reward --reward-key score`. It takes one sample of
    miles, or with `--group-rm` a list of them, `max_concurrent` of which are scored concurrently.
    The reward is a mapping: `score` is `Score.reward`, and `metric/NAME` each metric. A sample that
    cannot be scored gets `failed`, the status FAILED, `remove_sample`, and
    `metadata["reward_error"]`.
    """
    check_whole(max_concurrent, 1, "max_concurrent")
    judged = criterion(evaluator)

    async def score(sample: Any) -> Reward:
        found: list[Score] = []

        async def evaluate() -> None:
            found.append(await judged.score_in_thread(_context(sample, adapter)))

        failure = await run_isolated(evaluate)
        if failure is None:
            return reward_of(found[0])
        _mark_failed(sample, failure)
        logger.warning("no reward for %s: %s", sample_id(sample), failure)
        if on_failure is not None:
            on_failure(sample_id(sample), failure)
        return {"score": failed}

    async def reward(args: Any, sample: Any, **options: Any) -> Reward | list[Reward]:
        if not isinstance(sample, Sequence):
            return await score(sample)
        rewards: list[Reward] = [{}] * len(sample)

        async def score_at(index: int) -> None:
            rewards[index] = await score(sample[index])

        await for_each(score_at, range(len(sample)), max_concurrent)
        return rewards

    reward.__name__ = judged.name
    return reward


def _mark_failed(sample: Any, failure: BaseException) -> None:
    sample.status = type(sample.status).FAILED
    sample.remove_sample = True
    sample.metadata = {**(sample.metadata or {}), "reward_error": str(failure)}


def sample_id(sample: Any) -> str:
    """Return the id of our sample that a sample of miles is made of, or its number."""
    return str((sample.metadata or {}).get("sample_id", sample.index))


def _context(sample: Any, adapter: Any) -> EvalContext:
    metadata = dict(sample.metadata or {})
    own = Sample(sample_id(sample), sample.prompt, sample.label, {"miles": json_metadata(metadata)})
    messages = [*_messages(sample.prompt), ChatMessage("assistant", sample.response or "")]
    trajectory: Trajectory[str] = Trajectory(tuple(messages), sample.response or "")
    return EvalContext(sample=own, trajectory=trajectory, adapter=adapter)


def _messages(prompt: Any) -> list[ChatMessage]:
    if isinstance(prompt, str):
        return [ChatMessage("user", prompt)]
    return [ChatMessage(each["role"], str(each.get("content") or "")) for each in prompt]


def json_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that is JSON; miles keeps its own objects there, too."""
    kept = {}
    for name, value in metadata.items():
        try:
            kept[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            continue
    return kept


def reward_of(score: Score) -> Reward:
    """Return a score as a reward of miles: `--reward-key score`."""
    return {
        "score": score.reward,
        **{f"metric/{each.name}": each.value for each in score.metrics},
    }
