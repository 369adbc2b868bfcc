"""One JSON record, as bytes, to a value; or one `Defect` that says what is wrong with it.

1. The good path costs a few byte counts. Whatever is slow runs only on a suspicious record.
2. Nothing recurses before the depth is known, and nothing is decoded that is not UTF-8.
3. Every text here keeps the length of the record, so that offsets stay true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from ..errors import DatasetError

__all__ = [
    "NAMES",
    "Defect",
    "decode_record",
    "explain",
    "masked",
    "missing",
    "misspelt",
    "not_utf8",
    "problem_and_path",
    "raw_object",
    "refuse_repeated",
    "too_deep",
]

NAMES = ("id", "input", "expected", "metadata", "ground_truth")
"""The keys that a sample may have; any other key is the user's own, and ignored."""

_ID, _INPUT, _EXPECTED, _METADATA = b'"id"', b'"input"', b'"expected"', b'"metadata"'
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_JSON_ERROR = re.compile(r"JSON is malformed: (?P<what>.+) \(byte (?P<offset>\d+)\)")
_PLACE = re.compile(r"(?P<what>.*) - at (?P<key>`key` in )?`(?P<path>\$.*)`", re.DOTALL)
_MISSING = re.compile(r"missing required field `(.+)`")
_NOT_A_NUMBER = re.compile(rb"-?(?:NaN|Infinity|inf|nan)")
_CLEARER = {
    "Number out of range": "expected a finite number, got one beyond the range of a float",
    "Integer value out of range": "expected an integer of at most 4300 digits, got a longer one",
}

_BRACES_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))

raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""An object whose values are still JSON."""


class Defect(Exception):
    """What is wrong with a record; the reader knows the file and the line, and adds them."""

    def __init__(self, problem: str, path: str = "", *, lines_down: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.lines_down = lines_down

    def at(self, file: Path, line: int, root: str = "$") -> DatasetError:
        path = root + self.path.removeprefix("$")
        line += self.lines_down
        return DatasetError(self.problem, file=file, line=line, path="" if path == "$" else path)


def decode_record(data: bytes, decode: Callable[[bytes], Any], max_depth: int) -> Any:
    """The record as `decode` reads it, checked."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(data, error) from None
    if len(data) > 2 * max_depth and _deeper_than(max_depth, data):
        raise too_deep(max_depth)
    try:
        value = decode(data)
    except msgspec.MsgspecError as error:
        raise explain(error, data) from None
    count = data.count
    if count(_ID) > 1 or count(_INPUT) > 1 or count(_EXPECTED) > 1 or count(_METADATA) > 1:
        for quoted in (_ID, _INPUT, _EXPECTED, _METADATA):
            refuse_repeated(quoted, data)
    return value


def too_deep(max_depth: int, *, lines_down: int = 0) -> Defect:
    problem = f"expected at most {max_depth} levels of nesting, got more"
    return Defect(f"{problem} - raise `max_depth` to allow them", lines_down=lines_down)


def missing(name: str, data: bytes) -> Defect:
    """A field is not there; if a key looks like a misspelling of it, say so."""
    hint = misspelt(name, data)
    return Defect(f"missing required field `{name}`" + (f" - is `{hint}` a typo?" if hint else ""))


def misspelt(name: str, data: bytes) -> str:
    """The key that was probably meant to be `name`, or nothing."""
    try:
        unknown = raw_object(masked(data)).keys() - set(NAMES)
    except msgspec.DecodeError:
        return ""  # What follows the object is no JSON either.
    return next(iter(get_close_matches(name, unknown, 1, 0.75)), "")


def not_utf8(data: bytes, error: UnicodeDecodeError) -> Defect:
    if data.startswith(_UTF16_MARKS):
        return Defect("expected UTF-8, got UTF-16 - save the file as UTF-8")
    start = data.rfind(b"\n", 0, error.start) + 1
    return Defect(
        f"expected UTF-8, got byte 0x{data[error.start]:02x} at offset {error.start - start}",
        lines_down=data.count(b"\n", 0, start),
    )


def explain(error: msgspec.MsgspecError, data: bytes) -> Defect:
    """msgspec's message in our grammar, with its place."""
    if str(error) == "Input data was truncated":
        return _syntax("got one that is cut off", data, len(data.rstrip()))
    if (found := _JSON_ERROR.fullmatch(str(error))) is None:
        return _mismatch(error, data)
    offset = int(found["offset"])
    if b"\0" in data[:4]:
        return Defect("expected UTF-8, got UTF-16 or binary data - save the file as UTF-8")
    if number := _NOT_A_NUMBER.match(data, offset - (data[offset - 1 : offset] == b"-")):
        return _syntax(f"got `{number[0].decode()}`, which JSON does not have", data, offset)
    return _syntax(f"got malformed text ({found['what']})", data, offset)


def _syntax(got: str, data: bytes, offset: int) -> Defect:
    start = data.rfind(b"\n", 0, offset) + 1
    column = len(data[start:offset].decode("utf-8", "replace")) + 1
    return Defect(
        f"expected a JSON value, {got} - in column {column}",
        lines_down=data.count(b"\n", 0, offset),
    )


def _mismatch(error: msgspec.MsgspecError, data: bytes) -> Defect:
    problem, path = problem_and_path(error)
    field = _MISSING.fullmatch(problem)
    return missing(field[1], data) if field and not path else Defect(problem, path)


def problem_and_path(error: Exception) -> tuple[str, str]:
    """msgspec's message in our grammar: what is wrong, and at which `$.path` (or nothing)."""
    place = _PLACE.fullmatch(str(error))
    problem, path = (place["what"], place["path"]) if place else (str(error), "")
    if error.__cause__ is None:  # Otherwise these are the words of a user's `__post_init__`.
        problem = problem.removeprefix("Object ")
        problem = _CLEARER.get(problem, problem[:1].lower() + problem[1:])
    return (f"{problem} for a key" if place and place["key"] else problem), path


def masked(data: bytes) -> bytes:
    """The same JSON without lone surrogates, which msgspec does not read; no offset moves."""
    if b"\\" not in data:
        return data
    return data.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0")


def _deeper_than(max_depth: int, data: bytes) -> bool:
    """Whether brackets nest deeper; of unbalanced text, whether they may."""
    # Taking a byte out is twice as fast as counting it.
    if len(data) - len(data.replace(b"[", b"").replace(b"{", b"")) <= max_depth:
        return False
    no_escapes = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    no_strings = b"".join(no_escapes.split(b'"')[::2])
    brackets = no_strings.translate(_BRACES_AS_BRACKETS, _NO_BRACKET)
    for depth in range(max_depth + 1):
        # Each round takes the innermost pairs away.
        if len(outer := brackets.replace(b"[]", b"")) == len(brackets):
            return depth + brackets.count(b"[") > max_depth
        brackets = outer
    return True


def refuse_repeated(quoted: bytes, data: bytes) -> None:
    """Of two equal keys the last would win, silently. Most often the second is deeper inside."""
    data = masked(data)
    inside = b"\n".join(map(bytes, raw_object(data).values()))
    if data.count(quoted) - inside.count(quoted) < 2:
        return
    pairs = json.loads(data, object_pairs_hook=list, parse_int=str, parse_float=str)
    name = quoted[1:-1].decode()
    if (times := [key for key, _ in pairs].count(name)) > 1:
        raise Defect(f"expected the key `{name}` once, got it {times} times", f"$.{name}")
