"""Undo the encodings of a text, and map each character to its position in the original.

Text is handled as UTF-8, one character (of Latin-1) for each byte: percent escapes and base64
encode bytes.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

_MAX_ROUNDS = 8  # layers of escapes
_MAX_ESCAPE = 24  # characters


class LazyPattern:
    """A regular expression that is compiled on first use, so that importing stays fast."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._given = text, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(*self._given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)


def to_bytes(text: str) -> str:
    """Return the UTF-8 bytes of the text as characters of Latin-1."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


# ── escapes ─────────────────────────────────────────────────────────────────────────────────────

_ESCAPE = LazyPattern(
    r"\\++u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\++u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\++(?:u(?P<u>[0-9a-fA-F]{4})|x(?P<x>[0-9a-fA-F]{2})|(?P<letter>[nrtbf])"
    r"|(?P<same>[^A-Za-z0-9\\])|(?<=\\\\))"
    r"|%(?:25)*(?P<percent>[0-9a-fA-F]{2})"
    r"|&(?:\#0*(?P<decimal>[0-9]{1,7})|\#[xX]0*(?P<hex>[0-9a-fA-F]{1,6})|(?P<name>[A-Za-z]{2,8}));",
    re.DOTALL,
)
# What may be the beginning of an escape, or of a character, at the end of a text.
_PARTIAL_ESCAPE = LazyPattern(
    r"(?:\\++(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|%[0-9a-fA-F]?|&\#?[0-9A-Za-z]{0,9})\Z"
)
PARTIAL_CHARACTER = LazyPattern(
    r"(?:[\xc0-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf7][\x80-\xbf]{0,2})\Z"
)
_LETTERS_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def without_partial_escapes(text: str) -> Iterator[str]:
    """Yield the text, and the text before an escape that may be incomplete at its end."""
    yield text
    for _ in range(3):  # nested escapes may end in several incomplete ones
        partial = _PARTIAL_ESCAPE.search(text, max(0, len(text) - _MAX_ESCAPE))
        if partial is None:
            return
        yield (text := text[: partial.start()])


class Layer:
    """A text after some rounds of decoding, and the original positions of its characters."""

    def __init__(self, text: str, outer: Layer | None = None) -> None:
        self.text, self._outer = text, outer
        self.inner_positions: list[int] = []  # where an escape begins or ends, in this text,
        self.outer_positions: list[int] = []  # and in the text before this round

    def source(self, position: int) -> int:
        """Return the position in the original text of a position in this one."""
        if self._outer is None:
            return position
        which = bisect_right(self.inner_positions, position) - 1
        if which >= 0:
            position = self.outer_positions[which] + position - self.inner_positions[which]
        return self._outer.source(position)


def layers(text: str) -> Iterator[Layer]:
    """Yield the text, and the result of each round of decoding."""
    layer = Layer(text)
    yield layer
    for _ in range(_MAX_ROUNDS):
        inner = _unescaped(layer)
        if inner is None:
            return
        yield (layer := inner)


def _unescaped(outer: Layer) -> Layer | None:
    if not any(map(outer.text.__contains__, "\\%&")):
        return None
    pieces: list[str] = []
    inner, length, end = Layer("", outer), 0, 0
    for match in _ESCAPE.finditer(outer.text):
        char = _decode_escape(match)
        if char == match[0]:
            continue
        start, stop = match.span()
        pieces += outer.text[end:start], char
        length += start - end
        inner.inner_positions += length, length + len(char)
        inner.outer_positions += start, stop
        length += len(char)
        end = stop
    if not pieces:
        return None
    inner.text = "".join([*pieces, outer.text[end:]])
    return inner


def _decode_escape(match: re.Match[str]) -> str:
    """Return the character that an escape stands for."""
    kind, digits = match.lastgroup, match[match.lastgroup or 0]
    match kind:
        case "low":
            pair = bytes.fromhex(match["high"] + digits)
            return to_bytes(pair.decode("utf-16-be"))
        case "u" | "hex":
            return _character(int(digits, 16), match[0])
        case "decimal":
            return _character(int(digits), match[0])
        case "x" | "percent":
            return chr(int(digits, 16))
        case "letter":
            return _LETTERS_ESCAPED[digits]
        case "same":
            return digits
        case "name":
            from html.entities import html5

            return to_bytes(html5.get(f"{digits};", match[0]))
    return "\\"  # several backslashes, doubled any number of times


def _character(code: int, escape: str) -> str:
    return to_bytes(chr(code)) if code < 0x110000 else escape


# ── base64 ──────────────────────────────────────────────────────────────────────────────────────

# A line break is part of it only after a long line; otherwise ordinary words would match.
_BASE64 = LazyPattern(
    r"[A-Za-z0-9+/_-]{4,}+(?:(?<=[A-Za-z0-9+/_-]{40})\r?\n[ \t]*+[A-Za-z0-9+/_-]++)*+"
)
_BASE64_AT_END = LazyPattern(
    r"(?P<run>(?<=[A-Za-z0-9+/_-]{40})(?=\r?\n)|(?<=[A-Za-z0-9+/_-]{8})(?=\Z))(?:\r?\n[ \t]*)?\Z"
)
_STANDARD_ALPHABET = str.maketrans("-_", "+/")


class _Base64Run(NamedTuple):
    """Characters of base64 without line breaks, and the position of each."""

    code: str
    places: range | list[int]

    def decoded(self, first: int) -> str:
        """Return the decoded bytes, with the first group of four at that character."""
        size = len(self.code) - first
        size -= size % 4 == 1  # a single remaining character is not a whole byte
        code = self.code[first : first + size] + "=" * (-size % 4)
        return a2b_base64(code).decode("latin-1")


def base64_runs(text: str) -> Iterator[_Base64Run]:
    """Return the runs of base64 in the text."""
    return map(_base64_run, _BASE64.finditer(text))


def base64_at_end(text: str) -> Iterator[_Base64Run]:
    """Yield the run that may continue after the end of the text, if there is one."""
    if match := _BASE64_AT_END.search(text, max(0, len(text) - _MAX_ESCAPE)):
        # The whole run, which may have begun some lines before.
        for run in _BASE64.finditer(text):
            if run.end() == match.end("run"):
                yield _base64_run(run)


def _base64_run(match: re.Match[str]) -> _Base64Run:
    code = match[0].translate(_STANDARD_ALPHABET)
    if "\n" not in code:
        return _Base64Run(code, range(*match.span()))
    kept = [at for at, char in enumerate(code) if char not in "\r\n\t "]
    return _Base64Run("".join(code[at] for at in kept), [match.start() + at for at in kept])
