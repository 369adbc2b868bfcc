"""Which items of two sequences correspond: their longest common subsequence, in bounded work.

Everything here that compares texts or trajectories uses it, as grids, boards and agents with three
tools are ordinary input: few distinct items, many times each. There `difflib` takes cubic time.

Theory of operation. A row of the usual table is one long integer with a bit for each item of the
first sequence, so that an item of the second takes a few operations (Hyyrö 2004). That is
quadratic, at 64 cells an operation, and takes the same time whatever the items are: 20,000 by
20,000 items in 0.2 s. Items that only one side has, and equal ends, cost nothing. Of the rows, one
in √n is kept, and those between are computed again on the way back.

The work is counted, so that the result never depends on the speed of a machine. What would take
more than is left is not compared: only the equal ends are then found.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from math import isqrt
from typing import TypeVar

MAX_STEPS = 1_000_000  # of about half a microsecond: what one comparison may take
ANSWER_STEPS = 5_000_000  # what all comparisons of one answer, to a person who waits, may take
_BITS = 2_000  # of an integer, at which an operation on it takes twice as long

Row = Sequence[Hashable]
Pairs = list[tuple[int, int]]  # places in both sequences, in order
T = TypeVar("T", bound=Hashable)


class Work:
    """The steps that comparisons may still take; several of one answer share it.

    It is `exhausted` if one of them would have taken more: then the others take none either.
    """

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps
        self.exhausted = False

    def take(self, steps: int) -> bool:
        """Take that many steps; return whether they were left."""
        if steps > self.left:
            self.left, self.exhausted = 0, True
            return False
        self.left -= steps
        return True


def equal_ends(a: Row, b: Row) -> tuple[int, int]:
    """Return how many items are equal at the beginning, and how many of the others at the end."""
    shorter = min(len(a), len(b))
    start = end = 0
    while start < shorter and a[start] == b[start]:
        start += 1
    while end < shorter - start and a[-1 - end] == b[-1 - end]:
        end += 1
    return start, end


def match(a: Sequence[T], b: Sequence[T], work: Work) -> Pairs:
    """Return the places of equal items, as many as can be paired in order.

    >>> match("abcd", "xbd", Work())
    [(1, 1), (3, 2)]
    """
    if not a or not b:
        return []
    start, end = equal_ends(a, b)
    inside = slice(start, len(a) - end), slice(start, len(b) - end)
    common = {*a[inside[0]]} & {*b[inside[1]]}
    left = [i for i in range(start, len(a) - end) if a[i] in common]
    right = [j for j in range(start, len(b) - end) if b[j] in common]
    pairs = [(i, i) for i in range(start)]
    if common and work.take(len(right) * (2 + len(left) // _BITS)):
        found = _common_subsequence([a[i] for i in left], [b[j] for j in right])
        pairs += ((left[i], right[j]) for i, j in found)
    return pairs + [(len(a) - n, len(b) - n) for n in range(end, 0, -1)]


def gaps(pairs: Pairs, ends: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """Yield the ranges of both sequences before each pair, and behind the last one."""
    i = j = 0
    for i_end, j_end in [*pairs, ends]:
        yield slice(i, i_end), slice(j, j_end)
        i, j = i_end + 1, j_end + 1


def _common_subsequence(a: Row, b: Row) -> Pairs:
    """Return the pairs of a longest common subsequence; every item of `b` must be in `a`."""
    places: dict[Hashable, int] = {}
    for i, item in enumerate(a):
        places[item] = places.get(item, 0) | 1 << i
    everywhere = (1 << len(a)) - 1

    def rows_after(row: int, items: Row) -> Iterator[int]:
        """Yield the row after each item; its bit `i` is 0 where `a[: i + 1]` pairs one more."""
        for item in items:
            here = row & places[item]
            row = (row + here | row - here) & everywhere
            yield row

    height = isqrt(len(b)) + 1
    blocks = [b[j : j + height] for j in range(0, len(b), height)]
    kept = [everywhere]  # the row before each block
    for block in blocks:
        *_, last = rows_after(kept[-1], block)
        kept.append(last)
    pairs = []
    i, j = len(a), len(b)
    for block in reversed(blocks):
        kept.pop()
        rows = [*rows_after(kept[-1], block)]
        # Back from the end; pairs as late as possible, so that those of a phrase stay together.
        while i and rows:
            paired = a[i - 1] == b[j - 1]
            if paired:
                pairs.append((i - 1, j - 1))
            elif rows[-1] >> (i - 1) & 1:  # without its last item, a[:i] pairs no fewer
                i -= 1
                continue
            i -= paired
            j -= 1
            rows.pop()
    return pairs[::-1]
