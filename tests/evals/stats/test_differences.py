"""Comparisons of two runs, checked with SciPy, published numbers or the definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from weakincentives.evals.stats import (
    Z_95,
    mcnemar,
    paired_difference,
    permutation_test,
    standard_error,
    unpaired_difference,
    wilcoxon,
)

BEFORE = np.random.default_rng(2).normal(size=25).tolist()
AFTER = np.random.default_rng(3).normal(0.4, 2, size=25).tolist()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def paired_passes(fixed: int, broken: int, n: int) -> tuple[list[float], list[float]]:
    """Return the passes of two runs of n samples with these numbers of fixed and broken ones."""
    same = [0.0] * (n - fixed - broken)
    return [0.0] * fixed + [1.0] * broken + same, [1.0] * fixed + [0.0] * broken + same


def passes(passed: int, n: int) -> list[float]:
    return [1.0] * passed + [0.0] * (n - passed)


def test_the_paired_t_test_agrees_with_scipy() -> None:
    scipy = stats.ttest_rel(AFTER, BEFORE)
    expected = scipy.confidence_interval()
    difference = paired_difference(BEFORE, AFTER)
    changes = np.subtract(AFTER, BEFORE)

    assert difference.p_value == pytest.approx(scipy.pvalue, rel=1e-9)
    assert (difference.delta.low, difference.delta.high) == pytest.approx(
        (expected.low, expected.high), rel=1e-9
    )
    assert difference.effect_size == pytest.approx(changes.mean() / changes.std(ddof=1))
    assert (difference.fixed, difference.broken) == ((changes > 0).sum(), (changes < 0).sum())
    assert (difference.test, difference.pairs) == ("paired t", 25)


def test_paired_runs_have_a_smaller_standard_error_than_unpaired_ones() -> None:
    before, after = [1, 1, 0, 1, 0, 1, 1, 0], [1, 0, 0, 1, 0, 0, 1, 0]
    changes = np.subtract(after, before).tolist()

    assert standard_error(changes) == pytest.approx(0.163663, abs=5e-7)
    assert math.hypot(standard_error(before), standard_error(after)) == pytest.approx(
        0.258775, abs=5e-7
    )


@pytest.mark.parametrize(
    ("fixed", "broken", "n"), [(0, 1, 44), (9, 3, 40), (1, 0, 1), (20, 60, 99)]
)
def test_the_score_test_just_rejects_at_the_ends_of_tangos_interval(
    fixed: int, broken: int, n: int
) -> None:
    """Uses the test of Tango's paper; SciPy finds the maximum-likelihood rates at each end."""
    interval = paired_difference(*paired_passes(fixed, broken, n)).delta
    for end, sign in ((interval.low, 1), (interval.high, -1)):
        if abs(end) == 1:
            continue

        def negative_log_likelihood(b: float, end: float = end) -> float:
            parts = (fixed, b + end), (broken, b), (n - fixed - broken, 1 - 2 * b - end)
            return -sum(k * math.log(max(p, 1e-300)) for k, p in parts if k)

        bounds = max(0.0, -end), (1 - end) / 2
        b = optimize.minimize_scalar(
            negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-12}
        ).x
        score = (fixed - broken - n * end) / math.sqrt(n * (2 * b + end - end * end))
        assert score == pytest.approx(sign * Z_95, rel=1e-3)


def test_tangos_interval_is_the_published_one() -> None:
    # Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014): airway reactivity.
    difference = paired_difference(*paired_passes(1, 7, 21)).delta

    assert (difference.low, difference.high) == pytest.approx((-0.517, -0.026), abs=5e-4)


@pytest.mark.parametrize(("fixed", "broken"), [(0, 0), (5, 0), (8, 1), (10, 25), (400, 480)])
def test_mcnemar_agrees_with_scipys_binomial_test_less_half_of_the_outcome(
    fixed: int, broken: int
) -> None:
    n = fixed + broken
    expected = stats.binomtest(fixed, n).pvalue if n else 1.0
    half = stats.binom.pmf(fixed, n, 0.5) if n else 0.0

    assert mcnemar(fixed, broken, exact=True) == pytest.approx(expected, rel=1e-10)
    assert mcnemar(fixed, broken) == pytest.approx(expected - half, rel=1e-10)
    difference = paired_difference(*paired_passes(fixed, broken, n + 10))
    assert (difference.p_value, difference.test) == (mcnemar(fixed, broken), "McNemar, mid-p")
    assert (difference.fixed, difference.broken) == (fixed, broken)


