"""Short descriptions of the difference between two values, which may be very long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import pytest
from hypothesis import given, strategies as st

from weakincentives.internal.matching import Work
from weakincentives.internal.text_differences import (
    DiffPart,
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


def marked(parts: Sequence[DiffPart]) -> str:
    """Return a diff as the terminal prints it."""
    marks = {"same": "{}", "removed": "[-{}-]", "added": "{{+{}+}}"}
    return "".join(marks[part.kind].format(part.text) for part in parts)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            "The capital of France is Paris, on the Seine.",
            "The capital of Italy is Rome, on the Tiber.",
            "The capital of [-France-]{+Italy+} is [-Paris-]{+Rome+}, on the [-Seine-]{+Tiber+}.",
        ),
        ("foo(a)", "bar(b)", "[-foo-]{+bar+}([-a-]{+b+})"),
        (
            "def add(a, b):\n    return a + b\n",
            "def add(a, b, c=0):\n    return a + b + c\n",
            "def add(a, b{+, c=0+}):\n    return a + b{+ + c+}\n",
        ),
        (
            "0 0 1 0\n0 1 0 0\n1 0 0 0\n",
            "0 0 1 0\n0 1 1 0\n1 0 0 2\n",
            "0 0 1 0\n0 1 [-0-]{+1+} 0\n1 0 0 [-0-]{+2+}\n",
        ),
        (
            "#####\n#.$.#\n#.@.#\n#####\n",
            "#####\n#.@.#\n#...#\n###$#\n",
            "#####\n#.[-$-]{+@+}.#\n#.[-@-]{+.+}.#\n###[-#-]{+$+}#\n",
        ),
        (
            '{"age": 36, "tags": ["a", "b"], "city": "London"}',
            '{"age": 37, "tags": ["a", "c"], "town": "London"}',
            '{"age": [-36-]{+37+}, "tags": ["a", "[-b-]{+c+}"], "[-city-]{+town+}": "London"}',
        ),
        (
            '{"cmd":"ls -la src && cat a.txt"}',
            '{"cmd":"ls -la lib && head -5 a.txt"}',
            '{"cmd":"ls -la [-src-]{+lib+} && [-cat-]{+head -5+} a.txt"}',
        ),
        (
            "We bought bread, milk and eggs.",
            "We bought milk, eggs and cheese.",
            "We bought [-bread, -]milk{+, eggs+} and [-eggs-]{+cheese+}.",
        ),
    ],
)
def test_a_typical_diff_reads_well(before: str, after: str, expected: str) -> None:
    assert marked(word_diff(before, after)) == expected


GRID = "".join(f"{n * n % 3} " + "\n" * (n % 12 == 0) for n in range(144))
TYPICAL = {
    "prose": (LONG[:500], LONG[:500].replace("brown", "red").replace("dog", "cat")),
    "a grid": (GRID, GRID.replace("1 1 0", "1 2 0", 5)),
    "code": ("x = shown(text)\n" * 20, "x = shown(text)  # why\n" * 20),
}


@pytest.mark.parametrize("kind", TYPICAL)
def test_a_diff_has_no_more_pieces_than_that_of_difflib(kind: str) -> None:
    before, after = TYPICAL[kind]
    tokens = [re.findall(r"\w+|\s+|[^\w\s]", text) for text in (before, after)]
    opcodes = SequenceMatcher(str.isspace, *tokens, autojunk=False).get_opcodes()

    changes = [part for part in word_diff(before, after) if part.kind != "same"]

    assert len(changes) <= sum(1 + (tag == "replace") for tag, *_ in opcodes if tag != "equal")


def test_a_long_equal_part_between_two_differences_is_left_out() -> None:
    parts = word_diff(f"one {LONG} two", f"uno {LONG} dos")

    assert [part.text for part in parts if part.kind != "same"] == ["one", "uno", "two", "dos"]
    assert sum(len(part.text) for part in parts) < 200


def test_what_is_behind_the_compared_part_is_not_called_removed() -> None:
    words = " ".join(map(str, range(10_000)))
    parts = word_diff(words, f"new {words} end")

    assert [part for part in parts if part.kind != "same"] == [("added", "new ")]
    assert parts[-1].text.endswith("…")


def test_texts_for_which_no_work_is_left_are_removed_and_added_as_a_whole() -> None:
    work = Work(20)

    assert marked(word_diff("a b c d", "e b c f", work)) == "[-a b c d-]{+e b c f+}"
    assert work.exhausted


@pytest.mark.parametrize("count", [100, 1_000, 10_000, 100_000])
def test_a_diff_of_few_distinct_words_takes_little_work(count: int) -> None:
    work = Work()

    parts = word_diff(" x" * count, "x " * count, work)

    assert parts[0] == ("removed", " ")
    assert work.left > 900_000
