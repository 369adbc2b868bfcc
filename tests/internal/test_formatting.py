"""Durations, amounts of money and values, formatted for people."""

from __future__ import annotations

from hypothesis import given, strategies as st

from weakincentives.internal.formatting import duration, money, number, pretty


def test_a_duration_has_its_unit() -> None:
    assert [duration(value) for value in (0.003, 0.84, 12.3, 59.4, 59.6, 185, 3723)] == [
        "3 ms", "0.8 s", "12 s", "59 s", "1:00 min", "3:05 min", "1:02:03 h",
    ]  # fmt: skip


def test_scores_and_large_rewards_are_short() -> None:
    assert [number(value) for value in (0.125, -12.5, 1234.5, 12345678.9, 1.234e12)] == [
        "0.125", "-12.500", "1,234.500", "12,345,679", "1.23e+12",
    ]  # fmt: skip


def test_small_amounts_are_not_rounded_to_zero() -> None:
    assert [money(value) for value in (0, 0.0042, 0.00042, 0.0123, 0.25, 0.5, 0.999, 1234.5)] == [
        "$0.00", "$0.0042", "$0.00042", "$0.0123", "$0.25", "$0.50", "$0.999", "$1,234.50",
    ]  # fmt: skip


@given(st.floats(1e-9, 1e9))
def test_an_amount_has_three_significant_digits(dollars: float) -> None:
    read = float(money(dollars).removeprefix("$").replace(",", ""))

    assert abs(read - dollars) <= max(0.005 * dollars, 0.005 if dollars >= 1 else 0)


def test_short_data_is_json_on_one_line() -> None:
    assert [pretty(value) for value in ("", None, "two\nlines", {"a": 1})] == [
        "(empty)", "(none)", "two\nlines", '{"a":1}',
    ]  # fmt: skip
    assert pretty([100] * 50).count("\n") == 51
