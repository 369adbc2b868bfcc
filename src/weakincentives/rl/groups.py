"""Groups of rollouts of one prompt, and filters that drop groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import RolloutError, UsageError, short_repr
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
        """The trajectory of each rollout; raise `RolloutError` if one of them failed."""
        return [trajectory_of(each, self.rollouts) for each in self.rollouts]


def as_group(given: Any) -> RolloutGroup:
    """Return a group as it is, and a sample as a group without rollouts; refuse the rest."""
    group = RolloutGroup(given) if isinstance(given, Sample) else given
    if not isinstance(group, RolloutGroup):
        raise UsageError(f"expected a `Sample` or a `RolloutGroup`, got {short_repr(given)}")
    return group


def has_failed(result: EvalResult[Any]) -> bool:
    """Return whether the rollout itself failed; one whose evaluator failed is a rollout."""
    return result.trajectory is None or result.error_source not in (None, "evaluator")


def trajectory_of(result: EvalResult[Any], among: Sequence[EvalResult[Any]]) -> Trajectory[Any]:
    """Return the trajectory of a rollout; raise `RolloutError` if it failed.

    A failed rollout is neither left out, since trajectories are zipped with samples, nor replaced
    by an empty trajectory, which a score function would score.
    """
    if result.trajectory is None or has_failed(result):
        raise RolloutError(
            f"expected a rollout to score or to train on, got one of sample {result.sample_id!r} "
            f"that failed: {result.error} ({sum(map(has_failed, among))} of {len(among)} failed) - "
            "pass `score_fn` to `generate_rollouts` and read `groups`, where the reward of a "
            "failed rollout is None, or skip results that have an `error`"
        )
    return result.trajectory


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
