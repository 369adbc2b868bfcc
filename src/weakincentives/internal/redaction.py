"""Find known secrets in text, however the text is encoded, and replace them.

Theory of operation. A text may contain a secret inside layers of encodings: JSON within a URL, HTML
within JSON, base64 of any of these. There are too many combinations to write a pattern for each, so
this file decodes instead, as a reader of the text would:

1. Each round undoes one layer of backslash, percent and HTML escapes, and maps each character to
   its position in the original text. The text of every round is searched for secrets.
2. In every round, runs of base64 are decoded at each of the four possible alignments of a group of
   four characters, and the result is searched in the same way.
3. Matches are replaced in the original text.

Decoding is slow, and nearly all texts contain no secret. So `may_be_in` filters first. For each
secret it has probes: substrings of letters and digits that no encoding changes, of the secret
itself and of its base64 at each alignment. Probes are grouped by their rarest character, judged by
the frequency of letters in English: most texts do not contain a `Q` or a `Z`, so that most groups
are ruled out by one `in` test. Only if all probes of a secret occur is the text decoded.

`internal/encodings.py` does the decoding. Text is handled as UTF-8, one character for each byte.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from .encodings import (
    PARTIAL_CHARACTER,
    Layer,
    LazyPattern,
    base64_at_end,
    base64_runs,
    layers,
    to_bytes,
    without_partial_escapes,
)

HIDDEN = "***"
_HIDDEN_BASE64 = "b29v"  # base64 of `ooo`: with 'o', shared bits can never decode to a quote
_MAX_NESTING = 2  # base64 within base64
_MIN_LINE = 60  # base64 is wrapped after 64 characters (PEM) or 76 (MIME)
_MIN_PROBE = 8  # characters
_MANY_PROBES = 6  # from this number on, a group of probes has a pattern
_MIN_HELD = 4  # characters: a shorter beginning of a secret is not held back


_JSON_STRING = LazyPattern(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)


class Edit(NamedTuple):
    """Replace the characters from `start` to `stop`."""

    start: int
    stop: int
    put: str


class Redactor:
    """Replace these values, which are sorted so that the longest comes first."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values = tuple(values)

    def may_be_in(self, text: str) -> bool:
        """Return False if the text certainly contains no secret. Text, or bytes as Latin-1."""
        for rare, near, probes in self._probes:
            if rare in text and (near is None or near.search(text)):
                for first, rest in probes:
                    if first in text and all(map(text.__contains__, rest)):
                        return True
        return False

    def redact(self, text: str) -> str:
        """Return the text without secrets. JSON stays JSON."""
        if text.lstrip()[:1] in ("{", "[", '"'):
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                return str(_JSON_STRING.sub(self._redact_json_string, text))
        text = to_bytes(text)
        while (clean := _apply(text, self.find(text))) != text:  # a replacement may form another
            text = clean
        return text.encode("latin-1").decode("utf-8", "surrogatepass")

    def _redact_json_string(self, literal: re.Match[str]) -> str:
        text = json.loads(literal[0])
        clean = self.redact(text) if self.may_be_in(text) else text
        return literal[0] if clean == text else json.dumps(clean)

    def find(self, text: str, nesting: int = 0) -> Iterator[Edit]:
        """Yield the replacements in the text, in any order."""
        if not self.values:
            return
        for layer in layers(text):
            for match in self._pattern.finditer(layer.text):
                yield Edit(layer.source(match.start()), layer.source(match.end()), HIDDEN)
            if nesting < _MAX_NESTING:
                yield from self._find_in_base64(layer, nesting + 1)

    def _find_in_base64(self, layer: Layer, nesting: int) -> Iterator[Edit]:
        for run in base64_runs(layer.text):
            if not any(piece in run.code for piece in self._base64_pieces):
                continue
            for first in range(4):
                decoded = run.decoded(first)
                for start, stop, _ in self.find(decoded, nesting):
                    # Only characters that share no bits with their neighbours.
                    for at in range(first + -(-start * 4 // 3), first + stop * 4 // 3):
                        put = _HIDDEN_BASE64[(at - first) % 4]
                        place = run.places[at]
                        yield Edit(layer.source(place), layer.source(place + 1), put)

    def held_from(self, text: str, nesting: int = 0) -> int:
        """Return where the text ends in the beginning of a secret; its length if it does not."""
        held = len(text)
        if not nesting and (partial := PARTIAL_CHARACTER.search(text, max(0, held - 3))):
            held = partial.start()  # hold back an incomplete character
        for layer in layers(text):
            for shorter in without_partial_escapes(layer.text.replace("+", " ")):
                if (at := self._beginning(shorter)) is not None:
                    held = min(held, layer.source(at))
            for run in base64_at_end(layer.text) if nesting < _MAX_NESTING else ():
                for first in range(4):
                    decoded = run.decoded(first)
                    if (at := self.held_from(decoded, nesting + 1)) < len(decoded):
                        held = min(held, layer.source(run.places[first + at * 4 // 3]))
        return held

    def _beginning(self, text: str) -> int | None:
        """Return where the text ends in the beginning of a secret."""
        for value in self._beginnings:
            at = text.find(value[:_MIN_HELD])
            while at >= 0:
                if value.startswith(text[at:]):
                    return at
                at = text.find(value[:_MIN_HELD], at + 1)
        return None

    @cached_property
    def longest(self) -> int:
        """The maximum length of an encoded secret, in bytes."""
        return 256 + 8 * max((len(to_bytes(value)) for value in self.values), default=0)

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        """The values as bytes, and as the decoding rounds change them."""
        plain = [to_bytes(value) for value in self.values]
        # A backslash at the end may belong to the character after the value.
        decoded = [[*layers(value)][-1].text.rstrip("\\") for value in plain]
        # Not those that became so short that they occur in ordinary words.
        enough = (value for value in decoded if len(value) >= _MIN_PROBE - 2)
        return tuple(sorted({*plain, *enough}, key=lambda value: (-len(value), value)))

    @cached_property
    def _beginnings(self) -> set[str]:
        return {value.replace("+", " ") for value in self._spellings}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # A space may be a plus in the query of a URL.
        return re.compile("|".join(re.escape(v).replace("\\ ", "[ +]") for v in self._spellings))

    @cached_property
    def _base64_pieces(self) -> tuple[str, ...]:
        return tuple(
            piece
            for value in self.values
            if value.isascii()  # others might leave half a character, which is invalid UTF-8
            for piece in _base64_pieces(value)
        )

    @cached_property
    def _probes(self) -> tuple[tuple[str, re.Pattern[str] | None, tuple[_Probe, ...]], ...]:
        """The probes of all secrets, grouped by their rarest character.

        A large group has a pattern of that character and what may follow it: one search instead
        of many.
        """
        groups: dict[str, list[_Probe]] = {}
        texts = [_ordinary_pieces(value) for value in self.values]
        for first, *rest in [*texts, *([piece] for piece in self._base64_pieces)]:
            rare = min(first[:-1], key=_BY_RARITY.index, default=first)
            groups.setdefault(rare, []).append((first, tuple(rest)))
        return tuple(
            (
                rare,
                _beginnings_at(rare, probes) if len(probes) >= _MANY_PROBES else None,
                tuple(probes),
            )
            for rare, probes in groups.items()
        )


_Probe = tuple[str, tuple[str, ...]]  # pieces of a secret, which must all occur


def _beginnings_at(rare: str, probes: list[_Probe]) -> re.Pattern[str]:
    return re.compile(
        "|".join({re.escape(rare + each.partition(rare)[2][:3]) for each, _ in probes})
    )


class StreamRedactor:
    """Redact a stream of bytes, even secrets that are split between pieces.

    Bytes that may be the beginning of a secret are held back until the next piece. Its first few
    characters are passed on, so that the end of an interactive prompt is never held back.
    """

    def __init__(self, current: Callable[[], Redactor]) -> None:
        self._current = current  # a function, since secrets may be added at any time
        # The last bytes, redacted ones too: base64 is recognised by the length of its lines.
        self._recent = ""
        self._passed = 0  # how many of these were passed on

    def feed(self, data: bytes) -> bytes:
        """Add bytes; return those that can be passed on now."""
        redactor, text = self._current(), self._recent + data.decode("latin-1")
        pieces: list[str] = []
        end = self._passed
        if redactor.may_be_in(text):
            for start, stop, put in sorted(redactor.find(text)):
                if stop > self._passed and max(start, self._passed) >= end:
                    pieces += text[end:start], put
                end = max(end, stop)
        begin = max(0, len(text) - redactor.longest)
        held = max(end, begin + redactor.held_from(text[begin:]))
        pieces.append(text[end:held])
        begin = min(begin, held)
        self._recent, self._passed = text[begin:], held - begin
        return "".join(pieces).encode("latin-1")

    def finish(self) -> bytes:
        """Return what was held back, or `***` if it may be most of a secret."""
        rest = self._recent[self._passed :]
        self._recent, self._passed = "", 0
        return (rest if len(rest) < _MIN_PROBE else HIDDEN).encode("latin-1")


def _apply(text: str, edits: Iterable[Edit]) -> str:
    pieces: list[str] = []
    end = 0
    for start, stop, put in sorted(edits):
        if start >= end:
            pieces += text[end:start], put
        end = max(end, stop)  # an overlapping edit only extends the one before
    return "".join([*pieces, text[end:]])


# ── probes: pieces that no encoding changes ─────────────────────────────────────────────────────

_LETTERS = LazyPattern(r"[A-Za-z0-9]+")
_ORDINARY = LazyPattern(r"[A-Za-z0-9_.-]+")  # rarely escaped
_BY_RARITY = "QZXJKVYWUGHqzjxBPFMDOLNRCESITA_9876543210kvwybgpfmucdlhrsnioate.-"


def _ordinary_pieces(value: str) -> list[str]:
    """Return parts of the value that no encoding changes, the longest first."""
    if len(longest := max(_LETTERS.findall(value), key=len, default="")) >= _MIN_PROBE:
        return [longest]
    return sorted(_ORDINARY.findall(value), key=len, reverse=True) or [""]


def _base64_pieces(value: str) -> Iterator[str]:
    """Yield substrings of which any base64 text that contains the value contains at least one.

    For each offset of the value (mod 3), take the base64 characters that depend on the value only,
    and of these two runs of letters and digits, which no further encoding changes. They are so
    close together that a line break can be in only one of them.
    """
    # The base64 of this part is the same, however the rest of the value was escaped before.
    part = _ordinary_pieces(value)[0]
    part = part if len(part) >= _MIN_PROBE else value
    for before, skip in ((0, 0), (1, 2), (2, 3)):
        code = b64encode(bytes(before) + part.encode()).decode()
        code = code[skip : (before + len(part)) * 8 // 6][:_MIN_LINE]
        first, second, *_ = *sorted(_LETTERS.findall(code), key=len, reverse=True), "", ""
        half = len(first) // 2
        yield from (first[:half], first[half:]) if half >= len(second) else (first, second)
