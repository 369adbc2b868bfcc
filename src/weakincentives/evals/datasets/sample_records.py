"""Decode one JSON record; or raise one `Defect` that says what is wrong with it.

1. A valid record costs a few byte counts. Slow checks run only on a suspicious record.
2. Nothing recurses before the depth is known, and nothing is decoded that is not UTF-8.
3. Every text here keeps the length of the record, so that offsets stay correct.
4. Whatever a decoder or a user's type raises becomes a `Defect`: expected, got, and the path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from traceback import format_exception_only
from typing import Any, get_args

import msgspec

from ... import serde
from ...errors import DatasetError, DatasetTypeError, WinkError, short_repr
from ...secrets import shorten
from .type_info import choices

NAMES = ("id", "input", "expected", "metadata", "ground_truth")
"""The keys that a sample may have; any other key is ignored."""

_ID, _INPUT, _EXPECTED, _METADATA = b'"id"', b'"input"', b'"expected"', b'"metadata"'
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_JSON_ERROR = re.compile(r"JSON is malformed: (?P<what>.+) \(byte (?P<offset>\d+)\)")
_PLACE = re.compile(r"(?P<what>.*) - at (?P<key>`key` in )?`(?P<path>\$.*)`", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field (`.+`)")
_NO_CHOICE = re.compile(r"Invalid (?:enum )?value (.+)", re.DOTALL)
_NOT_A_NUMBER = re.compile(rb"-?(?:NaN|Infinity|inf|nan)")
_CLEARER = {
    "Number out of range": "expected a finite number, got one beyond the range of a float",
    "Integer value out of range": "expected an integer of at most 4300 digits, got a longer one",
}
_FORMS = {
    "Invalid RFC3339 encoded date": "a date as in RFC 3339",
    "Invalid RFC3339 encoded datetime": "a date and time as in RFC 3339",
    "Invalid RFC3339 encoded time": "a time as in RFC 3339",
    "Invalid ISO8601 duration": "a duration as in ISO 8601",
    "Invalid UUID": "a UUID",
    "Invalid base64 encoded string": "base64",
    "Invalid decimal string": "a decimal number",
}
_MAX_LISTED_KEYS = 5

_BRACES_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))

raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""An object whose values are still JSON."""
plain_object: Callable[[bytes], dict[str, Any]] = serde.decoder(dict[str, Any])

_scan = json.JSONDecoder().raw_decode


class Defect(Exception):
    """A defect of a record; the reader adds the file and the line."""

    def __init__(
        self, problem: str, path: str = "", *, lines_down: int = 0, wrong_type: bool = False
    ) -> None:
        super().__init__(problem)
        self.error_type = DatasetTypeError if wrong_type else DatasetError
        self.problem = problem
        self.path = path
        self.lines_down = lines_down

    def at(self, file: Path | str, line: int, root: str = "$") -> DatasetError:
        path = root + self.path.removeprefix("$")
        line += self.lines_down
        path = "" if path == "$" else path
        return self.error_type(self.problem, file=file, line=line, path=path)


