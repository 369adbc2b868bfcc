"""Wilson intervals, compared with published values and with the definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from weakincentives.evals.stats import Z_95, wilson_interval


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_intervals(passed: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(passed, n) == pytest.approx((low, high), abs=5e-5)


counts = st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts)
def test_wilson_contains_the_rate_and_is_symmetric_and_never_empty(count: tuple[int, int]) -> None:
    passed, n = count
    low, high = wilson_interval(passed, n)
    mirrored = wilson_interval(n - passed, n)

    assert 0.0 <= low <= passed / n <= high <= 1.0
    assert high - low > 0
    assert mirrored == (pytest.approx(1 - high), pytest.approx(1 - low))


@given(counts)
def test_the_score_test_just_rejects_at_the_ends_of_wilson(count: tuple[int, int]) -> None:
    passed, n = count
    for end in wilson_interval(passed, n):
        if 0 < end < 1:
            distance = abs(passed / n - end) / math.sqrt(end * (1 - end) / n)

            assert distance == pytest.approx(Z_95, rel=1e-6)


def test_without_attempts_the_interval_is_0_to_1() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
