"""Bradley-Terry strengths from pairwise matches, and the bias for long outputs."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import optimize, stats

from tests.processes import outputs_by_hash_seed
from weakincentives.errors import UsageError
from weakincentives.evals.stats import Match, bradley_terry, length_bias


def simulate_matches(
    rng: np.random.Generator, strengths: dict[str, float], samples: int = 60, ties: float = 0.0
) -> list[Match]:
    """Return a match of each pair on each sample, with random winners by strength."""
    matches: list[Match] = []
    for sample in range(samples):
        for a, b in combinations(strengths, 2):
            probability = 1 / (1 + math.exp(strengths[b] - strengths[a]))
            won = 0.5 if rng.random() < ties else float(rng.random() < probability)
            matches.append((sample, a, b, won))
    return matches


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.slow
def test_strengths_agree_with_a_logistic_regression(rng: np.random.Generator) -> None:
    true = {"a": 1.0, "b": 0.2, "c": 0.0, "d": -1.2}
    matches = simulate_matches(rng, true, ties=0.2)
    # Half a win and half a defeat in each pair, as `bradley_terry` adds them.
    rows = [(a, b, won, 1.0) for _, a, b, won in matches]
    rows += [(a, b, 0.5, 1.0) for a, b in combinations(true, 2)]
    names = [*true]

    def loss(strengths: np.ndarray) -> float:
        total = 0.0
        for a, b, won, weight in rows:
            advantage = strengths[names.index(a)] - strengths[names.index(b)]
            total += weight * (np.logaddexp(0, advantage) - won * advantage)
        return float(total)

    fitted = optimize.minimize(loss, np.zeros(4)).x
    estimates = {
        contender.name: contender.strength.estimate
        for contender in bradley_terry(matches).contenders
    }

    assert [estimates[name] for name in names] == pytest.approx(fitted - fitted.mean(), abs=1e-4)


def test_two_contenders_have_the_jeffreys_interval() -> None:
    matches = [(n, "a", "b", float(n < 33)) for n in range(40)]

    probability = bradley_terry(matches, resamples=4_000).win_probability("a", "b")

    exact = stats.beta(33.5, 7.5)
    assert probability.estimate == pytest.approx(33.5 / 41)
    assert (probability.low, probability.high) == pytest.approx(exact.interval(0.95), abs=0.015)


def test_wins_without_a_defeat_have_a_finite_strength_and_a_wide_interval() -> None:
    table = bradley_terry([(n, "a", "b", 1.0) for n in range(20)])

    probability = table.win_probability("a", "b")
    assert 0.8 < probability.low < 0.93
    assert probability.estimate < 1
    assert [contender.rank for contender in table.contenders] == ["1", "2"]


def test_a_sample_counts_once_even_if_it_is_judged_several_times(rng: np.random.Generator) -> None:
    once = simulate_matches(rng, {"a": 0.5, "b": 0.0, "c": -0.5})

    assert bradley_terry(once).contenders == bradley_terry([*once, *once, *once]).contenders


def test_the_order_of_two_contenders_in_a_match_does_not_matter(rng: np.random.Generator) -> None:
    matches = simulate_matches(rng, {"a": 0.5, "b": 0.0})
    swapped = [matches[0], *((sample, b, a, 1 - won) for sample, a, b, won in matches[1:])]

    assert bradley_terry(swapped).contenders == bradley_terry(matches).contenders


@pytest.mark.parametrize(("won", "ranks"), [(14, ["1-2", "1-2"]), (15, ["1", "2"])])
def test_few_samples_rank_only_results_that_are_unlikely_by_luck(
    won: int, ranks: list[str]
) -> None:
    """In 20 tosses, 14 or more equal sides have probability 7.8 % (mid-p), and 15 have 2.7 %."""
    matches = [(sample, "one", "other", float(sample < won)) for sample in range(20)]

    assert [contender.rank for contender in bradley_terry(matches).contenders] == ranks


def test_contenders_that_cannot_be_distinguished_share_a_rank() -> None:
    matches: list[Match] = []
    for sample in range(60):
        matches.append((sample, "one", "other", float(sample % 2)))
        matches += [(sample, name, "weak", float(sample % 6 > 0)) for name in ("one", "other")]

    contenders = bradley_terry(matches).contenders

    assert {contender.name: contender.rank for contender in contenders} == {
        "one": "1-2",
        "other": "1-2",
        "weak": "3",
    }
    assert contenders[-1].name == "weak"


@pytest.mark.slow
def test_equal_contenders_rarely_get_different_ranks(rng: np.random.Generator) -> None:
    equal = {"a": 0.0, "b": 0.0, "c": 0.0}
    tables = [
        bradley_terry(simulate_matches(rng, equal, 40), resamples=200).contenders for _ in range(80)
    ]

    assert (
        np.mean([any(contender.rank != "1-3" for contender in contenders) for contenders in tables])
        < 0.15
    )


def test_contenders_that_never_met_can_be_compared_through_a_third() -> None:
    matches = [(n, "a", "b", float(n % 4 > 0)) for n in range(40)]
    matches += [(n, "b", "c", float(n % 4 > 0)) for n in range(40)]

    probability = bradley_terry(matches).win_probability("a", "c")

    assert probability.estimate > bradley_terry(matches).win_probability("a", "b").estimate > 0.7


@pytest.mark.parametrize(
    ("matches", "problem"),
    [
        ([], "expected matches between all contenders, .* got none"),
        ([(1, "a", "b", 1.0), (1, "c", "d", 1.0)], "got none of a with c, d"),
        ([(1, "a", "a", 1.0)], "expected two contenders"),
        ([(1, "a", "b", 2.0)], "a result from 0 to 1"),
    ],
)
def test_matches_that_do_not_connect_all_contenders_are_refused(
    matches: list[Match], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        bradley_terry(matches)


def test_an_unknown_contender_is_refused() -> None:
    table = bradley_terry([(1, "a", "b", 1.0)])
    with pytest.raises(UsageError, match="expected two of a, b, got 'a' and 'x'"):
        table.win_probability("a", "x")


# ── length ──────────────────────────────────────────────────────────────────────────────────────


def simulate_lengths(
    rng: np.random.Generator, bias: float, probability_longer: float, samples: int = 300
) -> list[tuple[int, str, str, float, int]]:
    """Return matches with `b` of the better `a`, which is longer with this probability."""
    matches = []
    for sample in range(samples):
        longer = 1 if rng.random() < probability_longer else -1
        probability = 1 / (1 + math.exp(-(1.0 + bias * longer)))
        matches.append((sample, "a", "b", float(rng.random() < probability), longer))
    return matches


def test_a_judge_that_prefers_long_outputs_is_detected(rng: np.random.Generator) -> None:
    bias = length_bias(simulate_lengths(rng, 0.8, 0.6))

    assert 1 / (1 + math.exp(-0.8)) in bias
    assert bias.low > 0.5


def test_a_better_contender_that_writes_longer_outputs_is_no_bias(rng: np.random.Generator) -> None:
    assert 0.5 in length_bias(simulate_lengths(rng, 0.0, 0.8))


@pytest.mark.slow
def test_the_bias_does_not_depend_on_the_order_of_the_contenders(rng: np.random.Generator) -> None:
    matches = simulate_lengths(rng, 0.5, 0.5)
    swapped = [(sample, b, a, 1 - won, -longer) for sample, a, b, won, longer in matches]

    assert length_bias(swapped) == length_bias(matches)


def test_the_bias_is_unknown_if_one_contender_is_always_longer(rng: np.random.Generator) -> None:
    bias = length_bias(simulate_lengths(rng, 1.0, 1.0))

    assert (bias.low, bias.high) == (0.0, 1.0)


@pytest.mark.slow
def test_the_bias_is_the_same_in_every_process() -> None:
    outputs = outputs_by_hash_seed(
        "from weakincentives.evals.stats import length_bias\n"
        "pairs = [('a', 'b'), ('b', 'c'), ('c', 'a'), ('c', 'd')]\n"
        "matches = [(n, *pairs[n % 4], n % 3 / 2, 1 - 2 * (n // 4 % 2)) for n in range(40)]\n"
        "print(length_bias(matches, resamples=50))"
    )

    assert len(outputs) == 1
