"""Distributions and intervals of one run, checked with SciPy or with their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from weakincentives.evals.stats import (
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
def test_students_t_agrees_with_scipy_to_ten_digits(df: float) -> None:
    for t in (1e-6, 0.3, 1, 2, 3.5, 10, 50):
        assert t_two_sided(t, df) == pytest.approx(2 * stats.t.sf(t, df), abs=1e-10, rel=1e-9)
    for probability in (0.55, 0.9, 0.975, 0.995, 1 - 1e-6):
        assert t_quantile(probability, df) == pytest.approx(stats.t.ppf(probability, df), rel=1e-10)


def test_an_infinite_t_has_probability_0() -> None:
    assert t_two_sided(math.inf, 5) == 0.0


@pytest.mark.parametrize("n", [1, 10, 100, 10_000])
@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 0.95])
def test_binomial_tails_agree_with_scipy(n: int, p: float) -> None:
    for k in {-1, 0, 1, n // 20, n // 2, n - 1, n}:
        expected = stats.binom.cdf(k, n, p)
        assert binomial_cdf(k, n, p) == pytest.approx(expected, rel=1e-10, abs=1e-250)


def test_the_normal_distribution_agrees_with_scipy() -> None:
    for x in (-8.0, -1.0, 0.0, 0.5, 3.0):
        assert normal_cdf(x) == pytest.approx(stats.norm.cdf(x), rel=1e-12)
    assert normal_quantile(0.975) == pytest.approx(Z_95, rel=1e-15)


# Intervals


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("passed", "n"), [(0, 3), (1, 20), (18, 20), (500, 1000)])
def test_the_wilson_interval_agrees_with_scipy(passed: int, n: int, confidence: float) -> None:
    expected = stats.binomtest(passed, n).proportion_ci(confidence, method="wilson")
    interval = rate_interval(passed, n, confidence=confidence)

    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_t_interval_of_a_mean_agrees_with_scipy() -> None:
    expected = stats.ttest_1samp(SKEWED, 0).confidence_interval(0.9)
    interval = mean_interval(SKEWED, confidence=0.9)

    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), rel=1e-10)
    assert standard_error(SKEWED) == pytest.approx(stats.sem(SKEWED), rel=1e-12)


def test_the_clustered_error_is_the_sandwich_estimator_with_g_over_g_minus_1() -> None:
    values, pairs = [1, 1, 0, 0, 1, 0, 1, 1], [1, 1, 2, 2, 3, 3, 4, 4]
    scaled = mean_interval([10 * value for value in values], clusters=pairs)

    assert standard_error(values) == pytest.approx(0.182981, abs=5e-7)
    assert standard_error(values, clusters=pairs) == pytest.approx(0.239357, abs=5e-7)
    assert scaled.high - scaled.estimate == pytest.approx(2.39357 * stats.t.ppf(0.975, 3), rel=1e-5)
    assert (scaled.n, scaled.clusters) == (8, 4)


def test_scores_that_are_mostly_perfect_have_an_asymmetric_interval() -> None:
    interval = mean_interval([1.0] * 48 + [0.4, 0.2])

    assert interval.high < 1.0
    assert interval.estimate - interval.low > 2 * (interval.high - interval.estimate)
    assert interval.method == "Wilson, effective n"


def test_costs_between_0_and_1_are_not_treated_as_shares() -> None:
    costs = [0.0] + [0.004, 0.005, 0.006] * 33
    t = stats.ttest_1samp(costs, 0).confidence_interval()
    interval = mean_interval(costs, shares=False)

    assert (interval.low, interval.high) == pytest.approx((t.low, t.high))
    assert mean_interval(costs).high > 2 * interval.high
    assert not mean_interval([0.5, 0.5], shares=False).known


def test_more_passes_never_lower_the_low_end() -> None:
    """In particular, 100 passes of 100 are not worse than 99."""
    samples = [n // 5 for n in range(100)]
    attempts = [0.0] * 100
    order = np.random.default_rng(4).permutation(100)
    low_ends = [clustered_rate_interval(attempts, samples).low]
    for index in order:
        attempts[index] = 1.0
        low_ends.append(clustered_rate_interval(attempts, samples).low)

    assert low_ends == sorted(low_ends)
    assert low_ends[-1] > 0.8


def test_clusters_of_equal_size_are_equivalent_to_their_means(rng: np.random.Generator) -> None:
    cells = rng.normal(size=(12, 5))
    names = [row for row in range(12) for _ in range(5)]

    clustered = mean_interval(cells.ravel().tolist(), clusters=names)
    plain = mean_interval(cells.mean(axis=1).tolist())

    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high), rel=1e-10)


def test_clusters_of_one_attempt_are_nearly_equivalent_to_no_clusters() -> None:
    interval = clustered_rate_interval([1.0] * 700 + [0.0] * 300, range(1000))
    plain = rate_interval(700, 1000)

    assert (interval.low, interval.high) == pytest.approx((plain.low, plain.high), abs=1e-4)


def test_bootstrap_agrees_with_scipys_bca() -> None:
    scipy = stats.bootstrap(
        (SKEWED,), np.mean, n_resamples=50_000, method="BCa", rng=np.random.default_rng(1)
    ).confidence_interval
    interval = bootstrap_interval(SKEWED, resamples=50_000)

    width = scipy.high - scipy.low
    assert (interval.low, interval.high) == pytest.approx((scipy.low, scipy.high), abs=0.02 * width)


def test_bootstrap_of_few_levels_draws_from_the_same_distribution() -> None:
    """Equal values are drawn by their counts: the interval is as wide as with single draws."""
    levels = [0.0] * 30 + [0.5] * 40 + [1.0] * 30
    distinct = [value + 1e-9 * n for n, value in enumerate(levels)]
    few, many = bootstrap_interval(levels), bootstrap_interval(distinct)

    assert (few.low, few.high) == pytest.approx((many.low, many.high), abs=0.006)


def test_bootstrap_of_equal_clusters_is_equivalent_to_their_means(rng: np.random.Generator) -> None:
    cells = rng.lognormal(size=(40, 3))
    names = [row for row in range(40) for _ in range(3)]
    interval = bootstrap_interval(cells.ravel().tolist(), clusters=names, seed=3)
    plain = bootstrap_interval(cells.mean(axis=1).tolist(), seed=3)

    assert (interval.low, interval.high) == pytest.approx((plain.low, plain.high), rel=1e-9)


def test_unequal_clusters_widen_the_bootstrap_as_much_as_t(rng: np.random.Generator) -> None:
    names = [n for n in range(60) for _ in range(1 + n % 4)]
    shared = rng.normal(size=60)
    values = [float(shared[name]) for name in names]
    interval, plain = (f(values, clusters=names) for f in (bootstrap_interval, mean_interval))

    assert interval.high - interval.low == pytest.approx(plain.high - plain.low, rel=0.1)


def test_percentiles_lie_between_order_statistics() -> None:
    interval = percentile_interval([float(n) for n in range(1, 101)], 0.5)

    # The ranks in published tables for the median of 100 are 40 and 61.
    assert (interval.low, interval.estimate, interval.high) == (40.0, 50.5, 61.0)
    few = percentile_interval([float(n) for n in range(1, 31)], 0.95)
    assert str(few) == "28.55, 95% interval 26 to unknown, n = 30"


@pytest.mark.parametrize("n", [10, 30, 100])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.95])
def test_percentile_intervals_have_at_least_their_nominal_coverage(n: int, q: float) -> None:
    interval = percentile_interval([float(rank) for rank in range(1, n + 1)], q)
    below = stats.binom.cdf(interval.low - 1, n, q) if math.isfinite(interval.low) else 0.0
    above = stats.binom.sf(interval.high - 1, n, q) if math.isfinite(interval.high) else 0.0

    assert max(below, above) <= 0.025
    assert interval.estimate == pytest.approx(np.quantile(range(1, n + 1), q))


# Unknown intervals


def test_equal_values_are_not_certainty() -> None:
    assert str(rate_interval(0, 3)) == "0, 95% interval 0 to 0.5615, n = 3"
    three = mean_interval([0.7, 0.7, 0.7])
    all_ones = mean_interval([1.0] * 10)

    assert three.low < 0.7 < three.high <= 1.0
    assert rate_interval(7, 7).low < all_ones.low < rate_interval(10, 10).low
    assert bootstrap_interval([0.7, 0.7, 0.7]) == three
    assert not mean_interval([12.0, 12.0]).known  # a latency has no upper bound


def test_one_value_has_no_interval() -> None:
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


def test_an_interval_states_its_number_of_clusters() -> None:
    interval = Interval(0.5, 0.25, 0.75, 2000, 500, 0.9)

    assert str(interval) == "0.5, 90% interval 0.25 to 0.75, n = 2,000 in 500 clusters"
    assert 0.3 in interval
    assert 0.8 not in interval
