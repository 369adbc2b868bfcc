"""95% intervals cover the truth in 95 of 100 runs, and equal agents differ in 5 of 100.

If all outcomes can be enumerated, the coverage is exact; else it is simulated with fixed seeds. A
simulation of 1,000 runs has an error of about 1.4 points.
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
from weakincentives.evals.stats import (
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


def passes(passed: int, n: int) -> list[float]:
    return [1.0] * passed + [0.0] * (n - passed)


def coverage(truth: float, intervals: list[Interval]) -> float:
    return float(np.mean([truth in interval for interval in intervals]))


# One rate: exact


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_wilson_covers_95_percent(n: int, rate: float) -> None:
    probabilities = stats.binom.pmf(range(n + 1), n, rate)
    covered = sum(probabilities[k] for k in range(n + 1) if rate in rate_interval(k, n))

    if n > 10:
        assert 0.93 <= covered <= 0.97
    else:
        # Ten attempts have eleven outcomes. Any interval that contains the truth for the likeliest
        # outcomes has one of these coverages, and none of them is from 93 to 97 %.
        steps = np.cumsum(sorted(probabilities, reverse=True))
        if rate == 0.5:
            steps = steps[::2]  # the middle, then pairs that are symmetric about it
        assert not any(0.93 <= step <= 0.97 for step in steps)
        assert min(abs(covered - steps)) < 1e-9
        assert covered == pytest.approx(0.979 if rate == 0.5 else 0.914, abs=5e-4)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("n", SIZES)
def test_wilson_covers_95_percent_averaged_over_nearby_rates(n: int, rate: float) -> None:
    """The discrete steps average out over nearby rates, even with ten attempts."""
    rates = np.linspace(rate - 0.045, rate + 0.045, 91)
    intervals = [rate_interval(k, n) for k in range(n + 1)]
    low, high = np.array([i.low for i in intervals]), np.array([i.high for i in intervals])
    probabilities = stats.binom.pmf(np.arange(n + 1)[:, None], n, rates)
    inside = (low[:, None] <= rates) & (rates <= high[:, None])

    assert 0.93 <= (probabilities * inside).sum(axis=0).mean() <= 0.975


# Two rates: exact


@cache
def all_pairs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every count of (fixed, broken) with its interval and p-value."""
    counts, ends, p_values = [], [], []
    for fixed in range(n + 1):
        for broken in range(min(fixed, n - fixed) + 1):
            same = [1.0] * (n - fixed - broken)
            difference = paired_difference(
                [0.0] * fixed + [1.0] * broken + same, [1.0] * fixed + [0.0] * broken + same
            )
            low, high = difference.delta.low, difference.delta.high
            counts += [(fixed, broken, len(same)), (broken, fixed, len(same))][
                : 1 + (fixed > broken)
            ]
            ends += [(low, high), (-high, -low)][: 1 + (fixed > broken)]
            p_values += [difference.p_value] * (1 + (fixed > broken))
    return np.array(counts), np.array(ends), np.array(p_values)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("fixing", "breaking"), [(0.05, 0.05), (0.25, 0.25), (0.3, 0.1)])
def test_paired_rates_cover_95_percent(n: int, fixing: float, breaking: float) -> None:
    counts, ends, p_values = all_pairs(n)
    probabilities = stats.multinomial.pmf(counts, n, [fixing, breaking, 1 - fixing - breaking])
    delta = fixing - breaking
    covered = probabilities[(ends[:, 0] <= delta) & (delta <= ends[:, 1])].sum()
    rejected = probabilities[p_values < 0.05].sum()

    if n > 10:
        assert 0.93 <= covered <= 0.97
    else:  # few outcomes: the coverage may exceed 97 %, but is not below 93 %
        assert covered >= 0.93
    if fixing == breaking:
        assert rejected <= 0.05


@cache
def all_unpaired(n: int) -> tuple[np.ndarray, np.ndarray]:
    ends, p_values = np.empty((n + 1, n + 1, 2)), np.empty((n + 1, n + 1))
    for a in range(n + 1):
        for b in range(a + 1):
            difference = unpaired_difference(passes(a, n), passes(b, n))
            ends[a, b] = difference.delta.low, difference.delta.high
            ends[b, a] = -difference.delta.high, -difference.delta.low
            p_values[a, b] = p_values[b, a] = difference.p_value
    return ends, p_values


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_unpaired_rates_cover_95_percent(n: int, rate: float) -> None:
    ends, p_values = all_unpaired(n)
    one_run = stats.binom.pmf(range(n + 1), n, rate)
    probabilities = np.outer(one_run, one_run)
    covered = probabilities[(ends[..., 0] <= 0) & (ends[..., 1] >= 0)].sum()
    rejected = probabilities[p_values < 0.05].sum()

    if n * min(rate, 1 - rate) >= 5:
        assert 0.93 <= covered <= 0.97
        assert 0.03 <= rejected <= 0.06
    else:  # few failures or few passes: conservative
        assert covered >= 0.97
        assert rejected <= 0.05


