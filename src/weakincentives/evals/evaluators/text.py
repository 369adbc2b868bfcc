"""Text for evaluators: edit distance and normalization."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Collection
from typing import Literal

from ...errors import EvaluatorError
from ...internal.text_differences import first_difference

MAX_CELLS = 100_000**2  # of the table of an edit distance
Normalization = Literal["case", "whitespace", "punctuation", "accents", "articles"]

# The point, comma or sign of a number is kept: 3.14 is not 314.
_PUNCTUATION = re.compile(r"(?P<number>(?<=\d)[.,](?=\d)|(?<!\w)[-−](?=[\d.]))|[^\w\s]|_")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)


def normalize(text: str, aspects: Collection[str]) -> str:
    """Return the text without these aspects; runs of whitespace become one blank."""
    if "accents" in aspects:
        letters = [c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)]
        # Composed again afterwards, since Hangul is decomposed into letters.
        text = unicodedata.normalize("NFC", "".join(letters))
    if "case" in aspects:
        text = text.casefold()
    if "punctuation" in aspects:
        text = _PUNCTUATION.sub(_unless_in_a_number, text)
    if "articles" in aspects:
        text = _ARTICLES.sub(" ", text)
    # Removing articles leaves gaps, which would count as differences.
    return " ".join(text.split()) if {"whitespace", "articles"} & set(aspects) else text


def _unless_in_a_number(match: re.Match[str]) -> str:
    mark = match[0]
    is_punctuation = mark in string.punctuation or unicodedata.category(mark).startswith("P")
    return "" if is_punctuation and not match["number"] else mark


def edit_distance(a: str, b: str) -> int:
    """Return the Levenshtein distance: insertions, deletions and replacements from `a` to `b`.

    A column of the usual table is kept as two bit sets, of steps up and steps down (Myers 1999, in
    Hyyrö's form), so that one character of `b` takes a few operations on long integers: 40,000 by
    40,000 characters take half a second, and 100,000 by 100,000 three seconds. Equal beginnings
    and ends cost nothing. More than `MAX_CELLS` of the table are an error.
    """
    start = first_difference(a, b)
    a, b = a[start:][::-1], b[start:][::-1]
    end = first_difference(a, b)
    a, b = a[end:], b[end:]
    if not a or not b:
        return len(a) + len(b)
    if len(a) * len(b) > MAX_CELLS:
        raise EvaluatorError(
            "expected texts that differ in at most 100,000 by 100,000 characters, got "
            f"{len(a):,} by {len(b):,} (between the first and the last difference)"
        )
    everywhere = (1 << len(a)) - 1
    last = 1 << (len(a) - 1)
    places: dict[str, int] = {}
    for index, character in enumerate(a):
        places[character] = places.get(character, 0) | 1 << index
    up, down, distance = everywhere, 0, len(a)
    for character in b:
        same = places.get(character, 0)
        diagonal = (((same & up) + up) ^ up) | same | down
        across_up = down | ~(diagonal | up) & everywhere
        across_down = up & diagonal
        distance += bool(across_up & last) - bool(across_down & last)
        across_up = across_up << 1 | 1
        up = (across_down << 1 | ~(diagonal | across_up)) & everywhere
        down = across_up & diagonal & everywhere
    return distance
