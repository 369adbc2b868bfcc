"""Rewards for rollouts, by the evaluators of an eval: a training and its report cannot disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio

from ..errors import EvaluatorError, UsageError, shown
from ..evals import Criterion, EvalContext, Score, criterion
from ..evals._attempt import scored
from ..evals._evaluator_shapes import evaluator_name
from ..rollouts._environment import called
from ._groups import RolloutGroup

__all__ = ["UNSCORED", "GroupScorer", "Scorer", "group_scorer", "score_groups", "scorer_of"]


@dataclass(frozen=True, slots=True)
class GroupScorer:
    """A function that scores all rollouts of a prompt together; `group_scorer` makes one."""

    fn: Callable[..., Any]
    name: str

    def __call__(self, trajectories: Sequence[Any], sample: Any) -> Any:
        """What the function says."""
        return self.fn(trajectories, sample)


Scorer = Criterion | GroupScorer

# What an engine asks where scoring comes later, or never.
UNSCORED = Criterion("unscored", lambda context: Score(0.0, False, "not scored"), quick=True)


def group_scorer(fn: Callable[..., Any]) -> GroupScorer:
    """Mark a function of `(trajectories, sample)`, sync or async, that gives a score for each.

    It gets the rollouts of one prompt that did not fail, to rank them against each other, say.
    What it returns is a sequence of what any evaluator may return. If it raises, no rollout of the
    group has a reward.

    >>> shortest = group_scorer(
    ...     lambda trajectories, sample: [
    ...         len(t.output) == min(len(each.output) for each in trajectories)
    ...         for t in trajectories
    ...     ]
    ... )
    """
    if not callable(fn) or isinstance(fn, type | Criterion):
        raise UsageError(f"expected a function of (trajectories, sample), got {shown(fn)}")
    return GroupScorer(fn, evaluator_name(fn))


def scorer_of(score_fn: Callable[..., Any] | Scorer) -> Scorer:
    """Anything that scores, as a criterion or a group scorer."""
    return score_fn if isinstance(score_fn, GroupScorer) else criterion(score_fn)


async def score_groups(
    groups: Sequence[RolloutGroup], scorer: Scorer, max_concurrent: int, timeout: float | None
) -> list[RolloutGroup]:
    """The groups, each scored; those that were scored before stay as they are."""
    settled = list(groups)
    places = anyio.CapacityLimiter(max_concurrent)

    async def score(index: int) -> None:
        async with places:
            settled[index] = await _score_group(groups[index], scorer, timeout)

    async with anyio.create_task_group() as tasks:
        for index, group in enumerate(groups):
            if not group.scored:
                tasks.start_soon(score, index)
    return settled


async def _score_group(group: RolloutGroup, scorer: Scorer, timeout: float | None) -> RolloutGroup:
    if isinstance(scorer, GroupScorer):
        ask = (await _of_one(scorer, group, timeout)).ask
    else:
        ask = scorer.ask_aside
    rollouts = [
        each
        if each.error is not None
        else await scored(each, None, ask, EvalContext(run_id=each.run_id))
        for each in group.rollouts
    ]
    return replace(group, rollouts=tuple(rollouts), scored=True)


async def _of_one(scorer: GroupScorer, group: RolloutGroup, timeout: float | None) -> Criterion:
    """A criterion that knows the verdict on each rollout of this group, to be asked in order."""
    trajectories = [each.trajectory for each in group.rollouts if each.error is None]
    failure: Exception | None = None
    verdicts: list[Any] = []
    try:
        with anyio.fail_after(timeout):
            said = await called(scorer.fn, trajectories, group.sample) if trajectories else ()
        verdicts = [*said] if isinstance(said, Iterable) else []
        if len(verdicts) != len(trajectories):
            raise EvaluatorError(
                f"expected {len(trajectories)} scores from group scorer `{scorer.name}`, one for "
                f"each trajectory, got {shown(said)}"
            )
    except Exception as error:
        failure = error
    coming = iter(verdicts)

    def verdict(trajectory: Any, sample: Any) -> Any:
        if failure is not None:
            raise failure
        return next(coming)

    return criterion(verdict, name=scorer.name)
