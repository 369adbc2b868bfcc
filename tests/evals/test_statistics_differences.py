"""Comparisons of two runs, against SciPy, the papers' own numbers or their definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from weakincentives.evals.statistics import (
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


def binaries(fixed: int, broken: int, n: int) -> tuple[list[float], list[float]]:
    """Runs of n samples in which so many were fixed and broken."""
    same = [0.0] * (n - fixed - broken)
    return [0.0] * fixed + [1.0] * broken + same, [1.0] * fixed + [0.0] * broken + same


def test_paired_values_have_scipys_paired_t() -> None:
    theirs = stats.ttest_rel(AFTER, BEFORE)
    expected = theirs.confidence_interval()
    found = paired_difference(BEFORE, AFTER)
    changes = np.subtract(AFTER, BEFORE)

    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (found.delta.low, found.delta.high) == pytest.approx(
        (expected.low, expected.high), rel=1e-9
    )
    assert found.effect_size == pytest.approx(changes.mean() / changes.std(ddof=1))
    assert (found.fixed, found.broken) == ((changes > 0).sum(), (changes < 0).sum())
    assert (found.test, found.pairs) == ("paired t", 25)


def test_pairing_sees_more_than_two_runs_side_by_side() -> None:
    before, after = [1, 1, 0, 1, 0, 1, 1, 0], [1, 0, 0, 1, 0, 0, 1, 0]
    changes = np.subtract(after, before).tolist()

    assert standard_error(changes) == pytest.approx(0.163663, abs=5e-7)
    assert math.hypot(standard_error(before), standard_error(after)) == pytest.approx(
        0.258775, abs=5e-7
    )


@pytest.mark.parametrize(
    ("fixed", "broken", "n"), [(0, 1, 44), (9, 3, 40), (1, 0, 1), (20, 60, 99)]
)
def test_tangos_ends_are_where_the_score_test_just_rejects(fixed: int, broken: int, n: int) -> None:
    """The test of Tango's paper, with SciPy to find the likeliest rates under each end."""
    found = paired_difference(*binaries(fixed, broken, n)).delta
    for end, sign in ((found.low, 1), (found.high, -1)):
        if abs(end) == 1:
            continue

        def unlikely(b: float, end: float = end) -> float:
            parts = (fixed, b + end), (broken, b), (n - fixed - broken, 1 - 2 * b - end)
            return -sum(k * math.log(max(p, 1e-300)) for k, p in parts if k)

        bounds = max(0.0, -end), (1 - end) / 2
        b = optimize.minimize_scalar(
            unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-12}
        ).x
        score = (fixed - broken - n * end) / math.sqrt(n * (2 * b + end - end * end))
        assert score == pytest.approx(sign * Z_95, rel=1e-3)


def test_tangos_interval_is_the_published_one() -> None:
    # Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014): airway reactivity.
    found = paired_difference(*binaries(1, 7, 21)).delta

    assert (found.low, found.high) == pytest.approx((-0.517, -0.026), abs=5e-4)


@pytest.mark.parametrize(("fixed", "broken"), [(0, 0), (5, 0), (8, 1), (10, 25), (400, 480)])
def test_mcnemar_is_scipys_binomial_test(fixed: int, broken: int) -> None:
    n = fixed + broken
    expected = stats.binomtest(fixed, n).pvalue if n else 1.0

    assert mcnemar(fixed, broken) == pytest.approx(expected, rel=1e-10)
    found = paired_difference(*binaries(fixed, broken, n + 10))
    assert (found.p_value, found.test) == (mcnemar(fixed, broken), "McNemar, exact")
    assert (found.fixed, found.broken) == (fixed, broken)


