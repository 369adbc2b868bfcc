"""Short descriptions of the difference between two values, which may be very long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.internal.differences import (
    excerpt,
    first_difference,
    got_and_expected,
    word_diff,
)
from weakincentives.secrets import keep_secret

LONG = "The quick brown fox jumps over the lazy dog. " * 50


def test_short_values_are_printed_completely() -> None:
    assert got_and_expected("Paris", {"a": 1}) == "got 'Paris', expected {'a': 1}"


def test_long_texts_are_printed_around_the_first_difference() -> None:
    text = got_and_expected(LONG[:1000] + "CAT" + LONG[1003:], LONG)

    assert "CAT" in text
    assert "(different from character 1,001 on; 2,250 and 2,250 characters)" in text
    assert len(text) < 350


def test_the_beginning_is_printed_if_it_differs() -> None:
    assert got_and_expected("No. " + LONG, LONG).startswith("got 'No. The quick")


def test_one_text_may_be_a_prefix_of_the_other() -> None:
    text = got_and_expected(LONG[:200], LONG)

    assert "(different from character 201 on; 200 and 2,250 characters)" in text


@pytest.mark.parametrize("other", ["", "x", "é\n\x1b[31m'\"" * 10])
def test_ten_million_characters_are_compared_quickly(other: str) -> None:
    large = "x" * 10_000_000

    assert len(got_and_expected(large, large[:-1] + other)) < 600


def test_a_secret_is_redacted_before_the_text_is_cut() -> None:
    keep_secret("hunter2-hunter2-hunter2")
    text = "x" * 1_000 + "hunter2-hunter2-hunter2" + "y" * 1_000

    excerpts = [excerpt(text, start) for start in range(900, 1_060)]

    assert not [each for each in excerpts if "hunt" in each or "unter2" in each]


@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_the_first_difference_is_found(a: str, b: str) -> None:
    at = first_difference(a, b)

    assert a[:at] == b[:at]
    assert a[at : at + 1] != b[at : at + 1] or at == min(len(a), len(b))


def test_the_first_difference_is_found_at_the_end_of_a_block() -> None:
    for at in (65_535, 65_536, 65_537, 131_072):
        assert first_difference("x" * at + "a" + "x" * 9, "x" * at + "b" + "y") == at


@given(st.text("ab .", max_size=40), st.text("ab .", max_size=40))
def test_a_diff_contains_both_texts(a: str, b: str) -> None:
    parts = word_diff(a, b)

    if a != b:
        assert "".join(part.text for part in parts if part.kind != "added") == a
        assert "".join(part.text for part in parts if part.kind != "removed") == b
    else:
        assert parts == ()


def test_a_diff_of_long_texts_contains_the_first_difference() -> None:
    parts = word_diff(LONG + "cat" + LONG, LONG + "horse" + LONG)

    assert [part.text for part in parts if part.kind != "same"] == ["cat", "horse"]
    assert sum(len(part.text) for part in parts) < 250


@pytest.mark.parametrize("separator", [" ", ","])
def test_a_diff_of_texts_without_common_words_is_bounded(separator: str) -> None:
    parts = word_diff(f"a{separator}b{separator}" * 100_000, f"c{separator}d{separator}" * 100_000)

    assert sum(len(part.text) for part in parts) < 3_500
