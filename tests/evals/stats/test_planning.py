"""Corrections for several tests, power, repeats and early looks; messages for mistakes."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from weakincentives.errors import MissingExtraError, UsageError
from weakincentives.evals import stats as our_stats
from weakincentives.evals.stats import (
    ConfidenceSequence,
    VarianceSplit,
    benjamini_hochberg,
    bootstrap_interval,
    clustered_rate_interval,
    flaky,
    flip_power,
    holm,
    majority_at_k,
    mcnemar,
    mean_interval,
    minimum_detectable_effect,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    percentile_interval,
    permutation_test,
    power_of,
    rate_interval,
    samples_needed,
    variance_split,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_holm_and_benjamini_hochberg_are_the_published_adjustments(
    rng: np.random.Generator,
) -> None:
    values = rng.random(20) ** 3

    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    expected = stats.false_discovery_control(values)
    assert benjamini_hochberg(values.tolist()) == pytest.approx(expected)
    assert holm([]) == benjamini_hochberg([]) == []


@pytest.mark.parametrize(("n", "effect"), [(2, 1), (3, 0.5), (10, 0.5), (30, -0.3), (10_000, 0.03)])
def test_power_agrees_with_scipys_noncentral_t(n: int, effect: float) -> None:
    critical, shift = stats.t.ppf(0.975, n - 1), abs(effect) * math.sqrt(n)
    expected = stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift)

    assert power_of(n, 2 * effect, 2.0) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("effect", "alpha"), [(10.0, 0.001), (1e-6, 0.001), (3.0, 0.01)])
def test_the_power_of_two_pairs_is_right_at_extreme_levels(effect: float, alpha: float) -> None:
    critical, shift = stats.t.ppf(1 - alpha / 2, 1), effect * math.sqrt(2)
    spread = np.linspace(1e-6, 12, 2_000_001)  # half-normal: one degree of freedom for two pairs
    rejection_rate = stats.norm.sf(critical * spread - shift) + stats.norm.cdf(
        -critical * spread - shift
    )
    expected = np.trapezoid(rejection_rate * 2 * stats.norm.pdf(spread), spread)

    assert power_of(2, effect, 1.0, alpha=alpha) == pytest.approx(expected, rel=1e-3)


def test_power_effect_and_samples_agree() -> None:
    # Power calculators give 34 pairs for half a standard deviation.
    assert samples_needed(0.5, 1.0) == 34
    assert power_of(34, 0.5, 1.0) >= 0.8 > power_of(33, 0.5, 1.0)
    assert minimum_detectable_effect(34, 1.0) == pytest.approx(0.5, abs=0.01)
    assert power_of(34, minimum_detectable_effect(34, 1.0), 1.0) == pytest.approx(0.8)
    few = minimum_detectable_effect(3, 1.0)  # three pairs detect only huge effects
    assert few > 2
    assert power_of(3, few, 1.0) == pytest.approx(0.8)
    assert samples_needed(1e-5, 1.0) == pytest.approx(7.849e10, rel=1e-3)
    assert power_of(2_000_000, 0.0028, 1.0) == pytest.approx(
        power_of(10**6, 0.0028 * 2**0.5, 1.0), abs=1e-6
    )


def test_power_at_the_edges() -> None:
    assert power_of(1, 1.0, 1.0) == 0.0
    assert power_of(10, 0.0, 1.0) == 0.05
    assert power_of(10, 0.1, 0.0) == 1.0
    assert minimum_detectable_effect(1, 1.0) == math.inf
    assert minimum_detectable_effect(10, 0.0) == 0.0


@pytest.mark.parametrize(
    ("n", "effect", "flips"),
    [
        (1, 0.5, 0.5),
        (9, 0.3, 0.6),
        (40, 0.1, 0.3),
        (60, 0.25, 0.25),
        (60, 0.0, 1.0),
        (80, 0.7, 0.9),
    ],
)
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_power_of_flips_is_the_sum_over_all_outcomes(
    n: int, effect: float, flips: float, alpha: float
) -> None:
    shares = [(flips + effect) / 2, (flips - effect) / 2, 1 - flips]
    expected = math.fsum(
        stats.multinomial.pmf([fixes, breaks, n - fixes - breaks], n, shares)
        for fixes in range(n + 1)
        for breaks in range(min(fixes, n - fixes + 1))
        if mcnemar(fixes, breaks) <= alpha
    )

    assert flip_power(n, effect, flips, alpha=alpha) == pytest.approx(expected, abs=1e-7)


def test_pass_at_k_and_pass_hat_k_have_the_published_values() -> None:
    assert (pass_at_k(5, 2, 2), pass_hat_k(5, 2, 2)) == pytest.approx((0.7, 0.1))
    assert pass_at_k(8, 6, 2) == pytest.approx(0.964286, abs=5e-7)
    assert pass_hat_k(8, 6, 2) == pytest.approx(0.535714, abs=5e-7)
    assert pass_hat_k(8, 6, 4) == pytest.approx(0.214286, abs=5e-7)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 3), (6, 3, 4), (7, 7, 2), (7, 0, 3), (6, 2, 1)])
def test_pass_at_k_and_pass_hat_k_are_averages_over_all_choices(n: int, c: int, k: int) -> None:
    passes = [sum(choice) for choice in itertools.combinations([1] * c + [0] * (n - c), k)]

    assert pass_at_k(n, c, k) == pytest.approx(np.mean([x > 0 for x in passes]))
    assert pass_hat_k(n, c, k) == pytest.approx(np.mean([x == k for x in passes]))
    halves = np.mean([0.5 * (2 * x > k) + 0.5 * (2 * x >= k) for x in passes])
    assert majority_at_k(n, c, k) == pytest.approx(halves)


def test_variance_splits_into_between_and_within_samples(rng: np.random.Generator) -> None:
    effects = rng.normal(0, 2, size=4000)
    split = variance_split(
        {n: (effect + rng.normal(size=2 + n % 3)).tolist() for n, effect in enumerate(effects)}
    )

    assert split.between == pytest.approx(4, rel=0.1)
    assert split.within == pytest.approx(1, rel=0.1)
    assert split.share_within == pytest.approx(0.2, abs=0.02)
    assert split.standard_error(100, 4) == pytest.approx(math.sqrt(4.25 / 100), rel=0.05)
    assert variance_split({"a": [1, 0], "b": [0, 1]}).between == 0.0
    assert variance_split({"a": [1, 1], "b": [1, 1]}).share_within == 0.0


def test_flaky_samples_are_sorted_by_uncertainty() -> None:
    flaky_samples = flaky(
        {"always": [1, 1], "mostly": [1, 1, 1, 0], "even": [0.2, 0.9], "never": [0, 0]}
    )

    assert [*flaky_samples] == ["even", "mostly"]
    assert flaky_samples["mostly"] == rate_interval(3, 4)


def test_a_confidence_sequence_scales_with_its_range() -> None:
    sequence, scaled = ConfidenceSequence(), ConfidenceSequence(-10, 30)
    for n in range(200):
        sequence.add(n % 4 > 0)
        scaled.add(30 if n % 4 else -10)

    assert scaled.interval.estimate == pytest.approx(20)
    assert scaled.interval.low == pytest.approx(-10 + 40 * sequence.interval.low)
    assert rate_interval(150, 200).low > sequence.interval.low > rate_interval(150, 200).low - 0.1
    empty = ConfidenceSequence().interval
    assert (empty.low, empty.high, empty.n) == (0.0, 1.0, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rate_interval(4, 3), "expected 0 <= passed <= total"),
        (lambda: rate_interval(1, 3, confidence=95), "expected a `confidence` between 0 and 1"),
        (lambda: mean_interval([1.0, math.nan]), r"expected finite numbers, got nan - at `\[1\]`"),
        (lambda: mean_interval([1.0, 2.0], clusters=["a"]), "expected a cluster for each of 2"),
        (lambda: clustered_rate_interval([0.5], [1]), "expected 0 or 1 for every attempt"),
        (lambda: percentile_interval([1.0], 95), "expected a `q` between 0 and 1, got 95"),
        (lambda: paired_difference([1.0], []), "expected as many values after as before"),
        (lambda: paired_difference([0.5], [1], binary=True), "expected only 0 and 1"),
        (lambda: mcnemar(-1, 2), "expected counts, got fixed=-1"),
        (lambda: holm([0.5, 1.5]), r"expected p-values from 0 to 1, got 1.5 - at `\[1\]`"),
        (lambda: bootstrap_interval([1.0, 2.0], resamples=0), "expected at least 1 of `resamples`"),
        (lambda: permutation_test([1.0, math.inf]), "expected finite numbers"),
        (lambda: permutation_test([1.0], clusters=[]), "expected a cluster for each of 1"),
        (lambda: power_of(10, 1.0, -1.0), "expected a standard deviation of at least 0"),
        (lambda: power_of(10, 1.0, 1.0, alpha=5), "expected an `alpha` between 0 and 1"),
        (lambda: samples_needed(0.0, 1.0), "expected an effect other than 0"),
        (lambda: samples_needed(0.1, 1.0, power=1.0), "expected a power above alpha and below 1"),
        (lambda: pass_at_k(4, 5, 1), "expected 0 <= c <= n, got 5 passes in 4 attempts"),
        (lambda: pass_hat_k(4, 2, 5), "expected 1 <= k <= n, got k = 5 of 4 attempts"),
        (lambda: variance_split({"a": [1], "b": [0]}), "run with epochs of 2 or more"),
        (lambda: VarianceSplit(1.0, 1.0, 2, 4).standard_error(0, 1), "at least 1 of both"),
        (lambda: ConfidenceSequence(1, 0), "expected low < high"),
        (lambda: ConfidenceSequence().add(2), "expected a value from 0.0 to 1.0, got 2"),
    ],
)  # fmt: skip
def test_a_mistake_is_an_error_that_states_what_was_expected(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=message):
        call()


def test_only_resampling_needs_numpy() -> None:
    code = """
import sys
sys.modules["numpy"] = None
from weakincentives.evals import stats as s
s.paired_difference([1, 0, 0.5], [1, 1, 0.7]), s.unpaired_difference([1, 0], [0, 1])
s.power_of(10, 1, 1), s.ConfidenceSequence().interval, s.wilcoxon([1, 2])
s.percentile_interval([1], 0.5), s.variance_split({"a": [1, 0], "b": [1, 1]}), s.holm([0.5])
for call in s.bootstrap_interval, s.permutation_test:
    try:
        call([0.1, 0.2])
    except ImportError as error:
        print(type(error).__name__, error)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert process.stdout.count(MissingExtraError.__name__) == 2
    assert "pip install 'weakincentives-evals[stats]'" in process.stdout


def test_statistics_has_every_name_of_stats_with_a_warning_that_says_where_it_is() -> None:
    from weakincentives.evals import statistics

    for name in our_stats.__all__:
        with pytest.warns(DeprecationWarning, match=f"is `weakincentives.evals.stats.{name}` now"):
            assert getattr(statistics, name) is getattr(our_stats, name)