def test_as_many_fixed_as_broken_have_a_p_value_of_one() -> None:
    assert mcnemar(3, 3) == mcnemar(0, 0) == pytest.approx(1.0)


def test_epochs_of_a_sample_are_one_observation() -> None:
    before = [1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1]
    after = [1, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1]
    samples = [n // 3 for n in range(12)]
    variance = np.subtract(after, before).reshape(4, 3).mean(axis=1).var(ddof=1) / 4
    pairs = (
        5 / 12 - (3 / 12) ** 2
    ) / variance  # this many independent pairs have the same variance
    difference = paired_difference(before, after, clusters=samples)

    assert 4 < pairs < 12
    assert difference.p_value == pytest.approx(mcnemar(4 * pairs / 12, pairs / 12), rel=1e-9)
    assert (difference.test, difference.delta.clusters) == ("McNemar, mid-p", 4)
    unclustered = paired_difference(before, after, clusters=range(12))
    assert unclustered.p_value == mcnemar(4, 1)


@pytest.mark.parametrize("epochs", [2, 3, 10])
def test_repeating_a_deterministic_agent_adds_no_evidence(epochs: int) -> None:
    """Four of a hundred samples are fixed, in every epoch."""
    before, after = paired_passes(4, 0, 100)
    once = paired_difference(before, after)
    names = [n // epochs for n in range(100 * epochs)]
    sides = ([value for value in side for _ in range(epochs)] for side in (before, after))
    repeated = paired_difference(*sides, clusters=names)

    assert repeated.p_value == pytest.approx(once.p_value, rel=0.05)
    assert repeated.p_value > 0.05
    assert (repeated.delta.low, repeated.delta.high) == pytest.approx(
        (once.delta.low, once.delta.high), abs=0.005
    )


def test_the_interval_has_a_width_even_if_nothing_changed() -> None:
    same = paired_difference([0.5] * 20, [0.5] * 20)
    epochs = paired_difference([1.0] * 20, [1.0] * 20, clusters=[n // 2 for n in range(20)])
    better = paired_difference([0.2, 0.4, 0.6] * 4, [0.3, 0.5, 0.7] * 4)

    assert same.p_value == epochs.p_value == 1.0
    assert same.delta.low < 0 < same.delta.high
    # Ten clusters carry less information than twenty samples.
    assert epochs.delta.high > same.delta.high
    assert better.p_value == mcnemar(12, 0, exact=True)
    assert better.effect_size is None
    assert better.delta.low < 0.1 < better.delta.high


def test_rounding_errors_are_neither_fixes_nor_breaks() -> None:
    difference = paired_difference([0.3, 0.7], [0.1 + 0.2, 0.7])

    assert (difference.fixed, difference.broken, difference.delta.estimate) == (0, 0, 0.0)


def test_the_unpaired_test_agrees_with_scipys_welch() -> None:
    scipy = stats.ttest_ind(AFTER, BEFORE[:17], equal_var=False)
    expected = scipy.confidence_interval()
    difference = unpaired_difference(BEFORE[:17], AFTER)

    assert difference.p_value == pytest.approx(scipy.pvalue, rel=1e-9)
    assert (difference.delta.low, difference.delta.high) == pytest.approx(
        (expected.low, expected.high), rel=1e-9
    )


@pytest.mark.parametrize(
    ("a", "m", "b", "n", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), 873-890, table II, method 10.
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (5, 56, 0, 29, -0.0381, 0.1926),
    ],
)
def test_unpaired_rates_have_the_published_interval(
    a: int, m: int, b: int, n: int, low: float, high: float
) -> None:
    before, after = [1.0] * b + [0.0] * (n - b), [1.0] * a + [0.0] * (m - a)
    difference = unpaired_difference(before, after)
    distribution = stats.hypergeom(m + n, a + b, m)
    tails = (
        distribution.cdf(a) - distribution.pmf(a) / 2,
        distribution.sf(a) + distribution.pmf(a) / 2,
    )
    expected = 2 * min(tails)

    assert (difference.delta.low, difference.delta.high) == pytest.approx((low, high), abs=5e-5)
    assert difference.p_value == pytest.approx(expected, rel=1e-9)
    h = 2 * math.asin(math.sqrt(a / m)) - 2 * math.asin(math.sqrt(b / n))
    assert difference.effect_size == pytest.approx(h)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(20, 100), (10, 200), (50, 200), (20, 20)])
def test_fishers_test_keeps_its_level_for_runs_of_different_sizes(m: int, n: int) -> None:
    """The chi-squared test reaches 8 %."""
    rejected = np.array(
        [
            [unpaired_difference(passes(a, m), passes(b, n)).p_value <= 0.05 for b in range(n + 1)]
            for a in range(m + 1)
        ]
    )
    sizes = [
        stats.binom.pmf(range(m + 1), m, p) @ rejected @ stats.binom.pmf(range(n + 1), n, p)
        for p in np.linspace(0.02, 0.5, 25)
    ]

    assert 0.04 < max(sizes) < 0.05


def test_two_runs_without_spread_are_compared_by_a_permutation_argument() -> None:
    difference = unpaired_difference([0.7] * 50, [0.9] * 50)

    assert difference.p_value < 1e-9
    assert 0.1 < difference.delta.low < 0.2 < difference.delta.high < 0.3
    assert unpaired_difference([0.7] * 3, [0.9] * 3).p_value == pytest.approx(2 / 20)
    assert unpaired_difference([0.7] * 5, [0.7] * 5).p_value == 1.0
    assert not unpaired_difference([12.0] * 5, [13.0] * 5).delta.known


def test_unpaired_runs_with_epochs_compare_the_means_of_samples(rng: np.random.Generator) -> None:
    before, after = rng.normal(size=(9, 4)), rng.normal(size=(7, 4)) + 1
    names = [n // 4 for n in range(36)], [n // 4 for n in range(28)]
    scipy = stats.ttest_ind(after.mean(axis=1), before.mean(axis=1), equal_var=False)
    difference = unpaired_difference(
        before.ravel().tolist(), after.ravel().tolist(), clusters=names
    )

    assert difference.p_value == pytest.approx(scipy.pvalue, rel=1e-9)
    assert unpaired_difference([1, 1], [1, 1]).p_value == 1.0


def test_wilcoxon_agrees_with_scipy(rng: np.random.Generator) -> None:
    changes = np.subtract(AFTER, BEFORE)
    many = rng.integers(-5, 7, size=400).astype(float)

    assert wilcoxon(changes.tolist()) == pytest.approx(stats.wilcoxon(changes).pvalue, rel=1e-9)
    scipy = stats.wilcoxon(many, method="asymptotic").pvalue
    assert wilcoxon(many.tolist()) == pytest.approx(scipy, rel=1e-9)
    assert wilcoxon([0.0, 0.0]) == wilcoxon([]) == 1.0
    assert wilcoxon([0.3 - 0.2, -0.1, 0.5]) == wilcoxon([0.1, -0.1, 0.5])


def test_wilcoxon_is_exact_even_with_ties() -> None:
    changes = [1.0, -1.0, 2.0, 2.0, -3.0, 3.0, 3.0, 4.0]
    ranks = stats.rankdata(np.abs(changes))
    sums = [
        sum(r for r, positive in zip(ranks, signs, strict=True) if positive)
        for signs in itertools.product((0, 1), repeat=8)
    ]
    smaller_sum = min(
        positive_sum := sum(r for r, d in zip(ranks, changes, strict=True) if d > 0),
        36 - positive_sum,
    )

    assert wilcoxon(changes) == pytest.approx(2 * np.mean(np.array(sums) <= smaller_sum))


@pytest.mark.parametrize("size", [10, 60])
def test_the_permutation_test_agrees_with_scipy(rng: np.random.Generator, size: int) -> None:
    changes = rng.normal(0.15, 1, size)
    scipy = stats.permutation_test(
        (changes,),
        np.mean,
        permutation_type="samples",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
        vectorized=True,
    ).pvalue
    exact = size == 10

    p_value = permutation_test(changes.tolist(), resamples=20_000)
    assert p_value == pytest.approx(scipy, rel=1e-9 if exact else 0.15)


def test_the_permutation_test_of_passes_agrees_with_exact_mcnemar() -> None:
    changes = [1.0] * 30 + [-1.0] * 17 + [0.0] * 100

    many = permutation_test(changes, resamples=100_000)
    assert many == pytest.approx(mcnemar(30, 17, exact=True), rel=0.05)
    assert permutation_test([1.0] * 5 + [-1.0] * 2) == pytest.approx(mcnemar(5, 2, exact=True))


def test_the_permutation_test_flips_the_signs_of_whole_clusters(rng: np.random.Generator) -> None:
    changes = rng.normal(0.3, 1, size=(12, 3))
    names = [n // 3 for n in range(36)]
    p_value = permutation_test(changes.ravel().tolist(), clusters=names)

    assert p_value == pytest.approx(permutation_test(changes.sum(axis=1).tolist()))
    assert permutation_test([]) == permutation_test([0.0, 0.0]) == 1.0
    assert permutation_test([], clusters=[]) == 1.0
