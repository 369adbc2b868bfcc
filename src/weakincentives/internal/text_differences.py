"""Two values that should be equal, and are not: where they differ, in a few words.

A text may have millions of characters, and this runs for every sample that fails, so only a part of
it is looked at. The part is redacted before it is cut: see `weakincentives.secrets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Literal, NamedTuple

from ..errors import short_repr
from ..secrets import redact
from .matching import Pairs, Work, gaps, match

MAX_CHARS = 80  # per value
_BEFORE = 20  # characters in front of the first difference
_MARGIN = 20_000  # characters around what is shown: a secret has fewer
_BLOCK = 1 << 16


def got_and_expected(got: Any, expected: Any) -> str:
    """Return both values, each in a few words; of long texts, the part where they differ.

    >>> got_and_expected("Paris", "Rome")
    "got 'Paris', expected 'Rome'"
    """
    if not (isinstance(got, str) and isinstance(expected, str)) or (
        max(len(got), len(expected)) <= MAX_CHARS
    ):
        return f"got {show_value(got)}, expected {show_value(expected)}"
    at = first_difference(got, expected)
    return (
        f"got {excerpt(got, at - _BEFORE)}, expected {excerpt(expected, at - _BEFORE)} (different "
        f"from character {at + 1:,} on; {len(got):,} and {len(expected):,} characters)"
    )


def show_value(value: Any) -> str:
    """Return the value as Python writes it; the beginning of a long one."""
    if isinstance(value, str | bytes) and len(value) > _MARGIN:
        value = value[:_MARGIN]
    return short_repr(value, MAX_CHARS)


def excerpt(text: str, start: int = 0, length: int = MAX_CHARS) -> str:
    """Return a part of a text as Python writes it, with an ellipsis where something is left out."""
    start = max(0, min(start, len(text) - length))
    if start < 2 * _BEFORE:  # not worth an ellipsis
        start, length = 0, length + start
    first = max(0, start - _MARGIN)
    before = redact(text[first:start])
    # Together, since a secret may begin before the part and end in it.
    part = redact(text[first : start + length + _MARGIN])[len(before) :]
    quoted = repr(part[:length])
    head, tail = "…" if start else "", "…" if len(part) > length else ""
    return f"{quoted[0]}{head}{quoted[1:-1]}{tail}{quoted[-1]}"


def first_difference(a: str, b: str) -> int:
    """Return the index of the first character that differs; the shorter length if none does."""
    low, high = 0, min(len(a), len(b))
    while low < high and a[low : low + _BLOCK] == b[low : low + _BLOCK]:
        low += _BLOCK
    low, high = min(low, high), min(low + _BLOCK, high)
    while low < high:  # the first difference is at or after `low`, and at or before `high`
        middle = (low + high) // 2
        if a[low : middle + 1] == b[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


# ── word by word ────────────────────────────────────────────────────────────────────────────────

_COMPARED_CHARS = 10_000  # of the differing part, on each side
_DIFF_CHARS = 1_500  # removed, and added, that are returned
_CONTEXT = 60  # characters around a difference
_FOLDED = 200  # at least, between two differences
_STEPS_A_CHAR = 3  # of work, in addition to matching
_MAX_NOISE = 2  # words in common that may be a coincidence
_TOKEN = re.compile(r"(\s*)(\w+(?:\.\d+)*|[^\w\s]|\Z)")
_IS_WORD = re.compile(r"\w").match


class DiffPart(NamedTuple):
    """A part of two texts: in both, only in the first, or only in the second."""

    kind: Literal["same", "removed", "added"]
    text: str


def word_diff(before: str, after: str, work: Work | None = None) -> tuple[DiffPart, ...]:
    """Return what changed from one text to another, word by word; empty if they are equal.

    Of long texts, the first differences and what is around them: `_COMPARED_CHARS` of each are
    compared, from the first difference on, and `_DIFF_CHARS` of what was removed and of what was
    added are returned. An ellipsis is where something is left out. Texts that would take more
    `work` than is left are removed and added as a whole.

    >>> [tuple(part) for part in word_diff("It is 4.", "It is 5.")]
    [('same', 'It is '), ('removed', '4'), ('added', '5'), ('same', '.')]
    """
    a, b = redact(before), redact(after)
    if a == b:
        return ()
    start = _word_start(a, first_difference(a, b))
    old, new = a[start:], b[start:]
    end = min(first_difference(old[::-1], new[::-1]), len(old), len(new))
    old, new, tail = old[: len(old) - end], new[: len(new) - end], old[len(old) - end :]
    parts = [*_compared(old[:_COMPARED_CHARS], new[:_COMPARED_CHARS], work or Work())]
    if max(len(old), len(new)) > _COMPARED_CHARS:
        tail = "…"
        # What is last on one side may well be on the other side, too, behind the part compared.
        last_same = max(
            (n for n, part in enumerate(parts) if part.kind == "same" and part.text),
            default=len(parts),
        )
        parts = parts[: last_same + 1]
    around = [DiffPart("same", a[:start]), *parts, DiffPart("same", tail)]
    return tuple(part for part in _shortened(around) if part.text)


def _word_start(text: str, at: int) -> int:
    """Return the beginning of the word at this place, unless that is far away."""
    start = at
    while start > max(0, at - _CONTEXT) and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    return start


def _compared(a: str, b: str, work: Work) -> Iterator[DiffPart]:
    """Yield both texts whole, as parts; a space belongs to the word behind it."""
    if not work.take(_STEPS_A_CHAR * (len(a) + len(b))):
        yield from (DiffPart("removed", a), DiffPart("added", b))
        return
    # The last token of both has no word, so they always have that one in common.
    old, new = _TOKEN.findall(a), _TOKEN.findall(b)
    same, i, j = "", 0, 0
    for run in _matching_words([word for _, word in old], [word for _, word in new], work):
        for i_end, j_end in run:
            # Both texts from the last word in common up to this one.
            removed = "".join(map("".join, old[i:i_end])) + old[i_end][0]
            added = "".join(map("".join, new[j:j_end])) + new[j_end][0]
            if removed != added:
                start = _spaces_in_common(removed, added)
                yield DiffPart("same", same + removed[:start])
                removed, added = removed[start:], added[start:]
                end = _spaces_in_common(removed[::-1], added[::-1])
                yield DiffPart("removed", removed[: len(removed) - end])
                yield DiffPart("added", added[: len(added) - end])
                same, removed = "", removed[len(removed) - end :]
            same += removed + old[i_end][1]
            i, j = i_end + 1, j_end + 1
    yield DiffPart("same", same)


def _spaces_in_common(a: str, b: str) -> int:
    return first_difference(a[: len(a) - len(a.lstrip())], b[: len(b) - len(b.lstrip())])


def _matching_words(old: list[str], new: list[str], work: Work) -> list[Pairs]:
    """Return the places of equal words, and of equal punctuation between these, in runs."""
    places = [[at for at, word in enumerate(text) if _IS_WORD(word)] for text in (old, new)]
    words = [old[i] for i in places[0]], [new[j] for j in places[1]]
    runs = _readable(match(*words, work), *words)
    pairs = [(places[0][i], places[1][j]) for run in runs for i, j in run]
    for i, j in [*gaps(pairs, (len(old), len(new)))]:
        pairs += [(i.start + m, j.start + n) for m, n in match(old[i], new[j], work)]
    return _readable(sorted(pairs), old, new)


def _readable(pairs: Pairs, old: list[str], new: list[str]) -> list[Pairs]:
    """Return the pairs in runs, moved and left out such that changes are in few pieces.

    A run between two changes moves to the beginning of what was only removed, or only added, if it
    is there as well: both changes are then one. One or two words between longer replacements are
    left out: two sentences that share only "the" and "of" are better read one after the other.
    """

    def between(before: Pairs, after: Pairs) -> tuple[int, int]:
        return after[0][0] - before[-1][0] - 1, after[0][1] - before[-1][1] - 1

    def moved(before: Pairs, run: Pairs, after: Pairs) -> Pairs:
        removed, added = between(before, run)
        if (removed and added) or not any(between(run, after)):
            return run
        other = [(i - removed, j - added) for i, j in run]
        return other if all(old[i] == new[j] for i, j in other) else run

    def is_noise(before: Pairs, run: Pairs, after: Pairs) -> bool:
        return len(run) <= _MAX_NOISE and len(run) < min(
            *between(before, run), *between(run, after)
        )

    runs = groupby(enumerate(pairs), lambda each: (each[1][0] - each[0], each[1][1] - each[0]))
    kept: list[Pairs] = [[(-1, -1)]]
    for run in [*([pair for _, pair in group] for _, group in runs), [(len(old), len(new))]]:
        if len(kept) > 1:
            kept[-1] = moved(kept[-2], kept[-1], run)
        while len(kept) > 1 and is_noise(kept[-2], kept[-1], run):
            kept.pop()
        kept.append(run)
    return kept[1:-1]


def _shortened(parts: list[DiffPart]) -> Iterator[DiffPart]:
    """Yield the parts with what is around the differences, up to `_DIFF_CHARS` of each text."""
    left = {"removed": _DIFF_CHARS, "added": _DIFF_CHARS}
    for number, (kind, text) in enumerate(parts):
        if kind != "same":
            yield DiffPart(kind, text[: max(0, left[kind])])
            left[kind] -= len(text)
            continue
        if min(left.values()) < 0:
            yield DiffPart("same", "…")
            return
        head = _CONTEXT if number else 0
        tail = _CONTEXT if number < len(parts) - 1 else 0
        if len(text) > head + tail + (_FOLDED if head and tail else 0):
            text = f"{text[:head]}…{text[len(text) - tail :]}"
        yield DiffPart("same", text)
        left = {kind: chars - len(text) for kind, chars in left.items()}
