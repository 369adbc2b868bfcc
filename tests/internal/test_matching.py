"""The longest common subsequence: exact, deterministic, and within its work."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from weakincentives.internal.matching import Work, gaps, match

FEW = st.text("abc", max_size=40)


def length_of_the_longest(a: str, b: str) -> int:
    """Return the length of the longest common subsequence by the textbook's table."""
    row = [0] * (len(b) + 1)
    for x in a:
        new = [0]
        for j, y in enumerate(b):
            new.append(row[j] + 1 if x == y else max(row[j + 1], new[j]))
        row = new
    return row[-1]


@given(FEW, FEW)
def test_equal_items_are_paired_in_order_and_as_many_as_can_be(a: str, b: str) -> None:
    pairs = match(a, b, Work())

    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < m and j < n for (i, j), (m, n) in pairwise(pairs))
    assert len(pairs) == length_of_the_longest(a, b)
    assert match(a, b, Work()) == pairs


@given(FEW)
def test_equal_sequences_need_no_work(a: str) -> None:
    assert match(a, a, Work(0)) == [(i, i) for i in range(len(a))]


@given(FEW, FEW)
def test_pairs_and_gaps_have_every_item_once(a: str, b: str) -> None:
    pairs = match(a, b, Work())
    between = [*gaps(pairs, (len(a), len(b)))]

    assert sum(len(a[i]) for i, _ in between) + len(pairs) == len(a)
    assert sum(len(b[j]) for _, j in between) + len(pairs) == len(b)


@given(FEW, FEW, st.integers(0, 100))
def test_no_more_work_is_taken_than_there_is(a: str, b: str, steps: int) -> None:
    enough, work = Work(), Work(steps)
    pairs, fewer = match(a, b, enough), match(a, b, work)

    assert 0 <= work.left <= steps
    assert fewer == pairs if not work.exhausted else len(fewer) <= len(pairs)


def test_the_work_grows_with_the_size_and_not_with_the_items() -> None:
    taken = []
    for text in ("ab" * 10_000, "aab" * 6_667):
        work = Work()
        match(text[:20_000], "b" + text[:20_000] + "a", work)
        taken.append(1_000_000 - work.left)

    assert max(taken) <= 20_002 * 12


def test_what_would_take_too_much_has_only_its_equal_ends_paired() -> None:
    work = Work(10)

    assert match("x" + "ab" * 20 + "y", "x" + "ba" * 20 + "y", work) == [(0, 0), (41, 41)]
    assert work.exhausted
    assert not work.take(1)
