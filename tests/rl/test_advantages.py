"""Advantages: golden numbers, edge cases, and the laws that they keep."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from weakincentives.errors import UsageError
from weakincentives.evals import Metric, Score
from weakincentives.rl import (
    compute_dr_grpo_advantages,
    compute_grpo_advantages,
    compute_rloo_advantages,
    compute_turn_advantages,
)

Compute = Callable[..., list[float]]
Pairs = list[tuple[float | None, str]]

ALL_METHODS = (compute_grpo_advantages, compute_dr_grpo_advantages, compute_rloo_advantages)
REWARDS = [1, 0, 0, 1, 1, 1, 0, 0.2]


@pytest.mark.parametrize(
    ("compute", "options", "first", "second"),
    [
        (compute_dr_grpo_advantages, {}, 0.475, -0.525),
        (compute_grpo_advantages, {"normalize": False}, 0.475, -0.525),
        (compute_grpo_advantages, {}, 0.9277, -1.0254),
        (compute_grpo_advantages, {"eps": 1e-4}, 0.9276, -1.0252),
        (compute_grpo_advantages, {"ddof": 0, "eps": 1e-8}, 0.9918, -1.0962),
        (compute_rloo_advantages, {}, 0.5429, -0.6),
    ],
)
def test_golden_numbers(
    compute: Compute, options: dict[str, Any], first: float, second: float
) -> None:
    advantages = compute(REWARDS, **options)

    assert [round(each, 4) for each in advantages[:2]] == [first, second]
    assert len(advantages) == len(REWARDS)


def test_without_groups_all_rewards_are_one_group() -> None:
    assert compute_grpo_advantages([1.0, 0.0]) == pytest.approx([0.5**0.5, -(0.5**0.5)], rel=1e-5)


@pytest.mark.parametrize("compute", ALL_METHODS)
def test_each_prompt_is_compared_with_itself(compute: Compute) -> None:
    a, b = compute([1, 0]), compute([10, 30, 50])

    assert compute([1, 10, 0, 30, 50], ["a", "b", "a", "b", "b"]) == [a[0], b[0], a[1], b[1], b[2]]


@pytest.mark.parametrize("compute", ALL_METHODS)
def test_one_or_equal_rewards_have_no_advantage(compute: Compute) -> None:
    assert compute([]) == []
    assert compute([5.0]) == [0.0]
    assert compute([1, 2, 3], ["a", "b", "c"]) == [0.0, 0.0, 0.0]
    assert compute([0.7, 0.7, 0.7]) == [0.0, 0.0, 0.0]
    assert compute([0.1 + 0.2, 0.3, 0.3]) == [0.0, 0.0, 0.0]
    assert compute([1e-16, 0.0]) == [0.0, 0.0]


@pytest.mark.parametrize("compute", ALL_METHODS)
def test_a_failed_attempt_is_in_no_baseline(compute: Compute) -> None:
    good = compute([1, 0, 0])

    assert compute([1, None, 0, 0]) == [good[0], 0.0, *good[1:]]
    assert compute([1, None]) == [0.0, 0.0]
    assert compute([None, None]) == [0.0, 0.0]


@pytest.mark.parametrize("compute", ALL_METHODS)
@pytest.mark.parametrize(
    ("rewards", "groups", "error"),
    [
        ([1, math.nan], None, r"rewards\[1\]"),
        ([math.inf, 1], None, r"rewards\[0\]"),
        ([1, "2"], None, r"rewards\[1\]"),
        ([1, 2], ["a"], "each of the 2 rewards, got 1"),
        ([1, 2], [["a"], ["b"]], r"hashable.*groups\[0\]"),
    ],
)
def test_invalid_rewards_and_groups_are_refused(
    compute: Compute, rewards: Any, groups: Any, error: str
) -> None:
    with pytest.raises(UsageError, match=error):
        compute(rewards, groups)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(UsageError, match="ddof"):
        compute_grpo_advantages([1, 0], ddof=2)
    with pytest.raises(UsageError, match="eps"):
        compute_grpo_advantages([1, 0], eps=-1)


# ── laws ────────────────────────────────────────────────────────────────────────────────────────

rewards = st.integers(-8, 8).map(lambda eighths: eighths / 8)  # exact in floats, as are their sums
attempts = st.lists(st.tuples(st.none() | rewards, st.sampled_from("abc")), max_size=12)
computes = st.sampled_from(ALL_METHODS)


def unzip(pairs: Pairs) -> tuple[list[float | None], list[str]]:
    return [reward for reward, _ in pairs], [group for _, group in pairs]


@given(computes, attempts)
def test_the_advantages_of_a_group_add_up_to_zero(compute: Compute, pairs: Pairs) -> None:
    advantages = compute(*unzip(pairs))

    for name in "abc":
        assert math.fsum(a for a, (_, g) in zip(advantages, pairs, strict=True) if g == name) == (
            pytest.approx(0, abs=1e-9)
        )


@given(computes, attempts, rewards)
def test_a_shift_of_a_prompts_rewards_changes_nothing(
    compute: Compute, pairs: Pairs, shift: float
) -> None:
    moved = [(None if r is None else r + (shift if g == "a" else 0), g) for r, g in pairs]

    assert compute(*unzip(moved)) == pytest.approx(compute(*unzip(pairs)), abs=1e-9)


@given(attempts, st.sampled_from([0.5, 2.0, 8.0]))
def test_twice_the_reward_is_twice_the_advantage_unless_normalised(
    pairs: Pairs, factor: float
) -> None:
    rewards_given, groups = unzip(pairs)
    grown = [None if each is None else each * factor for each in rewards_given]

    for compute in (compute_dr_grpo_advantages, compute_rloo_advantages):
        assert compute(grown, groups) == [factor * each for each in compute(rewards_given, groups)]
    assert compute_grpo_advantages(grown, groups, eps=0) == pytest.approx(
        compute_grpo_advantages(rewards_given, groups, eps=0)
    )


@given(computes, attempts.flatmap(lambda pairs: st.tuples(st.just(pairs), st.permutations(pairs))))
def test_order_does_not_matter(compute: Compute, both: tuple[Pairs, Pairs]) -> None:
    pairs, shuffled = both
    by_pair = dict(zip(shuffled, compute(*unzip(shuffled)), strict=True))

    assert compute(*unzip(pairs)) == [by_pair[pair] for pair in pairs]


@given(attempts)
def test_leave_one_out_is_the_mean_times_n_over_n_minus_one(pairs: Pairs) -> None:
    rewards_given, groups = unzip(pairs)
    sizes = {name: sum(r is not None and g == name for r, g in pairs) for name in "abc"}

    assert compute_rloo_advantages(rewards_given, groups) == pytest.approx(
        [
            a * sizes[g] / (sizes[g] - 1) if sizes[g] > 1 else 0.0
            for a, g in zip(compute_dr_grpo_advantages(rewards_given, groups), groups, strict=True)
        ]
    )


# ── turns ───────────────────────────────────────────────────────────────────────────────────────


def score_of_steps(*steps: float, outcome: float = 0.0) -> Score:
    """Return a score with one metric of equal weight per step, and one for the outcome.

    There are always four, so that the reward is proportional to their sum.
    """
    all_steps = [*steps, *[0.0] * (3 - len(steps))]
    metrics = [Metric(f"step{k}", v, 1.0, {"turn": k}) for k, v in enumerate(all_steps)]
    return Score(metrics=(*metrics, Metric("outcome", outcome, 1.0)))


def test_a_turn_gets_no_credit_for_earlier_rewards() -> None:
    scores = [score_of_steps(4, 0, outcome=4), score_of_steps(0, 4, outcome=0)]

    advantages = compute_turn_advantages(scores, [2, 2])

    # Rewards 2 and 1; from the second turn on, 1 and 1.
    assert advantages == [[0.5, 0.0], [-0.5, 0.0]]


def test_without_turns_every_turn_has_the_advantage_of_the_whole() -> None:
    scores = [Score(1.0), Score(0.0), None, Score(0.5)]
    whole = compute_dr_grpo_advantages([1.0, 0.0, None, 0.5])

    advantages = compute_turn_advantages(scores, [3, 1, 0, 2])

    assert advantages == [[each] * n for each, n in zip(whole, [3, 1, 0, 2], strict=True)]


def test_a_finished_rollout_counts_in_the_baseline_of_later_turns() -> None:
    scores = [score_of_steps(4, 4, outcome=4), score_of_steps(4, outcome=0)]

    advantages = compute_turn_advantages(scores, [2, 1], advantages=compute_rloo_advantages)

    # Returns 3 and 1; from the second turn on 2, against the other's 0.
    assert advantages == [[2.0, 2.0], [-2.0]]


def test_every_score_needs_its_number_of_turns() -> None:
    with pytest.raises(UsageError, match="expected 2 numbers of turns, one a score, got 1"):
        compute_turn_advantages([Score(1.0), None], [1])


@pytest.mark.parametrize("turn", [-1, 1.0, "1", True])
def test_a_turn_is_the_number_of_a_reply(turn: Any) -> None:
    score = Score(metrics=[Metric("step", 1, 1.0, {"turn": turn})])

    with pytest.raises(UsageError, match="metric 'step'"):
        compute_turn_advantages([score, score], [2, 2])


def test_a_metric_without_weight_is_no_reward_in_any_turn() -> None:
    odd = Score(metrics=[Metric("tracked", 9, 0.0, {"turn": "late"}), Metric("right", 1, 1.0)])

    assert compute_turn_advantages([odd, Score(0.0)], [2, 2]) == [[0.5, 0.5], [-0.5, -0.5]]


CONTINUE_PROBABILITY = 0.6  # probability that the policy takes another turn, up to three


def episodes() -> list[tuple[float, list[int], list[float]]]:
    """Return all episodes of a policy that continues or stops: the probability of each, its
    decision in each turn, and the gradient of each decision's log-likelihood."""
    episodes_found = []
    for decisions in ([0], [1, 0], [1, 1, 0], [1, 1, 1]):
        chance = math.prod(
            CONTINUE_PROBABILITY if each else 1 - CONTINUE_PROBABILITY for each in decisions
        )
        episodes_found.append(
            (
                chance,
                decisions,
                [1 - CONTINUE_PROBABILITY if each else -CONTINUE_PROBABILITY for each in decisions],
            )
        )
    return episodes_found


