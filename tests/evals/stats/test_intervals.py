"""Distributions and intervals of one run, against SciPy or against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from weakincentives.evals.statistics import (
    Z_95,
    Interval,
    bootstrap_interval,
    clustered_rate_interval,
    mean_interval,
    paired_difference,
    percentile_interval,
    rate_interval,
    standard_error,
    unpaired_difference,
)
from weakincentives.evals.stats.distributions import (
    binomial_cdf,
    normal_cdf,
    normal_quantile,
    t_quantile,
    t_two_sided,
)

SKEWED = np.random.default_rng(1).lognormal(size=40).tolist()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# Distributions


@pytest.mark.parametrize("df", [1, 2, 3.7, 9, 29, 99, 999, 1e4, 1e5])
def test_students_t_is_scipys_to_ten_digits(df: float) -> None:
    for t in (1e-6, 0.3, 1, 2, 3.5, 10, 50):
        assert t_two_sided(t, df) == pytest.approx(2 * stats.t.sf(t, df), abs=1e-10, rel=1e-9)
    for chance in (0.55, 0.9, 0.975, 0.995, 1 - 1e-6):
        assert t_quantile(chance, df) == pytest.approx(stats.t.ppf(chance, df), rel=1e-10)


def test_t_of_infinity_is_impossible() -> None:
    assert t_two_sided(math.inf, 5) == 0.0


@pytest.mark.parametrize("n", [1, 10, 100, 10_000])
@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 0.95])
def test_binomial_tails_are_scipys(n: int, p: float) -> None:
    for k in {-1, 0, 1, n // 20, n // 2, n - 1, n}:
        expected = stats.binom.cdf(k, n, p)
        assert binomial_cdf(k, n, p) == pytest.approx(expected, rel=1e-10, abs=1e-250)


def test_the_normal_curve_is_scipys() -> None:
    for x in (-8.0, -1.0, 0.0, 0.5, 3.0):
        assert normal_cdf(x) == pytest.approx(stats.norm.cdf(x), rel=1e-12)
    assert normal_quantile(0.975) == pytest.approx(Z_95, rel=1e-15)


# Intervals


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("passed", "n"), [(0, 3), (1, 20), (18, 20), (500, 1000)])
def test_rates_have_scipys_wilson_interval(passed: int, n: int, confidence: float) -> None:
    expected = stats.binomtest(passed, n).proportion_ci(confidence, method="wilson")
    found = rate_interval(passed, n, confidence=confidence)

    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_means_have_scipys_t_interval() -> None:
    expected = stats.ttest_1samp(SKEWED, 0).confidence_interval(0.9)
    found = mean_interval(SKEWED, confidence=0.9)

    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-10)
    assert standard_error(SKEWED) == pytest.approx(stats.sem(SKEWED), rel=1e-12)


def test_the_clustered_error_is_the_sandwich_with_g_over_g_less_one() -> None:
    values, pairs = [1, 1, 0, 0, 1, 0, 1, 1], [1, 1, 2, 2, 3, 3, 4, 4]
    times = mean_interval([10 * value for value in values], clusters=pairs)

    assert standard_error(values) == pytest.approx(0.182981, abs=5e-7)
    assert standard_error(values, clusters=pairs) == pytest.approx(0.239357, abs=5e-7)
    assert times.high - times.estimate == pytest.approx(2.39357 * stats.t.ppf(0.975, 3), rel=1e-5)
    assert (times.n, times.clusters) == (8, 4)


def test_scores_that_are_mostly_perfect_have_an_interval_that_leans_to_the_middle() -> None:
    found = mean_interval([1.0] * 48 + [0.4, 0.2])

    assert found.high < 1.0
    assert found.estimate - found.low > 2 * (found.high - found.estimate)
    assert found.method == "Wilson, effective n"


def test_dollars_from_0_to_1_are_no_scores() -> None:
    costs = [0.0] + [0.004, 0.005, 0.006] * 33
    t = stats.ttest_1samp(costs, 0).confidence_interval()
    found = mean_interval(costs, shares=False)

    assert (found.low, found.high) == pytest.approx((t.low, t.high))
    assert mean_interval(costs).high > 2 * found.high
    assert not mean_interval([0.5, 0.5], shares=False).known


def test_more_passes_never_lower_the_low_end() -> None:
    """A hundred of a hundred is no worse than ninety-nine."""
    samples = [n // 5 for n in range(100)]
    attempts = [0.0] * 100
    order = np.random.default_rng(4).permutation(100)
    low_ends = [clustered_rate_interval(attempts, samples).low]
    for at in order:
        attempts[at] = 1.0
        low_ends.append(clustered_rate_interval(attempts, samples).low)

    assert low_ends == sorted(low_ends)
    assert low_ends[-1] > 0.8


def test_clusters_of_equal_size_are_their_means(rng: np.random.Generator) -> None:
    cells = rng.normal(size=(12, 5))
    names = [row for row in range(12) for _ in range(5)]

    clustered = mean_interval(cells.ravel().tolist(), clusters=names)
    plain = mean_interval(cells.mean(axis=1).tolist())

    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high), rel=1e-10)


def test_clusters_of_one_attempt_are_no_clusters_but_for_t() -> None:
    found = clustered_rate_interval([1.0] * 700 + [0.0] * 300, range(1000))
    plain = rate_interval(700, 1000)

    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), abs=1e-4)


def test_bootstrap_is_scipys_bca() -> None:
    theirs = stats.bootstrap(
        (SKEWED,), np.mean, n_resamples=50_000, method="BCa", rng=np.random.default_rng(1)
    ).confidence_interval
    found = bootstrap_interval(SKEWED, resamples=50_000)

    width = theirs.high - theirs.low
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.02 * width)


def test_bootstrap_of_few_levels_draws_from_the_same_distribution() -> None:
    """Many equal values are drawn by their counts: as wide as when each is drawn."""
    levels = [0.0] * 30 + [0.5] * 40 + [1.0] * 30
    apart = [value + 1e-9 * n for n, value in enumerate(levels)]
    few, many = bootstrap_interval(levels), bootstrap_interval(apart)

    assert (few.low, few.high) == pytest.approx((many.low, many.high), abs=0.006)


def test_bootstrap_of_equal_clusters_is_that_of_their_means(rng: np.random.Generator) -> None:
    cells = rng.lognormal(size=(40, 3))
    names = [row for row in range(40) for _ in range(3)]
    found = bootstrap_interval(cells.ravel().tolist(), clusters=names, seed=3)
    plain = bootstrap_interval(cells.mean(axis=1).tolist(), seed=3)

    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), rel=1e-9)


def test_unequal_clusters_widen_the_bootstrap_as_they_widen_t(rng: np.random.Generator) -> None:
    names = [n for n in range(60) for _ in range(1 + n % 4)]
    shared = rng.normal(size=60)
    values = [float(shared[name]) for name in names]
    found, plain = (f(values, clusters=names) for f in (bootstrap_interval, mean_interval))

    assert found.high - found.low == pytest.approx(plain.high - plain.low, rel=0.1)


def test_percentiles_lie_between_order_statistics() -> None:
    found = percentile_interval([float(n) for n in range(1, 101)], 0.5)

    # The ranks that tables give for the median of 100: 40 and 61.
    assert (found.low, found.estimate, found.high) == (40.0, 50.5, 61.0)
    few = percentile_interval([float(n) for n in range(1, 31)], 0.95)
    assert str(few) == "28.55, 95% interval 26 to unknown, n = 30"


@pytest.mark.parametrize("n", [10, 30, 100])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.95])
def test_percentile_intervals_never_cover_less_than_they_say(n: int, q: float) -> None:
    found = percentile_interval([float(rank) for rank in range(1, n + 1)], q)
    below = stats.binom.cdf(found.low - 1, n, q) if math.isfinite(found.low) else 0.0
    above = stats.binom.sf(found.high - 1, n, q) if math.isfinite(found.high) else 0.0

    assert max(below, above) <= 0.025
    assert found.estimate == pytest.approx(np.quantile(range(1, n + 1), q))


# What is unknown


def test_the_same_value_again_and_again_is_not_certainty() -> None:
    assert str(rate_interval(0, 3)) == "0, 95% interval 0 to 0.5615, n = 3"
    three = mean_interval([0.7, 0.7, 0.7])
    everything = mean_interval([1.0] * 10)

    assert three.low < 0.7 < three.high <= 1.0
    assert rate_interval(7, 7).low < everything.low < rate_interval(10, 10).low
    assert bootstrap_interval([0.7, 0.7, 0.7]) == three
    assert not mean_interval([12.0, 12.0]).known  # a time could be anything


def test_one_value_says_nothing_about_the_rest() -> None:
    assert str(mean_interval([0.5])) == "0.5, 95% interval unknown, n = 1"
    assert str(mean_interval([])) == "unknown, n = 0"
    assert str(percentile_interval([], 0.5)) == "unknown, n = 0"
    assert not mean_interval([0.1, 0.9], clusters=["same", "same"]).known
    assert clustered_rate_interval([1, 0], ["same", "same"]).low == 0.0
    assert standard_error([0.5]) == math.inf
    assert not paired_difference([], []).delta.known
    assert paired_difference([0.3], [0.4]).p_value is None
    assert unpaired_difference([], [1.0]).p_value is None
    assert unpaired_difference([0.3], [0.4]).p_value is None


def test_an_interval_says_how_many_clusters_there_were() -> None:
    found = Interval(0.5, 0.25, 0.75, 2000, 500, 0.9)

    assert str(found) == "0.5, 90% interval 0.25 to 0.75, n = 2,000 in 500 clusters"
    assert 0.3 in found
    assert 0.8 not in found
