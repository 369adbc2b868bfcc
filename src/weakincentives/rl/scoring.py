"""Score rollouts with the evaluators of an eval, so that a training and its report agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio

from ..errors import EvaluatorError, UsageError, short_repr
from ..evals import Criterion, EvalContext, Score, criterion
from ..evals.engine.attempts import rescore_result
from ..evals.evaluators.signatures import evaluator_name
from ..internal.concurrency import for_each
from ..rollouts.environment import call_user_function
from .groups import RolloutGroup


@dataclass(frozen=True, slots=True)
class GroupScorer:
    """A function that scores all rollouts of a prompt together; `group_scorer` makes one."""

    fn: Callable[..., Any]
    name: str

    def __call__(self, trajectories: Sequence[Any], sample: Any) -> Any:
        """Call the function."""
        return self.fn(trajectories, sample)


Scorer = Criterion | GroupScorer

# The criterion of the engine if scoring comes later, or never.
UNSCORED = Criterion("unscored", lambda context: Score(0.0, False, "not scored"), non_blocking=True)


def group_scorer(fn: Callable[..., Any]) -> GroupScorer:
    """Mark a function of `(trajectories, sample)`, sync or async, that scores all rollouts at once.

    It gets the rollouts of one prompt that did not fail, for example to rank them, and returns one
    value for each, as any evaluator may return it. If it raises, no rollout of the group has a
    reward.

    >>> shortest = group_scorer(
    ...     lambda trajectories, sample: [
    ...         len(t.output) == min(len(each.output) for each in trajectories)
    ...         for t in trajectories
    ...     ]
    ... )
    """
    if not callable(fn) or isinstance(fn, type | Criterion):
        raise UsageError(f"expected a function of (trajectories, sample), got {short_repr(fn)}")
    return GroupScorer(fn, evaluator_name(fn))


def scorer_of(score_fn: Callable[..., Any] | Scorer) -> Scorer:
    """Return any scoring function as a criterion or a group scorer."""
    return score_fn if isinstance(score_fn, GroupScorer) else criterion(score_fn)


async def score_groups(
    groups: Sequence[RolloutGroup], scorer: Scorer, max_concurrent: int, timeout: float | None
) -> list[RolloutGroup]:
    """Return the groups with scores; groups that have scores are unchanged."""
    scored = list(groups)

    async def score(index: int) -> None:
        scored[index] = await _score_group(groups[index], scorer, timeout)

    unscored = (index for index, group in enumerate(groups) if not group.scored)
    await for_each(score, unscored, max_concurrent)
    return scored


async def _score_group(group: RolloutGroup, scorer: Scorer, timeout: float | None) -> RolloutGroup:
    if isinstance(scorer, GroupScorer):
        ask = (await _group_criterion(scorer, group, timeout)).ask
    else:
        ask = scorer.score_in_thread
    rollouts = [
        each
        if each.error is not None
        else await rescore_result(each, None, ask, EvalContext(run_id=each.run_id))
        for each in group.rollouts
    ]
    return replace(group, rollouts=tuple(rollouts), scored=True)


async def _group_criterion(
    scorer: GroupScorer, group: RolloutGroup, timeout: float | None
) -> Criterion:
    """Return a criterion with the verdicts on the rollouts of this group, to be called in order."""
    trajectories = [each.trajectory for each in group.rollouts if each.error is None]
    failure: Exception | None = None
    verdicts: list[Any] = []
    try:
        with anyio.fail_after(timeout):
            result = (
                await call_user_function(scorer.fn, trajectories, group.sample)
                if trajectories
                else ()
            )
        verdicts = [*result] if isinstance(result, Iterable) else []
        if len(verdicts) != len(trajectories):
            raise EvaluatorError(
                f"expected {len(trajectories)} scores from group scorer `{scorer.name}`, one for "
                f"each trajectory, got {short_repr(result)}"
            )
    except Exception as error:
        failure = error
    remaining = iter(verdicts)

    def verdict(trajectory: Any, sample: Any) -> Any:
        if failure is not None:
            raise failure
        return next(remaining)

    return criterion(verdict, name=scorer.name)