def decode_record(
    data: bytes, decode: Callable[[bytes], Any], max_depth: int, wanted: Any = None
) -> Any:
    """Return the record as `decode` reads it, checked; `wanted`, its type, is for messages."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(data, error) from None
    if len(data) > 2 * max_depth and _deeper_than(max_depth, data):
        raise too_deep(max_depth)
    try:
        value = decode(data)
    except Defect:
        raise
    except Exception as error:
        raise explain(error, data, wanted) from _users_own(error)
    count = data.count
    if count(_ID) > 1 or count(_INPUT) > 1 or count(_EXPECTED) > 1 or count(_METADATA) > 1:
        for quoted in (_ID, _INPUT, _EXPECTED, _METADATA):
            refuse_repeated(quoted, data)
    return value


def fields_of(data: bytes) -> dict[str, Any]:
    """Return the fields of an object, whose values are still JSON if that is possible."""
    try:
        return raw_object(data)
    except msgspec.DecodeError:
        return plain_object(data)  # slower, but it reads lone surrogates


def too_deep(max_depth: int, *, lines_down: int = 0) -> Defect:
    problem = f"expected at most {max_depth} levels of nesting, got more"
    return Defect(f"{problem} - raise `max_depth` to allow them", lines_down=lines_down)


def missing_field(name: str, keys: Collection[str] | None, path: str = "") -> Defect:
    """Return the defect of a missing field, with the key that may be a misspelling of it."""
    got = f"only {listed(keys)}" if keys else "an empty object"
    if keys is None:
        got = "an object without it"
    elif hint := misspelt(name, keys):
        got += f" - is `{hint}` a typo?"
    return Defect(f"expected the field `{name}`, got {got}", f"{path or '$'}.{name}")


def listed(keys: Collection[str]) -> str:
    names = ", ".join(f"`{shorten(key, 60)}`" for key in list(keys)[:_MAX_LISTED_KEYS])
    return names + (
        f" and {len(keys) - _MAX_LISTED_KEYS} more" if len(keys) > _MAX_LISTED_KEYS else ""
    )


def misspelt(name: str, keys: Iterable[str]) -> str:
    """Return the key that was probably meant to be `name`, or ""."""
    others = {key.strip().casefold(): key for key in keys if key not in NAMES}
    near = get_close_matches(name.casefold(), others, 1, 0.75)
    return others[near[0]] if near else ""


def not_utf8(data: bytes, error: UnicodeDecodeError) -> Defect:
    if data.startswith(_UTF16_MARKS):
        return Defect("expected UTF-8, got UTF-16 - save the file as UTF-8")
    start = data.rfind(b"\n", 0, error.start) + 1
    return Defect(
        f"expected UTF-8, got byte 0x{data[error.start]:02x} at offset {error.start - start}",
        lines_down=data.count(b"\n", 0, start),
    )


def explain(error: Exception, data: bytes = b"", wanted: Any = None) -> Defect:
    """Return what msgspec or a user's type raised as a defect, in our grammar and with its path.

    It is more precise with the data.
    """
    if isinstance(error, RecursionError):
        return Defect("expected less nesting, got more than Python's recursion limit allows")
    if isinstance(error, UnicodeDecodeError):
        return Defect(f"expected UTF-8, got byte 0x{error.object[error.start]:02x}")
    if str(error) == "Input data was truncated":
        return _syntax("got one that is cut off", data, len(data.rstrip()))
    if match := _JSON_ERROR.fullmatch(str(error)):
        return _malformed(match["what"], int(match["offset"]), data)
    return _mismatch(error, data, wanted)


def _malformed(what: str, offset: int, data: bytes) -> Defect:
    if b"\0" in data[:4]:
        return Defect("expected UTF-8, got UTF-16 or binary data - save the file as UTF-8")
    if number := _NOT_A_NUMBER.match(data, offset - (data[offset - 1 : offset] == b"-")):
        return _syntax(f"got `{number[0].decode()}`, which JSON does not have", data, offset)
    where = "" if data else f", byte {offset}"
    return _syntax(f"got malformed text ({what}{where})", data, offset)


def _syntax(got: str, data: bytes, offset: int) -> Defect:
    start = data.rfind(b"\n", 0, offset) + 1
    column = len(data[start:offset].decode("utf-8", "replace")) + 1
    return Defect(
        f"expected a JSON value, {got}" + (f" - in column {column}" if data else ""),
        lines_down=data.count(b"\n", 0, offset),
    )


def _mismatch(error: Exception, data: bytes, wanted: Any) -> Defect:
    place = _PLACE.fullmatch(str(error))
    words, path = (place["what"], place["path"]) if place else (str(error), "")
    if isinstance(cause := _users_own(error), WinkError):
        return Defect(words, path)
    if cause is not None:
        raised = " ".join("".join(format_exception_only(cause)).split())
        problem = f"expected a value that its type accepts, got {raised}"
        return Defect(problem, path or _refusing_field(data, wanted))
    of_key = place is not None and place["key"] is not None
    got = ... if of_key else _value_at(path, data)
    if field := _MISSING.fullmatch(words):
        return missing_field(field[1], got if isinstance(got, dict) else None, path)
    if match := _NO_CHOICE.fullmatch(words):
        allowed = choices(wanted, [key or index for key, index in _STEP.findall(path)])
        problem = f"expected {allowed}, got {_repr_or(shorten(match[1], 80), got)}"
    else:
        problem = _CLEARER.get(words) or _reworded(words, got)
    wrong_type = words.startswith("Expected ")
    return Defect(f"{problem} for a key" if of_key else problem, path, wrong_type=wrong_type)


def _users_own(error: Exception) -> BaseException | None:
    """Return the user's error: msgspec wraps some of those that a `__post_init__` raises."""
    return error.__cause__ if isinstance(error, msgspec.MsgspecError) else error