def test_the_gradient_is_the_true_one_though_the_policy_decides_when_to_stop() -> None:
    """Sum exactly over all pairs of episodes. Steps earn 1, 2 and 4 if the policy continues."""
    each = episodes()
    score = {
        i: score_of_steps(*[a * 4 * 2**k for k, a in enumerate(d)])
        for i, (_, d, _) in enumerate(each)
    }
    true = sum(p * score[i].reward * sum(grad) for i, (p, _, grad) in enumerate(each))
    own = naive = 0.0
    for (i, (p, d, grad)), (j, (q, e, _)) in product(enumerate(each), repeat=2):
        (advantages, _) = compute_turn_advantages(
            [score[i], score[j]], [len(d), len(e)], advantages=compute_rloo_advantages
        )
        own += p * q * sum(a * g for a, g in zip(advantages, grad, strict=True))
        naive += p * q * sum(a * g for a, g in zip(_turn_by_turn(d, e), grad, strict=True))

    assert own == pytest.approx(true, rel=1e-12)
    assert abs(naive - true) > 0.1 * abs(true)  # the wrong method, for comparison


def _turn_by_turn(own: list[int], other: list[int]) -> list[float]:
    """Return the advantage of each turn: the sum of later rewards, less the other's, if any."""
    less = []
    for k, went in enumerate(own):
        baseline = other[k] * 2.0**k if k < len(other) else 0.0
        less.append(went * 2.0**k - baseline)
    return [sum(less[k:]) for k in range(len(less))]


@pytest.mark.parametrize(
    ("advantages", "error"),
    [
        ([1.0], "expected 2 numbers from `advantages`, .* got 1"),
        ([1.0, math.nan], r"advantages\[1\]"),
    ],
)
def test_custom_advantages_must_be_one_number_per_reward(
    advantages: list[float], error: str
) -> None:
    with pytest.raises(UsageError, match=error):
        compute_turn_advantages(
            [Score(1.0), Score(0.0)], [1, 1], advantages=lambda rewards, groups: advantages
        )