# Means: simulated


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("shape", ["normal", "uniform"])
def test_t_covers_95_percent(n: int, shape: str) -> None:
    rng = np.random.default_rng(n)
    runs = (rng.normal(0.5, 1, (RUNS, n)) if shape == "normal" else rng.random((RUNS, n))).tolist()

    assert 0.93 <= coverage(0.5, [mean_interval(run) for run in runs]) <= 0.97


@pytest.mark.parametrize(("n", "min_coverage"), [(10, 0.88), (30, 0.91), (100, 0.93)])
def test_the_bootstrap_covers_95_percent_for_large_runs_and_less_for_small_ones(
    n: int, min_coverage: float
) -> None:
    """Ten values say little about the tails; t is the better choice for them."""
    runs = np.random.default_rng(n).normal(size=(RUNS, n)).tolist()
    intervals = [bootstrap_interval(run, resamples=500, seed=seed) for seed, run in enumerate(runs)]

    assert min_coverage <= coverage(0.0, intervals) <= 0.97


def clustered_runs(samples: int, rate: float, alike: float) -> list[list[float]]:
    """Return runs of five epochs; the rates of samples vary less if `alike` is large.

    If `alike` is 0, some samples never pass and the others pass at 99 %.
    """
    rng = np.random.default_rng(samples)
    if alike:
        sample_rates = rng.beta(alike * rate, alike * (1 - rate), (RUNS, samples, 1))
    else:
        sample_rates = np.where(rng.random((RUNS, samples, 1)) < rate / 0.99, 0.99, 0.0)
    return (rng.random((RUNS, samples, 5)) < sample_rates).reshape(RUNS, -1).astype(float).tolist()


@pytest.mark.parametrize("alike", [10, 2, 0.5, 0])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("samples", [30, 100])
def test_clustered_rates_cover_95_percent(samples: int, rate: float, alike: float) -> None:
    names = [n // 5 for n in range(samples * 5)]
    runs = clustered_runs(samples, rate, alike)

    # Above 97 % for extreme rates: too few attempts carry information about the variance.
    max_coverage = 0.975 if rate == 0.5 else 0.995
    assert 0.93 <= coverage(rate, [clustered_rate_interval(r, names) for r in runs]) <= max_coverage


def test_an_interval_that_ignores_clusters_covers_far_less() -> None:
    runs = clustered_runs(30, 0.05, 2)
    unclustered = [rate_interval(int(sum(run)), 150) for run in runs]

    assert coverage(0.05, unclustered) < 0.85


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
    """Each agent is good at some samples, so its epochs are correlated."""
    rng = np.random.default_rng(samples)
    names = [n // 4 for n in range(samples * 4)]
    rejected, rejected_unclustered = [], []
    for _ in range(RUNS):
        sample_rates = rng.beta(0.5, 0.5, (2, samples, 1))
        before, after = (
            (rng.random((2, samples, 4)) < sample_rates).reshape(2, -1).astype(float).tolist()
        )
        rejected.append(paired_difference(before, after, clusters=names).p_value < 0.05)
        rejected_unclustered.append(paired_difference(before, after).p_value < 0.05)

    assert 0.035 <= np.mean(rejected) <= 0.065
    assert np.mean(rejected_unclustered) > 0.15


# Looking during a run


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_confidence_sequence_is_valid_at_every_look(rate: float) -> None:
    runs = (np.random.default_rng(3).random((200, 400)) < rate).tolist()
    runs_missed, wilson_runs_missed = 0, 0
    for run in runs:
        sequence, passed, missed, wilson_missed = ConfidenceSequence(), 0, False, False
        for n, value in enumerate(run, 1):
            sequence.add(value)
            passed += value
            if n % 20 == 0:
                missed |= rate not in sequence.interval
                wilson_missed |= rate not in rate_interval(passed, n)
        runs_missed += missed
        wilson_runs_missed += wilson_missed

    assert runs_missed <= 0.05 * len(runs)
    assert wilson_runs_missed > 0.2 * len(runs)


def report(passed: list[bool]) -> EvalReport[None]:
    return EvalReport(EvalResult(str(n), Score(float(value))) for n, value in enumerate(passed))


def test_runs_of_the_same_agent_rarely_differ() -> None:
    claims = 0
    pairs = soak_size(50, 200)
    for seed in range(pairs):
        rng = random.Random(seed)
        a, b = ([rng.random() < 0.7 for _ in range(60)] for _ in "ab")
        claims += compare_runs(report(a), report(b)).measure.outcome != "none"
    assert claims <= 0.08 * pairs  # 5 %, plus random error