def _refusing_field(data: bytes, wanted: Any) -> str:
    """Return the path of an error that msgspec did not wrap, and so gave no path."""
    types = get_args(wanted)
    for name, part in zip(("input", "expected", "ground_truth"), types + types[1:], strict=False):
        if (value := _value_at(f"$.{name}", data)) is not ...:
            try:
                serde.decode(json.dumps(value), part)
            except Exception:
                return f"$.{name}"
    return ""


def _value_at(path: str, data: bytes) -> Any:
    """Return the value at a path of a record, or `...` if it cannot be determined."""
    try:
        value, _ = _scan(data.decode().lstrip())
        for key, index in _STEP.findall(path):
            value = value[key or int(index)]
    except (LookupError, RecursionError, TypeError, ValueError):
        return ...
    return value


def _reworded(words: str, got: Any) -> str:
    """Return msgspec's message in our grammar; `got` is `...` if the value is not known."""
    if words.startswith("Expected "):
        expected, _, kind = words.removeprefix("Expected ").partition(", got ")
        if kind == "`str`" and isinstance(got, str):
            kind = f"the text {short_repr(got)}"
        return f"expected {expected}, got {kind or _repr_or('another value', got)}"
    if match := _UNKNOWN.fullmatch(words):
        return f"expected no field beyond those of its type, got {match[1]}"
    if words in _FORMS:
        return f"expected {_FORMS[words]}, got {_repr_or('other text', got)}"
    return f"expected a value of its type, got {_repr_or('another', got)} ({words})"


def _repr_or(unknown: str, got: Any) -> str:
    return unknown if got is ... else short_repr(got)


def masked(data: bytes) -> bytes:
    """Return the same JSON without lone surrogates, which msgspec rejects; offsets stay."""
    if b"\\" not in data:
        return data
    return data.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0")


def _deeper_than(max_depth: int, data: bytes) -> bool:
    """Return whether brackets nest deeper; of unbalanced text, whether they may."""
    # Removing a byte is twice as fast as counting it.
    if len(data) - len(data.replace(b"[", b"").replace(b"{", b"")) <= max_depth:
        return False
    no_escapes = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    no_strings = b"".join(no_escapes.split(b'"')[::2])
    brackets = no_strings.translate(_BRACES_AS_BRACKETS, _NO_BRACKET)
    for depth in range(max_depth + 1):
        # Each round removes the innermost pairs.
        if len(outer := brackets.replace(b"[]", b"")) == len(brackets):
            return depth + brackets.count(b"[") > max_depth
        brackets = outer
    return True


def refuse_repeated(quoted: bytes, data: bytes) -> None:
    """Raise if a key is repeated: the last would silently win. Mostly the second one is nested."""
    data = masked(data)
    inside = b"\n".join(map(bytes, raw_object(data).values()))
    if data.count(quoted) - inside.count(quoted) < 2:
        return
    pairs = json.loads(data, object_pairs_hook=list, parse_int=str, parse_float=str)
    name = quoted[1:-1].decode()
    if (times := [key for key, _ in pairs].count(name)) > 1:
        raise Defect(f"expected the key `{name}` once, got it {times} times", f"$.{name}")
