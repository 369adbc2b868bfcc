"""Two values that should be equal, and are not: where they differ, in a few words.

A text may have millions of characters, and this runs for every sample that fails, so only a part of
it is looked at. The part is redacted before it is cut: see `weakincentives.secrets`.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from ..errors import short_repr
from ..secrets import redact

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

_DIFF_CHARS = 1_500  # of the differing part, on each side
_CONTEXT = 60  # characters around it
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


class DiffPart(NamedTuple):
    """A part of two texts: in both, only in the first, or only in the second."""

    kind: Literal["same", "removed", "added"]
    text: str


def word_diff(before: str, after: str) -> tuple[DiffPart, ...]:
    """Return what changed from one text to another, word by word; empty if they are equal.

    Of long texts, the first difference and what follows it: at most `_DIFF_CHARS` of each.

    >>> [tuple(part) for part in word_diff("It is 4.", "It is 5.")]
    [('same', 'It is '), ('removed', '4'), ('added', '5'), ('same', '.')]
    """
    a, b = redact(before), redact(after)
    if a == b:
        return ()
    start = _word_start(a, first_difference(a, b))
    end = first_difference(a[start:][::-1], b[start:][::-1])
    end = min(end, len(a) - start, len(b) - start)
    old, new = a[start : len(a) - end], b[start : len(b) - end]
    head, tail = a[max(0, start - _CONTEXT) : start], a[len(a) - end :]
    parts = [DiffPart("same", f"{'…' if start > _CONTEXT else ''}{head}")]
    parts += _compared(old[:_DIFF_CHARS], new[:_DIFF_CHARS])
    if max(len(old), len(new)) > _DIFF_CHARS:
        tail, more = "", "…"
    else:
        tail, more = tail[:_CONTEXT], "…" if len(tail) > _CONTEXT else ""
    parts.append(DiffPart("same", tail + more))
    return tuple(part for part in parts if part.text)


def _word_start(text: str, at: int) -> int:
    """Return the beginning of the word at this place, unless that is far away."""
    start = at
    while start > max(0, at - _CONTEXT) and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    return start


def _no_word(token: str) -> bool:
    """Return whether a token is space or punctuation, which match almost everywhere.

    With them as candidates, the time grows with the cube of their number: 13 s for a page of text.
    """
    return not (token[0].isalnum() or token[0] == "_")


def _compared(a: str, b: str) -> list[DiffPart]:
    old, new = _TOKEN.findall(a), _TOKEN.findall(b)
    parts: list[DiffPart] = []
    removed = added = ""

    def flush() -> None:
        nonlocal removed, added
        parts.extend((DiffPart("removed", removed), DiffPart("added", added)))
        removed = added = ""

    for kind, i, j, k, m in SequenceMatcher(_no_word, old, new, autojunk=False).get_opcodes():
        same = "".join(old[i:j]) if kind == "equal" else ""
        # A space between two changes belongs to them: otherwise sentences fall apart into words.
        if same and (same.strip() or not (removed or added)):
            flush()
            parts.append(DiffPart("same", same))
        else:
            removed += "".join(old[i:j])
            added += "".join(new[k:m])
    flush()
    return parts