def test_epochs_of_a_sample_are_one_observation() -> None:
    before = [1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1]
    after = [1, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1]
    samples = [n // 3 for n in range(12)]
    changes = np.subtract(after, before).reshape(4, 3).mean(axis=1)
    found = paired_difference(before, after, clusters=samples)

    assert found.p_value == pytest.approx(stats.ttest_1samp(changes, 0).pvalue, rel=1e-9)
    assert (found.test, found.delta.clusters) == ("paired t, clustered", 4)
    alone = paired_difference(before, after, clusters=range(12))
    assert alone.test == "McNemar, exact"


def test_where_nothing_changed_the_interval_still_has_a_width() -> None:
    same = paired_difference([0.5] * 20, [0.5] * 20)
    epochs = paired_difference([1.0] * 20, [1.0] * 20, clusters=[n // 2 for n in range(20)])
    better = paired_difference([0.2, 0.4, 0.6] * 4, [0.3, 0.5, 0.7] * 4)

    assert same.p_value == epochs.p_value == 1.0
    assert same.delta.low < 0 < same.delta.high
    assert epochs.delta.high > same.delta.high  # ten clusters say less than twenty samples
    assert better.p_value == mcnemar(12, 0)
    assert better.effect_size is None
    assert better.delta.low < 0.1 < better.delta.high


def test_rounding_fixes_and_breaks_nothing() -> None:
    found = paired_difference([0.3, 0.7], [0.1 + 0.2, 0.7])

    assert (found.fixed, found.broken, found.delta.estimate) == (0, 0, 0.0)


def test_unpaired_values_have_scipys_welch() -> None:
    theirs = stats.ttest_ind(AFTER, BEFORE[:17], equal_var=False)
    expected = theirs.confidence_interval()
    found = unpaired_difference(BEFORE[:17], AFTER)

    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (found.delta.low, found.delta.high) == pytest.approx(
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
    found = unpaired_difference(before, after)
    chi2 = stats.chi2_contingency([[a, m - a], [b, n - b]], correction=False).statistic
    expected = stats.chi2.sf(chi2 * (m + n - 1) / (m + n), 1)

    assert (found.delta.low, found.delta.high) == pytest.approx((low, high), abs=5e-5)
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    h = 2 * math.asin(math.sqrt(a / m)) - 2 * math.asin(math.sqrt(b / n))
    assert found.effect_size == pytest.approx(h)


def test_unpaired_runs_with_epochs_compare_the_means_of_samples(rng: np.random.Generator) -> None:
    before, after = rng.normal(size=(9, 4)), rng.normal(size=(7, 4)) + 1
    names = [n // 4 for n in range(36)], [n // 4 for n in range(28)]
    theirs = stats.ttest_ind(after.mean(axis=1), before.mean(axis=1), equal_var=False)
    found = unpaired_difference(before.ravel().tolist(), after.ravel().tolist(), clusters=names)

    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert unpaired_difference([1, 1], [1, 1]).p_value == 1.0


def test_wilcoxon_is_scipys(rng: np.random.Generator) -> None:
    changes = np.subtract(AFTER, BEFORE)
    many = rng.integers(-5, 7, size=400).astype(float)

    assert wilcoxon(changes.tolist()) == pytest.approx(stats.wilcoxon(changes).pvalue, rel=1e-9)
    theirs = stats.wilcoxon(many, method="asymptotic").pvalue
    assert wilcoxon(many.tolist()) == pytest.approx(theirs, rel=1e-9)
    assert wilcoxon([0.0, 0.0]) == wilcoxon([]) == 1.0
    assert wilcoxon([0.3 - 0.2, -0.1, 0.5]) == wilcoxon([0.1, -0.1, 0.5])


def test_wilcoxon_is_exact_with_ties_as_well() -> None:
    changes = [1.0, -1.0, 2.0, 2.0, -3.0, 3.0, 3.0, 4.0]
    ranks = stats.rankdata(np.abs(changes))
    sums = [
        sum(r for r, up in zip(ranks, signs, strict=True) if up)
        for signs in itertools.product((0, 1), repeat=8)
    ]
    least = min(seen := sum(r for r, d in zip(ranks, changes, strict=True) if d > 0), 36 - seen)

    assert wilcoxon(changes) == pytest.approx(2 * np.mean(np.array(sums) <= least))


@pytest.mark.parametrize("size", [10, 60])
def test_the_permutation_test_is_scipys(rng: np.random.Generator, size: int) -> None:
    changes = rng.normal(0.15, 1, size)
    theirs = stats.permutation_test(
        (changes,),
        np.mean,
        permutation_type="samples",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
        vectorized=True,
    ).pvalue
    exact = size == 10

    found = permutation_test(changes.tolist(), resamples=20_000)
    assert found == pytest.approx(theirs, rel=1e-9 if exact else 0.15)


def test_the_permutation_test_of_passes_is_mcnemars() -> None:
    changes = [1.0] * 30 + [-1.0] * 17 + [0.0] * 100

    assert permutation_test(changes, resamples=100_000) == pytest.approx(mcnemar(30, 17), rel=0.05)
    assert permutation_test([1.0] * 5 + [-1.0] * 2) == pytest.approx(mcnemar(5, 2))


def test_the_permutation_test_turns_clusters_together(rng: np.random.Generator) -> None:
    changes = rng.normal(0.3, 1, size=(12, 3))
    names = [n // 3 for n in range(36)]
    found = permutation_test(changes.ravel().tolist(), clusters=names)

    assert found == pytest.approx(permutation_test(changes.sum(axis=1).tolist()))
    assert permutation_test([]) == permutation_test([0.0, 0.0]) == 1.0
    assert permutation_test([], clusters=[]) == 1.0
