"""Do 95% intervals hold the truth in 95 of 100 runs, and do runs of the same agent differ in 5?

Where all outcomes can be counted, the coverage is exact; else it is simulated with fixed seeds. A
simulation of 1,000 is right to about 1.4 points.
"""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from scipy import stats

from tests.soak import soak_size
from weakincentives.evals import EvalReport, EvalResult, Score
from weakincentives.evals.comparison.compare import compare_runs
from weakincentives.evals.statistics import (
    ConfidenceSequence,
    Interval,
    bootstrap_interval,
    clustered_rate_interval,
    mean_interval,
    paired_difference,
    permutation_test,
    rate_interval,
    unpaired_difference,
    wilcoxon,
)

# The other tests cover the same code, and measuring it here would double the time.
pytestmark = [pytest.mark.soak, pytest.mark.no_cover]

SIZES = [10, 30, 100]
RATES = [0.05, 0.5, 0.95]
RUNS = soak_size(1000, 5000)


def runs_of(passed: int, n: int) -> list[float]:
    return [1.0] * passed + [0.0] * (n - passed)


def share_holding(truth: float, intervals: list[Interval]) -> float:
    return float(np.mean([truth in interval for interval in intervals]))


# One rate: exact


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_wilson_covers_95_percent(n: int, rate: float) -> None:
    chances = stats.binom.pmf(range(n + 1), n, rate)
    covered = sum(chances[k] for k in range(n + 1) if rate in rate_interval(k, n))

    if n > 10:
        assert 0.93 <= covered <= 0.97
    else:
        # Ten attempts have eleven outcomes. Whatever the interval, so long as it holds the truth
        # for the likeliest outcomes, it covers one of these steps, and none is from 93 to 97 %.
        steps = np.cumsum(sorted(chances, reverse=True))
        if rate == 0.5:
            steps = steps[::2]  # the middle, then both sides of it alike
        assert not any(0.93 <= step <= 0.97 for step in steps)
        assert min(abs(covered - steps)) < 1e-9
        assert covered == pytest.approx(0.979 if rate == 0.5 else 0.914, abs=5e-4)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("n", SIZES)
def test_wilson_covers_95_percent_with_a_rate_that_is_not_fixed(n: int, rate: float) -> None:
    """The steps of single rates even out over the rates around them, at ten attempts too."""
    rates = np.linspace(rate - 0.045, rate + 0.045, 91)
    found = [rate_interval(k, n) for k in range(n + 1)]
    low, high = np.array([i.low for i in found]), np.array([i.high for i in found])
    chances = stats.binom.pmf(np.arange(n + 1)[:, None], n, rates)
    inside = (low[:, None] <= rates) & (rates <= high[:, None])

    assert 0.93 <= (chances * inside).sum(axis=0).mean() <= 0.975


# Two rates: exact


