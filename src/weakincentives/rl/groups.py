"""Groups of rollouts of one prompt, and filters that drop groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..chat import ChatMessage
from ..errors import UsageError, short_repr
from ..evals import EvalResult, Sample, Trajectory
from ..internal.checks import check_whole
from ..internal.frozen import frozen_generic
from .advantages import is_flat


@frozen_generic
@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """A sample and its rollouts, in the order of their epochs; empty before they are generated.

    A rollout is an `EvalResult`; a failed one has an `error` and no reward. `step` is the step of
    the training in which they were generated.
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
        """The reward of each rollout; None if it failed or was not scored."""
        return [
            each.score.reward if self.scored and each.error is None else None
            for each in self.rollouts
        ]

    @property
    def trajectories(self) -> list[Trajectory[Any]]:
        """The trajectory of each rollout; for a failed one, a trajectory with an empty answer."""
        return [trajectory_of(each) for each in self.rollouts]


def group_of(given: Any) -> RolloutGroup:
    """Return a group as it is, and a sample as a group without rollouts; refuse the rest."""
    group = RolloutGroup(given) if isinstance(given, Sample) else given
    if not isinstance(group, RolloutGroup):
        raise UsageError(f"expected a `Sample` or a `RolloutGroup`, got {short_repr(given)}")
    return group


def trajectory_of(result: EvalResult[Any]) -> Trajectory[Any]:
    """Return the trajectory of a rollout; for a failed one, a trajectory with an empty answer.

    A score function may read `messages[-1]` of it. Its `stop_reason` is `error`, its metadata have
    the error, and it has no tokens to train on. The messages before the failure are in the result.
    """
    if result.trajectory is not None and result.error_source in (None, "evaluator"):
        return result.trajectory
    error = {"error": result.error, "error_source": result.error_source}
    return Trajectory((ChatMessage("assistant", ""),), stop_reason="error", metadata=error)


GroupFilter = Callable[[RolloutGroup, int], str | None]
"""A group and the step of the training, to the reason to drop it, or None to keep it."""


def drop_zero_spread(group: RolloutGroup, step: int) -> str | None:
    """Drop a group whose rewards are all equal: every advantage in it is 0."""
    return "zero spread" if is_flat(group.rewards) else None


def drop_unscored(group: RolloutGroup, step: int) -> str | None:
    """Drop a group with a rollout that has no reward, so that groups are of one size."""
    return "unscored" if None in group.rewards else None


def drop_stale(steps: int) -> GroupFilter:
    """Return a filter that drops groups generated more than `steps` steps ago."""
    check_whole(steps, 0, "steps")

    def stale(group: RolloutGroup, step: int) -> str | None:
        return "stale" if step - group.step > steps else None

    return stale


def keep_groups(
    groups: Iterable[RolloutGroup], filters: Sequence[GroupFilter], *, step: int = 0
) -> tuple[list[RolloutGroup], Counter[str]]:
    """Return the groups that no filter drops, and the number of dropped groups by reason.

    The first filter that returns a reason counts.
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
