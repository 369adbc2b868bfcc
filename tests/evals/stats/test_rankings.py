"""Bradley-Terry strengths from comparisons of two, and the bias for long outputs."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import optimize, stats

from weakincentives.errors import UsageError
from weakincentives.evals.stats import Match, bradley_terry, length_bias


def matches(
    rng: np.random.Generator, strengths: dict[str, float], samples: int = 60, ties: float = 0.0
) -> list[Match]:
    """Return a match of each pair on each sample, won as the strengths say."""
    drawn: list[Match] = []
    for sample in range(samples):
        for a, b in combinations(strengths, 2):
            chance = 1 / (1 + math.exp(strengths[b] - strengths[a]))
            won = 0.5 if rng.random() < ties else float(rng.random() < chance)
            drawn.append((sample, a, b, won))
    return drawn


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_strengths_are_those_of_a_logistic_regression(rng: np.random.Generator) -> None:
    true = {"a": 1.0, "b": 0.2, "c": 0.0, "d": -1.2}
    drawn = matches(rng, true, ties=0.2)
    # Half a win and half a defeat in each pair, as `bradley_terry` adds them.
    rows = [(a, b, won, 1.0) for _, a, b, won in drawn]
    rows += [(a, b, 0.5, 1.0) for a, b in combinations(true, 2)]
    names = [*true]

    def loss(strengths: np.ndarray) -> float:
        total = 0.0
        for a, b, won, weight in rows:
            edge = strengths[names.index(a)] - strengths[names.index(b)]
            total += weight * (np.logaddexp(0, edge) - won * edge)
        return float(total)

    fitted = optimize.minimize(loss, np.zeros(4)).x
    found = {each.name: each.strength.estimate for each in bradley_terry(drawn).contenders}

    assert [found[name] for name in names] == pytest.approx(fitted - fitted.mean(), abs=1e-4)


def test_two_contenders_have_the_interval_of_jeffreys() -> None:
    drawn = [(n, "a", "b", float(n < 33)) for n in range(40)]

    chance = bradley_terry(drawn, resamples=4_000).win_probability("a", "b")

    exact = stats.beta(33.5, 7.5)
    assert chance.estimate == pytest.approx(33.5 / 41)
    assert (chance.low, chance.high) == pytest.approx(exact.interval(0.95), abs=0.015)


def test_wins_without_a_defeat_have_a_finite_strength_and_a_wide_interval() -> None:
    found = bradley_terry([(n, "a", "b", 1.0) for n in range(20)])

    chance = found.win_probability("a", "b")
    assert 0.8 < chance.low < 0.93
    assert chance.estimate < 1
    assert [each.rank for each in found.contenders] == ["1", "2"]


def test_a_sample_counts_once_however_often_it_is_judged(rng: np.random.Generator) -> None:
    once = matches(rng, {"a": 0.5, "b": 0.0, "c": -0.5})

    assert bradley_terry(once).contenders == bradley_terry([*once, *once, *once]).contenders


def test_the_order_of_two_contenders_in_a_match_does_not_matter(rng: np.random.Generator) -> None:
    drawn = matches(rng, {"a": 0.5, "b": 0.0})
    swapped = [drawn[0], *((sample, b, a, 1 - won) for sample, a, b, won in drawn[1:])]

    assert bradley_terry(swapped).contenders == bradley_terry(drawn).contenders


@pytest.mark.parametrize(("won", "ranks"), [(14, ["1-2", "1-2"]), (15, ["1", "2"])])
def test_few_samples_rank_only_what_a_coin_would_hardly_do(won: int, ranks: list[str]) -> None:
    """Of 20 tosses, a coin shows 14 heads or tails in 7.8 % of cases (mid-p), and 15 in 2.7 %."""
    drawn = [(sample, "one", "other", float(sample < won)) for sample in range(20)]

    assert [each.rank for each in bradley_terry(drawn).contenders] == ranks


def test_ranks_are_shared_by_contenders_that_cannot_be_told_apart() -> None:
    drawn: list[Match] = []
    for sample in range(60):
        drawn.append((sample, "one", "other", float(sample % 2)))
        drawn += [(sample, name, "weak", float(sample % 6 > 0)) for name in ("one", "other")]

    contenders = bradley_terry(drawn).contenders

    assert {each.name: each.rank for each in contenders} == {
        "one": "1-2",
        "other": "1-2",
        "weak": "3",
    }
    assert contenders[-1].name == "weak"


def test_equal_contenders_rarely_get_different_ranks(rng: np.random.Generator) -> None:
    equal = {"a": 0.0, "b": 0.0, "c": 0.0}
    ranked = [bradley_terry(matches(rng, equal, 40), resamples=200).contenders for _ in range(80)]

    assert np.mean([any(each.rank != "1-3" for each in found) for found in ranked]) < 0.15


def test_contenders_that_never_met_can_be_compared_through_a_third() -> None:
    drawn = [(n, "a", "b", float(n % 4 > 0)) for n in range(40)]
    drawn += [(n, "b", "c", float(n % 4 > 0)) for n in range(40)]

    chance = bradley_terry(drawn).win_probability("a", "c")

    assert chance.estimate > bradley_terry(drawn).win_probability("a", "b").estimate > 0.7


@pytest.mark.parametrize(
    ("drawn", "problem"),
    [
        ([], "expected matches between all contenders, .* got none"),
        ([(1, "a", "b", 1.0), (1, "c", "d", 1.0)], "got none of a with c, d"),
        ([(1, "a", "a", 1.0)], "expected two contenders"),
        ([(1, "a", "b", 2.0)], "a result from 0 to 1"),
    ],
)
def test_matches_that_rank_nobody_are_refused(drawn: list[Match], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        bradley_terry(drawn)


def test_an_unknown_contender_is_refused() -> None:
    found = bradley_terry([(1, "a", "b", 1.0)])
    with pytest.raises(UsageError, match="expected two of a, b, got 'a' and 'x'"):
        found.win_probability("a", "x")


# ── length ──────────────────────────────────────────────────────────────────────────────────────


def long_ones(
    rng: np.random.Generator, bias: float, often: float, samples: int = 300
) -> list[tuple[int, str, str, float, int]]:
    """Return matches of `a`, which is better and longer this often, with `b`."""
    drawn = []
    for sample in range(samples):
        longer = 1 if rng.random() < often else -1
        chance = 1 / (1 + math.exp(-(1.0 + bias * longer)))
        drawn.append((sample, "a", "b", float(rng.random() < chance), longer))
    return drawn


def test_a_judge_that_likes_long_outputs_is_found_out(rng: np.random.Generator) -> None:
    bias = length_bias(long_ones(rng, 0.8, 0.6))

    assert 1 / (1 + math.exp(-0.8)) in bias
    assert bias.low > 0.5


def test_a_better_contender_that_writes_longer_outputs_is_no_bias(rng: np.random.Generator) -> None:
    assert 0.5 in length_bias(long_ones(rng, 0.0, 0.8))


def test_the_bias_is_the_same_whoever_comes_first(rng: np.random.Generator) -> None:
    drawn = long_ones(rng, 0.5, 0.5)
    swapped = [(sample, b, a, 1 - won, -longer) for sample, a, b, won, longer in drawn]

    assert length_bias(swapped) == length_bias(drawn)


def test_if_one_is_always_longer_its_advantage_is_unknown(rng: np.random.Generator) -> None:
    bias = length_bias(long_ones(rng, 1.0, 1.0))

    assert (bias.low, bias.high) == (0.0, 1.0)