@cache
def all_pairs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every count of (fixed, broken) with its interval and p-value."""
    counts, ends, p_values = [], [], []
    for fixed in range(n + 1):
        for broken in range(min(fixed, n - fixed) + 1):
            same = [1.0] * (n - fixed - broken)
            found = paired_difference(
                [0.0] * fixed + [1.0] * broken + same, [1.0] * fixed + [0.0] * broken + same
            )
            low, high = found.delta.low, found.delta.high
            counts += [(fixed, broken, len(same)), (broken, fixed, len(same))][
                : 1 + (fixed > broken)
            ]
            ends += [(low, high), (-high, -low)][: 1 + (fixed > broken)]
            p_values += [found.p_value] * (1 + (fixed > broken))
    return np.array(counts), np.array(ends), np.array(p_values)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("fixing", "breaking"), [(0.05, 0.05), (0.25, 0.25), (0.3, 0.1)])
def test_paired_rates_cover_95_percent(n: int, fixing: float, breaking: float) -> None:
    counts, ends, p_values = all_pairs(n)
    chances = stats.multinomial.pmf(counts, n, [fixing, breaking, 1 - fixing - breaking])
    delta = fixing - breaking
    covered = chances[(ends[:, 0] <= delta) & (delta <= ends[:, 1])].sum()
    rejected = chances[p_values < 0.05].sum()

    if n > 10:
        assert 0.93 <= covered <= 0.97
    else:  # few changes in ten samples have few outcomes: the steps go past 97 %, not below 93 %
        assert covered >= 0.93
    if fixing == breaking:
        assert rejected <= 0.05


@cache
def all_unpaired(n: int) -> tuple[np.ndarray, np.ndarray]:
    ends, p_values = np.empty((n + 1, n + 1, 2)), np.empty((n + 1, n + 1))
    for a in range(n + 1):
        for b in range(a + 1):
            found = unpaired_difference(runs_of(a, n), runs_of(b, n))
            ends[a, b] = found.delta.low, found.delta.high
            ends[b, a] = -found.delta.high, -found.delta.low
            p_values[a, b] = p_values[b, a] = found.p_value
    return ends, p_values


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_unpaired_rates_cover_95_percent(n: int, rate: float) -> None:
    ends, p_values = all_unpaired(n)
    each = stats.binom.pmf(range(n + 1), n, rate)
    chances = np.outer(each, each)
    covered = chances[(ends[..., 0] <= 0) & (ends[..., 1] >= 0)].sum()
    rejected = chances[p_values < 0.05].sum()

    if n * min(rate, 1 - rate) >= 5:
        assert 0.93 <= covered <= 0.97
        assert 0.03 <= rejected <= 0.06
    else:  # few failures, or few passes: careful, never hasty
        assert covered >= 0.97
        assert rejected <= 0.05


# Means: simulated


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("shape", ["normal", "uniform"])
def test_t_covers_95_percent(n: int, shape: str) -> None:
    rng = np.random.default_rng(n)
    runs = (rng.normal(0.5, 1, (RUNS, n)) if shape == "normal" else rng.random((RUNS, n))).tolist()

    assert 0.93 <= share_holding(0.5, [mean_interval(run) for run in runs]) <= 0.97


@pytest.mark.parametrize(("n", "least"), [(10, 0.88), (30, 0.91), (100, 0.93)])
def test_the_bootstrap_covers_95_percent_of_many_and_less_of_few(n: int, least: float) -> None:
    """Ten values do not show what the tails are like; t is the better choice there."""
    runs = np.random.default_rng(n).normal(size=(RUNS, n)).tolist()
    found = [bootstrap_interval(run, resamples=500, seed=seed) for seed, run in enumerate(runs)]

    assert least <= share_holding(0.0, found) <= 0.97


def clustered_runs(samples: int, rate: float, alike: float) -> list[list[float]]:
    """Runs of five epochs; the rate of each sample varies around the true one, less if alike.

    If `alike` is 0, some samples never pass and the others pass at 99 %.
    """
    rng = np.random.default_rng(samples)
    if alike:
        own = rng.beta(alike * rate, alike * (1 - rate), (RUNS, samples, 1))
    else:
        own = np.where(rng.random((RUNS, samples, 1)) < rate / 0.99, 0.99, 0.0)
    return (rng.random((RUNS, samples, 5)) < own).reshape(RUNS, -1).astype(float).tolist()


@pytest.mark.parametrize("alike", [10, 2, 0.5, 0])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("samples", [30, 100])
def test_clustered_rates_cover_95_percent(samples: int, rate: float, alike: float) -> None:
    names = [n // 5 for n in range(samples * 5)]
    runs = clustered_runs(samples, rate, alike)

    # Above 97 % where hardly any attempt passes or fails: too few show how the samples differ.
    most = 0.975 if rate == 0.5 else 0.995
    assert 0.93 <= share_holding(rate, [clustered_rate_interval(r, names) for r in runs]) <= most


def test_a_rate_that_ignores_clusters_covers_far_less() -> None:
    runs = clustered_runs(30, 0.05, 2)
    blind = [rate_interval(int(sum(run)), 150) for run in runs]

    assert share_holding(0.05, blind) < 0.85


# The same agent twice


@pytest.mark.parametrize("n", SIZES)
def test_the_same_agent_twice_differs_in_5_percent(n: int) -> None:
    rng = np.random.default_rng(n)
    before = rng.random((RUNS, n))
    after = 0.5 * before + 0.5 * rng.random((RUNS, n))
    before = 0.5 * before + 0.5 * rng.random((RUNS, n))
    pairs = [*zip(before.tolist(), after.tolist(), strict=True)]
    tests = {
        "paired": [paired_difference(old, new).p_value for old, new in pairs],
        "Wilcoxon": [wilcoxon(np.subtract(new, old).tolist()) for old, new in pairs],
        "unpaired": [
            unpaired_difference(old, new).p_value
            for old, new in zip(before.tolist(), rng.permutation(after[::-1]).tolist(), strict=True)
        ],
    }
    for name, p_values in tests.items():
        assert 0.035 <= np.mean(np.array(p_values) < 0.05) <= 0.065, name


def test_the_same_agent_twice_differs_in_5_percent_of_permutations() -> None:
    runs = np.random.default_rng(5).normal(size=(1000, 30)).tolist()
    p_values = [permutation_test(run, resamples=400, seed=seed) for seed, run in enumerate(runs)]

    assert 0.03 <= np.mean(np.array(p_values) <= 0.05) <= 0.07


@pytest.mark.parametrize("samples", [15, 40])
def test_the_same_agent_twice_with_epochs_differs_in_5_percent(samples: int) -> None:
    """Each agent has samples that it can do, so that its epochs repeat each other."""
    rng = np.random.default_rng(samples)
    names = [n // 4 for n in range(samples * 4)]
    rejected, blind = [], []
    for _ in range(RUNS):
        own = rng.beta(0.5, 0.5, (2, samples, 1))
        before, after = (rng.random((2, samples, 4)) < own).reshape(2, -1).astype(float).tolist()
        rejected.append(paired_difference(before, after, clusters=names).p_value < 0.05)
        blind.append(paired_difference(before, after).p_value < 0.05)

    assert 0.035 <= np.mean(rejected) <= 0.065
    assert np.mean(blind) > 0.15


# Looking while it runs


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_confidence_sequence_may_be_looked_at_all_the_time(rate: float) -> None:
    runs = (np.random.default_rng(3).random((200, 400)) < rate).tolist()
    missed, ordinary_missed = 0, 0
    for run in runs:
        seen, passed, wrong, ordinary_wrong = ConfidenceSequence(), 0, False, False
        for n, value in enumerate(run, 1):
            seen.add(value)
            passed += value
            if n % 20 == 0:
                wrong |= rate not in seen.interval
                ordinary_wrong |= rate not in rate_interval(passed, n)
        missed += wrong
        ordinary_missed += ordinary_wrong

    assert missed <= 0.05 * len(runs)
    assert ordinary_missed > 0.2 * len(runs)


def report(passed: list[bool]) -> EvalReport[None]:
    return EvalReport(EvalResult(str(n), Score(float(each))) for n, each in enumerate(passed))


def test_runs_of_the_same_agent_rarely_differ() -> None:
    claims = 0
    pairs = soak_size(50, 200)
    for seed in range(pairs):
        rng = random.Random(seed)
        a, b = ([rng.random() < 0.7 for _ in range(60)] for _ in "ab")
        claims += compare_runs(report(a), report(b)).measure.outcome != "none"
    assert claims <= 0.08 * pairs  # 5 %, and what chance adds
