"""Properties for all values: intervals contain estimates, order has no effect, bounds hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from weakincentives.evals.stats import (
    ConfidenceSequence,
    Interval,
    benjamini_hochberg,
    bootstrap_interval,
    clustered_rate_interval,
    holm,
    majority_at_k,
    mcnemar,
    mean_interval,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    percentile_interval,
    permutation_test,
    power_of,
    rate_interval,
    unpaired_difference,
    wilcoxon,
)

numbers = st.floats(-1e6, 1e6, allow_subnormal=False) | st.sampled_from([0.0, 0.5, 1.0])
number_lists = st.lists(numbers, min_size=1, max_size=30)
bits = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30)
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30)
passes = st.lists(st.tuples(*[st.sampled_from([0.0, 1.0])] * 2), min_size=1, max_size=30)
p_value_lists = st.lists(st.floats(0, 1), max_size=12)
confidences = st.sampled_from([0.5, 0.8, 0.95, 0.999])


def contains_estimate(interval: Interval) -> bool:
    return interval.low <= interval.estimate <= interval.high


def random_clusters(values: list[float] | list[tuple[float, float]], seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1 + len(values) // 2) for _ in values]


def approximate_ends(interval: Interval) -> object:
    return pytest.approx((interval.estimate, interval.low, interval.high), rel=1e-6, abs=1e-6)


@settings(max_examples=50)
@given(number_lists, bits, st.integers(0, 99), confidences)
def test_intervals_contain_their_estimate(
    values: list[float], outcomes: list[float], seed: int, confidence: float
) -> None:
    clusters = random_clusters(values, seed)
    intervals = [
        mean_interval(values, confidence=confidence),
        mean_interval(values, clusters=clusters, confidence=confidence),
        rate_interval(int(sum(outcomes)), len(outcomes), confidence=confidence),
        clustered_rate_interval(outcomes, random_clusters(outcomes, seed), confidence=confidence),
    ]
    resampled = [
        bootstrap_interval(values, resamples=50, confidence=confidence),
        bootstrap_interval(values, clusters=clusters, resamples=50, confidence=confidence),
    ]

    assert all(
        contains_estimate(interval) and interval.low < interval.high for interval in intervals
    )
    assert all(map(contains_estimate, resampled))
    assert contains_estimate(percentile_interval(values, 0.9, confidence=confidence))


@given(pairs | passes, st.integers(0, 99), confidences)
def test_differences_contain_their_estimate_and_are_mirrored_when_swapped(
    values: list[tuple[float, float]], seed: int, confidence: float
) -> None:
    before, after = map(list, zip(*values, strict=True))
    clusters = random_clusters(values, seed)
    for forward, backward in (
        (paired_difference(before, after), paired_difference(after, before)),
        (
            paired_difference(before, after, clusters=clusters, confidence=confidence),
            paired_difference(after, before, clusters=clusters, confidence=confidence),
        ),
        (unpaired_difference(before, after), unpaired_difference(after, before)),
    ):
        assert contains_estimate(forward.delta)
        assert (-backward.delta.high, -backward.delta.low) == pytest.approx(
            (forward.delta.low, forward.delta.high), rel=1e-6, abs=1e-6
        )
        assert (forward.fixed, forward.broken) == (backward.broken, backward.fixed)
        assert forward.p_value is None or 0 <= forward.p_value <= 1


@settings(max_examples=50)
@given(pairs | passes, st.integers(0, 99))
def test_order_does_not_matter(values: list[tuple[float, float]], seed: int) -> None:
    rows = [(*pair, name) for pair, name in zip(values, random_clusters(values, seed), strict=True)]
    shuffled = random.Random(seed).sample(rows, len(rows))

    def all_statistics(rows: list[tuple[float, float, int]]) -> list[object]:
        before, after, clusters = map(list, zip(*rows, strict=True))
        changes = [new - old for old, new in zip(before, after, strict=True)]
        return [
            approximate_ends(mean_interval(before)),
            approximate_ends(mean_interval(before, clusters=clusters)),
            approximate_ends(percentile_interval(before, 0.3)),
            approximate_ends(bootstrap_interval(before, resamples=30)),
            approximate_ends(paired_difference(before, after).delta),
            approximate_ends(paired_difference(before, after, clusters=clusters).delta),
            approximate_ends(unpaired_difference(before, after).delta),
            pytest.approx(wilcoxon(changes)),
            pytest.approx(permutation_test(changes, resamples=30)),
        ]

    for one, other in zip(all_statistics(rows), all_statistics(shuffled), strict=True):
        assert one.expected == other  # type: ignore[attr-defined]


@given(p_value_lists)
def test_adjusted_p_values_are_larger_in_the_same_order_and_at_most_one(ps: list[float]) -> None:
    for adjust in (holm, benjamini_hochberg):
        adjusted = adjust(ps)

        assert all(p <= new <= 1 for p, new in zip(ps, adjusted, strict=True))
        by_p = [new for _, new in sorted(zip(ps, adjusted, strict=True))]
        assert by_p == sorted(by_p)
    assert all(b <= h for b, h in zip(benjamini_hochberg(ps), holm(ps), strict=True))


attempts = st.integers(1, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
)


@given(attempts)
def test_pass_hat_k_majority_and_pass_at_k_are_ordered(ncks: tuple[int, int, int]) -> None:
    n, c, k = ncks

    assert 0 <= pass_hat_k(n, c, k) <= majority_at_k(n, c, k) <= pass_at_k(n, c, k) <= 1
    assert pass_hat_k(n, c, 1) == pytest.approx(c / n) == pass_at_k(n, c, 1)
    if k < n:
        assert pass_at_k(n, c, k) <= pass_at_k(n, c, k + 1)
        assert pass_hat_k(n, c, k) >= pass_hat_k(n, c, k + 1)


@given(st.integers(0, 500), st.integers(0, 500))
def test_mcnemar_is_a_probability_and_symmetric(fixed: int, broken: int) -> None:
    assert 0 <= mcnemar(fixed, broken) == mcnemar(broken, fixed) <= 1


@settings(max_examples=30)
@given(st.integers(2, 300), st.floats(0.01, 2), st.floats(0.1, 3))
def test_more_samples_and_larger_effects_have_more_power(n: int, effect: float, sd: float) -> None:
    power = power_of(n, effect, sd)

    assert 0.05 - 1e-6 <= power <= 1
    assert power <= power_of(n + 5, effect, sd) + 1e-6
    assert power <= power_of(n, effect * 1.1, sd) + 1e-6


@given(st.lists(st.floats(0, 1), max_size=60), confidences)
def test_a_confidence_sequence_contains_its_estimate_and_is_wider_than_wilson(
    values: list[float], confidence: float
) -> None:
    sequence = ConfidenceSequence(confidence=confidence)
    for value in values:
        sequence.add(value)
    interval = sequence.interval

    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    if set(values) == {0.0, 1.0}:
        plain = rate_interval(int(sum(values)), len(values), confidence=confidence)
        assert interval.high - interval.low > plain.high - plain.low
