"""Advantages: how much better a rollout did than others of the same prompt.

Rules of this file:
1. Pure functions of floats, in the order of the rewards.
2. A reward of None is a failed attempt: it is part of no baseline, and its advantage is 0.0. The
   advantage of a single reward in its group is 0.0, too.
3. Rewards that are equal up to rounding have an advantage of exactly 0.0.
4. Sums are exact (`fsum`), so the order within a group does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

from ..errors import UsageError, short_repr
from ..evals import Metric, Score
from ..internal.checks import finite

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
    """Return GRPO advantages: the distance from the mean of the group, in standard deviations.

        A_i = (r_i - mean(r)) / (std(r) + eps)        std divides by n - ddof

    `groups` names the prompt of each reward, by anything hashable; without it, all rewards are of
    one prompt. With `normalize=False` the mean alone is removed, as in Dr. GRPO.

    >>> [round(a, 4) for a in compute_grpo_advantages([1, 0, 0, 1, 1, 1, 0, 0.2])][:2]
    [0.9277, -1.0254]
    """
    if ddof not in (0, 1):
        raise UsageError(f"expected 0 or 1 for `ddof`, got {short_repr(ddof)}")
    if finite(eps, "eps") < 0:
        raise UsageError(f"expected `eps` >= 0, got {short_repr(eps)}")

    def scaled(found: list[float]) -> list[float]:
        deviations = _from_mean(found)
        if not normalize:
            return deviations
        std = math.sqrt(math.fsum(each * each for each in deviations) / (len(deviations) - ddof))
        return [each / (std + eps) for each in deviations]

    return _by_group(rewards, groups, scaled)


def compute_dr_grpo_advantages(rewards: Rewards, groups: Groups | None = None) -> list[float]:
    """Return Dr. GRPO advantages: the distance from the mean of the group, without division.

        A_i = r_i - mean(r)

    A division by the spread gives prompts that are nearly always or hardly ever solved as much
    weight as those in between. (The other half of Dr. GRPO, a loss that is not divided by the
    length of a reply, is the backend's.) This is the default of `run_rl_training`.

    >>> compute_dr_grpo_advantages([1, 0, 1, 1], ["a", "a", "b", "b"])
    [0.5, -0.5, 0.0, 0.0]
    """
    return _by_group(rewards, groups, _from_mean)


def compute_rloo_advantages(rewards: Rewards, groups: Groups | None = None) -> list[float]:
    """Return RLOO advantages: the distance from the mean of the others in the group.

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
    """Return an advantage for each turn, if metrics say in which turn they were earned.

    A metric with `metadata={"turn": k}` and a weight was earned by the model's reply k, counted
    from 0; one without, at the end. The reward is still the weighted mean of the metrics; a reply
    gets no credit for metrics of earlier turns.

        G_i(t)  =  reward_i  -  sum over metrics with turn < t of  weight x value / all weights
        A_i(t)  =  advantages of G_1(t) ... G_n(t), the returns of the group from turn t on

    Every member counts in the baseline of every turn, even one that has ended: it has earned all
    it ever will. So the baseline of a turn depends on the turn and on other rollouts, never on how
    long this one continues. (The mean of those rollouts that reached each turn, taken off turn by
    turn and summed, would depend on it, and reward or punish the policy for another turn.)

    `turns` is the number of replies of each rollout; a score of None is a failed attempt.
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
    """Apply a function for advantages; check that it returns a finite number for each reward."""
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
    """Return the turn in which a weighted metric was earned, if it says so."""
    turn = metric.metadata.get("turn") if metric.weight else None
    if turn is not None and (type(turn) is not int or turn < 0):
        raise UsageError(
            f"expected a reply's number, from 0, as `turn` of metric {metric.name!r}, got {turn!r}"
        )
    return turn


def is_flat(rewards: Rewards) -> bool:
    """Return whether there is nothing to learn from: at most one reward, or all equal."""
    found = [reward for reward in rewards if reward is not None]
    return not found or math.isclose(min(found), max(found), rel_tol=ROUNDING, abs_tol=ROUNDING)


def _earned(score: Score, turn: int) -> float:
    """Return the part of the reward that was earned before this turn."""
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
    """Apply `compare` to the rewards of each group; return the values in the original order."""
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
                    f"expected something hashable as a group, got {short_repr(name)} - "
                    f"at `groups[{index}]`"
                ) from None
    compared: list[float] = [0.0] * len(rewards)
    for places in members.values():
        found = [values[place] for place in places]
        if not is_flat(found):
            for place, advantage in zip(places, compare(found), strict=True):
                compared[place] = advantage
    return compared
