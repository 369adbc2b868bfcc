"""The rollouts of one prompt together, and reasons not to train on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .._frozen import truly_frozen
from ..evals import EvalResult, Sample, Trajectory
from ..evals._config import check_whole
from ._advantages import is_flat

__all__ = [
    "GroupFilter",
    "RolloutGroup",
    "drop_stale",
    "drop_unscored",
    "drop_zero_spread",
    "keep_groups",
    "trajectory_of",
]


@truly_frozen
@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """A sample and its rollouts, in the order of their epochs; none before it is rolled out.

    A rollout is an `EvalResult`: one that failed is in its place, with `error` and without a
    reward. `step` is the step of the training in which they were made.
    """

    sample: Sample[Any, Any]
    rollouts: tuple[EvalResult[Any], ...] = ()
    scored: bool = False
    step: int = 0

    @property
    def id(self) -> str:
        """The sample's id."""
        return self.sample.id

    @property
    def rewards(self) -> list[float | None]:
        """The reward of each rollout; None where it failed, or where nobody scored it."""
        return [
            each.score.reward if self.scored and each.error is None else None
            for each in self.rollouts
        ]

    @property
    def trajectories(self) -> list[Trajectory[Any]]:
        """The trajectory of each rollout; after a failure, an empty one that says so."""
        return [trajectory_of(each) for each in self.rollouts]


def trajectory_of(result: EvalResult[Any]) -> Trajectory[Any]:
    """What a rollout left; of one that failed nothing that could be scored.

    Such a trajectory is empty, its `stop_reason` is `error`, and its metadata say what happened.
    What was said before the failure is in the result itself.
    """
    if result.trajectory is not None and result.error_source in (None, "evaluator"):
        return result.trajectory
    why = {"error": result.error, "error_source": result.error_source}
    return Trajectory(stop_reason="error", metadata=why)


GroupFilter = Callable[[RolloutGroup, int], str | None]
"""A group and the step of the training, to the reason to drop it, or None to keep it."""


def drop_zero_spread(group: RolloutGroup, step: int) -> str | None:
    """Drop a group whose rewards are all equal: every advantage in it is 0."""
    return "zero spread" if is_flat(group.rewards) else None


def drop_unscored(group: RolloutGroup, step: int) -> str | None:
    """Drop a group with a rollout that has no reward, so that groups are of one size."""
    return "unscored" if None in group.rewards else None


def drop_stale(steps: int) -> GroupFilter:
    """Drop groups that were made more than so many steps ago, by a policy that is gone."""
    check_whole(steps, 0, "steps")

    def stale(group: RolloutGroup, step: int) -> str | None:
        return "stale" if step - group.step > steps else None

    return stale


def keep_groups(
    groups: Iterable[RolloutGroup], filters: Sequence[GroupFilter], *, step: int = 0
) -> tuple[list[RolloutGroup], Counter[str]]:
    """The groups that no filter drops, and how many were dropped for each reason.

    The first filter that gives a reason is the one that counts.
    """
    kept: list[RolloutGroup] = []
    dropped: Counter[str] = Counter()
    for group in groups:
        reasons = (reason for each in filters if (reason := each(group, step)))
        if reason := next(reasons, None):
            dropped[reason] += 1
        else:
            kept.append(group)
    return kept, dropped
