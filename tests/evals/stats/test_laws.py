"""What holds for all values: estimates inside their intervals, order without effect, bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weakincentives.evals.statistics import (
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
many = st.lists(numbers, min_size=1, max_size=30)
bits = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30)
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30)
passes = st.lists(st.tuples(*[st.sampled_from([0.0, 1.0])] * 2), min_size=1, max_size=30)
chances = st.lists(st.floats(0, 1), max_size=12)
confidences = st.sampled_from([0.5, 0.8, 0.95, 0.999])


def holds_its_estimate(interval: Interval) -> bool:
    return interval.low <= interval.estimate <= interval.high


def names_for(values: list[float] | list[tuple[float, float]], seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(1 + len(values) // 2) for _ in values]


def ends(interval: Interval) -> object:
    return pytest.approx((interval.estimate, interval.low, interval.high), rel=1e-6, abs=1e-6)


@settings(max_examples=50)
@given(many, bits, st.integers(0, 99), confidences)
def test_intervals_hold_their_estimate(
    values: list[float], outcomes: list[float], seed: int, confidence: float
) -> None:
    clusters = names_for(values, seed)
    found = [
        mean_interval(values, confidence=confidence),
        mean_interval(values, clusters=clusters, confidence=confidence),
        rate_interval(int(sum(outcomes)), len(outcomes), confidence=confidence),
        clustered_rate_interval(outcomes, names_for(outcomes, seed), confidence=confidence),
    ]
    resampled = [
        bootstrap_interval(values, resamples=50, confidence=confidence),
        bootstrap_interval(values, clusters=clusters, resamples=50, confidence=confidence),
    ]

    assert all(holds_its_estimate(each) and each.low < each.high for each in found)
    assert all(map(holds_its_estimate, resampled))
    assert holds_its_estimate(percentile_interval(values, 0.9, confidence=confidence))


@given(pairs | passes, st.integers(0, 99), confidences)
def test_differences_hold_their_estimate_and_mirror(
    values: list[tuple[float, float]], seed: int, confidence: float
) -> None:
    before, after = map(list, zip(*values, strict=True))
    clusters = names_for(values, seed)
    for there, back in (
        (paired_difference(before, after), paired_difference(after, before)),
        (
            paired_difference(before, after, clusters=clusters, confidence=confidence),
            paired_difference(after, before, clusters=clusters, confidence=confidence),
        ),
        (unpaired_difference(before, after), unpaired_difference(after, before)),
    ):
        assert holds_its_estimate(there.delta)
        assert (-back.delta.high, -back.delta.low) == pytest.approx(
            (there.delta.low, there.delta.high), rel=1e-6, abs=1e-6
        )
        assert (there.fixed, there.broken) == (back.broken, back.fixed)
        assert there.p_value is None or 0 <= there.p_value <= 1


@settings(max_examples=50)
@given(pairs | passes, st.integers(0, 99))
def test_order_does_not_matter(values: list[tuple[float, float]], seed: int) -> None:
    rows = [(*pair, name) for pair, name in zip(values, names_for(values, seed), strict=True)]
    shuffled = random.Random(seed).sample(rows, len(rows))

    def everything(rows: list[tuple[float, float, int]]) -> list[object]:
        before, after, names = map(list, zip(*rows, strict=True))
        changes = [new - old for old, new in zip(before, after, strict=True)]
        return [
            ends(mean_interval(before)),
            ends(mean_interval(before, clusters=names)),
            ends(percentile_interval(before, 0.3)),
            ends(bootstrap_interval(before, resamples=30)),
            ends(paired_difference(before, after).delta),
            ends(paired_difference(before, after, clusters=names).delta),
            ends(unpaired_difference(before, after).delta),
            pytest.approx(wilcoxon(changes)),
            pytest.approx(permutation_test(changes, resamples=30)),
        ]

    for one, other in zip(everything(rows), everything(shuffled), strict=True):
        assert one.expected == other  # type: ignore[attr-defined]


@given(chances)
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
def test_chances_of_k_attempts_are_in_order(ncks: tuple[int, int, int]) -> None:
    n, c, k = ncks

    assert 0 <= pass_hat_k(n, c, k) <= majority_at_k(n, c, k) <= pass_at_k(n, c, k) <= 1
    assert pass_hat_k(n, c, 1) == pytest.approx(c / n) == pass_at_k(n, c, 1)
    if k < n:
        assert pass_at_k(n, c, k) <= pass_at_k(n, c, k + 1)
        assert pass_hat_k(n, c, k) >= pass_hat_k(n, c, k + 1)


@given(st.integers(0, 500), st.integers(0, 500))
def test_mcnemar_is_a_chance_and_takes_no_side(fixed: int, broken: int) -> None:
    assert 0 <= mcnemar(fixed, broken) == mcnemar(broken, fixed) <= 1


@settings(max_examples=30)
@given(st.integers(2, 300), st.floats(0.01, 2), st.floats(0.1, 3))
def test_more_samples_and_larger_effects_have_more_power(n: int, effect: float, sd: float) -> None:
    power = power_of(n, effect, sd)

    assert 0.05 - 1e-6 <= power <= 1
    assert power <= power_of(n + 5, effect, sd) + 1e-6
    assert power <= power_of(n, effect * 1.1, sd) + 1e-6


@given(st.lists(st.floats(0, 1), max_size=60), confidences)
def test_a_confidence_sequence_holds_its_estimate_and_is_wider_than_wilson(
    values: list[float], confidence: float
) -> None:
    seen = ConfidenceSequence(confidence=confidence)
    for value in values:
        seen.add(value)
    found = seen.interval

    assert 0 <= found.low <= found.estimate <= found.high <= 1
    if set(values) == {0.0, 1.0}:
        plain = rate_interval(int(sum(values)), len(values), confidence=confidence)
        assert found.high - found.low > plain.high - plain.low
