"""Text for evaluators: how far two texts are apart, and a text without its accidents."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Collection
from typing import Literal

__all__ = ["Accident", "edit_distance", "without"]

Accident = Literal["case", "whitespace", "punctuation", "accents", "articles"]

# The point, comma or sign of a number belongs to the number: 3.14 is not 314.
_PUNCTUATION = re.compile(r"(?P<number>(?<=\d)[.,](?=\d)|(?<!\w)[-−](?=[\d.]))|[^\w\s]|_")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)


def without(text: str, accidents: Collection[str]) -> str:
    """The text less its accidents; whitespace is made even rather than removed."""
    if "accents" in accidents:
        apart = unicodedata.normalize("NFD", text)
        # Together again afterwards: Hangul, for one, comes apart into letters.
        text = unicodedata.normalize("NFC", "".join(c for c in apart if not _is_accent(c)))
    if "case" in accidents:
        text = text.casefold()
    if "punctuation" in accidents:
        text = _PUNCTUATION.sub(_unless_in_a_number, text)
    if "articles" in accidents:
        text = _ARTICLES.sub(" ", text)
    # Taking articles away leaves gaps, which would count as differences.
    return " ".join(text.split()) if {"whitespace", "articles"} & set(accidents) else text


def _unless_in_a_number(found: re.Match[str]) -> str:
    mark = found[0]
    is_punctuation = mark in string.punctuation or unicodedata.category(mark).startswith("P")
    return "" if is_punctuation and not found["number"] else mark


def _is_accent(character: str) -> bool:
    return unicodedata.combining(character) > 0


def edit_distance(a: str, b: str) -> int:
    """Insertions, deletions and replacements from `a` to `b`, each counted once (Levenshtein).

    A column of the usual table is kept as two bit sets, where it steps up and where down (Myers
    1999, in Hyyrö's form), so that one character of `b` costs a few operations on long integers.
    """
    if not a:
        return len(b)
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
