"""Advantages: how much better a rollout did than others of the same prompt.

Rules of this file:
1. Pure functions, floats in and floats out, in the order of the rewards.
2. A reward of None is an attempt that failed: it is part of no baseline, and its advantage is 0.0.
   A group with one reward has nothing to be compared with, so its advantage is 0.0 too.
3. Rewards that are equal but for rounding have an advantage of exactly 0.0.
4. Sums are exact (`fsum`), so the order within a group changes nothing, not even the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

from ..errors import UsageError, shown
from ..evals import Metric, Score
from ..evals._score import finite

__all__ = [
    "Advantages",
    "compared",
    "compute_dr_grpo_advantages",
    "compute_grpo_advantages",
    "compute_rloo_advantages",
    "compute_turn_advantages",
    "is_flat",
    "turn_of",
]

Rewards = Sequence[float | None]
Groups = Sequence[Hashable]
Advantages = Callable[[Rewards, Groups], Sequence[float]]
"""Rewards and the group of each, to an advantage for each."""

ROUNDING = 1e-12  # two rewards this close, absolutely or relatively, are the same reward


def compute_grpo_advantages(
    rewards: Rewards,
    groups: Groups | None = None,
    *,
    normalize: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
) -> list[float]:
    """GRPO: the distance from the mean of the group, in standard deviations.

        A_i = (r_i - mean(r)) / (std(r) + eps)        std divides by n - ddof

    `groups` names the prompt of each reward, by anything hashable; without it, all rewards are of
    one prompt. With `normalize=False` the mean alone is removed, as in Dr. GRPO.

    >>> [round(a, 4) for a in compute_grpo_advantages([1, 0, 0, 1, 1, 1, 0, 0.2])][:2]
    [0.9277, -1.0254]
    """
    if ddof not in (0, 1):
        raise UsageError(f"expected 0 or 1 for `ddof`, got {shown(ddof)}")
    if finite(eps, "eps") < 0:
        raise UsageError(f"expected `eps` >= 0, got {shown(eps)}")

    def scaled(found: list[float]) -> list[float]:
        away = _from_mean(found)
        if not normalize:
            return away
        std = math.sqrt(math.fsum(each * each for each in away) / (len(away) - ddof))
        return [each / (std + eps) for each in away]

    return _by_group(rewards, groups, scaled)


def compute_dr_grpo_advantages(rewards: Rewards, groups: Groups | None = None) -> list[float]:
    """Dr. GRPO: the distance from the mean of the group, and no division.

        A_i = r_i - mean(r)

    A division by the spread gives prompts that are nearly always or hardly ever solved as much
    weight as those in between. (The other half of Dr. GRPO, a loss that is not divided by the
    length of a reply, is the backend's.) `run_rl_training` uses this one unless told otherwise.

    >>> compute_dr_grpo_advantages([1, 0, 1, 1], ["a", "a", "b", "b"])
    [0.5, -0.5, 0.0, 0.0]
    """
    return _by_group(rewards, groups, _from_mean)


def compute_rloo_advantages(rewards: Rewards, groups: Groups | None = None) -> list[float]:
    """RLOO: the distance from the mean of the others in the group, which leaves itself out.

        A_i = r_i - mean(r without r_i)  =  n / (n - 1) x (r_i - mean(r))

    >>> compute_rloo_advantages([1.0, 0.0, 0.0])
    [1.0, -0.5, -0.5]
    """

    def from_the_others(found: list[float]) -> list[float]:
        grown = len(found) / (len(found) - 1)
        return [grown * each for each in _from_mean(found)]

    return _by_group(rewards, groups, from_the_others)


def compute_turn_advantages(
    scores: Sequence[Score | None],
    turns: Sequence[int],
    groups: Groups | None = None,
    *,
    advantages: Advantages = compute_dr_grpo_advantages,
) -> list[list[float]]:
    """An advantage for each turn, where metrics say in which turn they were earned.

    A metric with `metadata={"turn": k}` and a weight was earned by the model's reply k, counted
    from 0; one without, at the end. The reward stays what it is, the weighted mean of the metrics;
    the turn says who may take credit: a reply none for what was earned before it.

        G_i(t)  =  reward_i  -  sum over metrics with turn < t of  weight x value / all weights
        A_i(t)  =  advantages of G_1(t) ... G_n(t), the returns of the group from turn t on

    Every member counts in the baseline of every turn, also one that has ended: it has earned all
    it ever will. So the baseline of a turn depends on the turn and on other rollouts, never on how
    long this one goes on. (The mean of those rollouts that reached each turn, taken off turn by
    turn and summed, would depend on it, and pay or fine the policy for another turn.)

    `turns` says how many replies each rollout has; a score of None is an attempt that failed.
    """
    names = [0] * len(scores) if groups is None else list(groups)
    if len(turns) != len(scores):
        raise UsageError(f"expected {len(scores)} numbers of turns, one a score, got {len(turns)}")
    columns = [
        compared(
            advantages,
            [None if s is None else s.reward - _earned(s, turn) for s in scores],
            names,
        )
        for turn in range(max(turns, default=0))
    ]
    return [[column[i] for column in columns[:length]] for i, length in enumerate(turns)]


def compared(advantages: Advantages, rewards: Rewards, groups: Groups) -> list[float]:
    """What a function, anyone's, makes of the rewards: a finite number for each."""
    found = [
        finite(each, f"advantages[{index}]")
        for index, each in enumerate(advantages(rewards, groups))
    ]
    if len(found) != len(rewards):
        raise UsageError(
            f"expected {len(rewards)} numbers from `advantages`, one for each reward, got "
            f"{len(found)}"
        )
    return found


def turn_of(metric: Metric) -> int | None:
    """The turn in which a metric that counts was earned, if it says so."""
    turn = metric.metadata.get("turn") if metric.weight else None
    if turn is not None and (type(turn) is not int or turn < 0):
        raise UsageError(
            f"expected a reply's number, from 0, as `turn` of metric {metric.name!r}, got {turn!r}"
        )
    return turn


def is_flat(rewards: Rewards) -> bool:
    """True where there is nothing to learn from: at most one reward, or all are equal."""
    found = [reward for reward in rewards if reward is not None]
    return not found or math.isclose(min(found), max(found), rel_tol=ROUNDING, abs_tol=ROUNDING)


def _earned(score: Score, turn: int) -> float:
    """The part of the reward that was earned before this turn."""
    total = math.fsum(metric.weight for metric in score.metrics)
    return math.fsum(
        metric.value * metric.weight / total
        for metric in score.metrics
        if (at := turn_of(metric)) is not None and at < turn
    )


def _from_mean(rewards: list[float]) -> list[float]:
    mean = math.fsum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def _by_group(
    rewards: Rewards,
    groups: Groups | None,
    compare: Callable[[list[float]], list[float]],
) -> list[float]:
    """What `compare` makes of the rewards of each group, put where each reward was."""
    names = [None] * len(rewards) if groups is None else groups
    if len(names) != len(rewards):
        raise UsageError(
            f"expected a group for each of the {len(rewards)} rewards, got {len(names)} groups"
        )
    members: dict[Hashable, list[int]] = {}
    values: list[float] = [0.0] * len(rewards)
    for index, (reward, name) in enumerate(zip(rewards, names, strict=True)):
        if reward is not None:
            values[index] = finite(reward, f"rewards[{index}]")
            try:
                members.setdefault(name, []).append(index)
            except TypeError:
                raise UsageError(
                    f"expected something hashable as a group, got {shown(name)} - "
                    f"at `groups[{index}]`"
                ) from None
    compared: list[float] = [0.0] * len(rewards)
    for places in members.values():
        found = [values[place] for place in places]
        if not is_flat(found):
            for place, advantage in zip(places, compare(found), strict=True):
                compared[place] = advantage
    return compared
