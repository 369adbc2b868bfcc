"""Parse a model's reply into a typed value, and describe the type as a JSON schema.

Rules of this file:
1. For `str` and `Any`, the reply itself is the output.
2. Nothing is guessed. A reply is JSON as a whole, or contains fenced `json` blocks, or JSON objects
   and arrays within text; exactly one of these may fit the type. Truncated JSON is refused, rather
   than taking a part of it for the answer.
3. Nothing is coerced, and unknown keys are refused, at any depth. So are duplicate keys, of which
   JSON parsers silently keep only the last.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any, TypeVar, overload

import msgspec

from .. import serde
from ..errors import OutputParseError, PromptError, SerializationError, short_repr
from .typed import type_label

T = TypeVar("T")

_MAX_QUOTED = 200  # characters of a reply in an error message
_MAX_BEFORE = 10_000  # characters in front of what is scanned
_OPENING = re.compile(r"[{\[]")
_SURELY_JSON = re.compile(r'\{\s*"|\[\s*\{')
_scan = json.JSONDecoder().raw_decode


def is_text(wanted: Any) -> bool:
    """Return whether the output of this type is the reply itself."""
    return wanted is str or wanted is Any or wanted is None


def output_schema(wanted: Any) -> dict[str, Any] | None:
    """Return the JSON schema of structured output; None for plain text."""
    return None if is_text(wanted) else schema_of(wanted)


def schema_of(wanted: Any) -> dict[str, Any]:
    """Return the JSON schema of a type; that of an object is not a reference at the top."""
    try:
        schema = msgspec.json.schema(wanted, schema_hook=_hook)
        serde.decoder(wanted)
    except (NameError, TypeError, ValueError) as error:
        raise PromptError(
            f"expected a type that JSON can fill, got `{type_label(wanted)}`: {error} - "
            "make it a dataclass"
        ) from None
    schema = _closed(schema)
    if set(schema) == {"$ref", "$defs"}:
        # Providers require `"type": "object"` at the top. A recursive type still needs its name.
        own = schema["$ref"].removeprefix("#/$defs/")
        top, named = deepcopy(schema["$defs"][own]), schema["$defs"]
        if schema["$ref"] not in _references(named):
            del named[own]
        schema = {**top, "$defs": named} if named else top
    return schema


def _hook(wanted: type[Any]) -> dict[str, Any]:
    """Return the schema of a type that msgspec does not know, and `serde` can build."""
    if hasattr(wanted, "model_json_schema"):
        described: dict[str, Any] = wanted.model_json_schema()
        return described
    if issubclass(wanted, PurePath):
        return {"type": "string"}
    raise TypeError(f"no JSON schema for `{wanted.__qualname__}`")


def _closed(schema: Any) -> Any:
    """Return the schema with `additionalProperties` set to False."""
    if not isinstance(schema, dict):
        return schema
    done: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("$defs", "properties"):
            done[key] = {name: _closed(each) for name, each in value.items()}
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            done[key] = [_closed(each) for each in value]
        elif key in ("items", "additionalProperties"):
            done[key] = _closed(value)
        else:
            done[key] = value
    if "properties" in done:
        done.setdefault("additionalProperties", False)
    return done


def _references(schema: Any) -> set[str]:
    items = schema.values() if isinstance(schema, dict) else schema
    nested = [_references(each) for each in items if isinstance(each, (dict, list))]
    own = schema.get("$ref") if isinstance(schema, dict) else None
    return set().union([own] if isinstance(own, str) else [], *nested)


@overload
def parse_output(text: str, wanted: type[T]) -> T: ...
@overload
def parse_output(text: str, wanted: Any = ...) -> Any: ...
def parse_output(text: str, wanted: Any = str) -> Any:
    """Return the output in a reply: the text, or the one JSON value in it that fits the type.

    >>> parse_output('It is {"x": 1}.', dict[str, int])
    {'x': 1}
    """
    if is_text(wanted):
        return text
    fits: list[Any] = []
    reason = "no JSON"
    try:
        for index, candidate in enumerate(_candidates(text.strip())):
            try:
                fits.append(decode_strict(candidate, wanted))
            except SerializationError as error:
                reason = reason if index else str(error)
    except _BrokenError as error:
        fits, reason = [], str(error)
    if len(fits) == 1:
        return fits[0]
    if fits:
        reason = f"{len(fits)} that fit"
    raise OutputParseError(
        f"expected one JSON value for `{type_label(wanted)}` in the reply, got {reason} - "
        f"in {short_repr(text, _MAX_QUOTED)}"
    )


def decode_strict(data: bytes | str, wanted: Any) -> Any:
    """Decode JSON to the type; refuse unknown and duplicate keys."""
    try:
        value = serde.decode(data, wanted)
        _refuse_unknown(_plain(data if isinstance(data, str) else data.decode()), value, "$")
    except SerializationError as error:
        text = str(error)
        raise SerializationError(text[:1].lower() + text[1:]) from None
    except _BrokenError:
        raise
    except Exception as error:  # a user's `__post_init__`, or too deep a value
        name = type_label(wanted)
        raise SerializationError(f"expected a valid `{name}`, got {error_line(error)}") from error
    return value


def error_line(error: Exception) -> str:
    """Return the type and message of an error; only its type if `str` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _refuse_unknown(raw: Any, value: Any, path: str) -> None:
    """Raise for a key in the data that did not become part of the value."""
    if isinstance(raw, list) and isinstance(value, (list, tuple)):
        for index, (each, made) in enumerate(zip(raw, value, strict=False)):
            _refuse_unknown(each, made, f"{path}[{index}]")
        return
    if not isinstance(raw, dict):
        return
    if is_dataclass(value):
        made = {field.name: getattr(value, field.name, None) for field in fields(value)}
    elif isinstance(value, Mapping):
        # Keys of other types were converted from the raw ones, in the same order.
        as_text = all(isinstance(key, str) for key in value)
        made = dict(zip(value if as_text else raw, value.values(), strict=False))
    else:
        return  # a type with its own rules, such as a pydantic model
    for key, each in raw.items():
        if key not in made:
            known = ", ".join(f"`{name}`" for name in made) or "none"
            raise SerializationError(
                f"expected no other keys than {known}, got `{key}` - at `{path}`"
            )
        _refuse_unknown(each, made[key], f"{path}.{key}")


class _BrokenError(Exception):
    """Truncated JSON, or an object with duplicate keys: the whole reply is refused."""


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        key, times = Counter(key for key, _ in pairs).most_common(1)[0]
        raise _BrokenError(f"an object that has the key {short_repr(key)} {times} times")
    return made


_plain = json.JSONDecoder(object_pairs_hook=_each_key_once).decode


def _candidates(text: str) -> Iterator[str]:
    """Yield the JSON values in a reply."""
    try:
        serde.decode(text)
    except SerializationError:
        yield from _fenced(text) or _embedded(text)
    else:
        yield text


def _fenced(text: str) -> list[str]:
    """Return the blocks between lines "```json" and "```"."""
    blocks: list[str] = []
    block: list[str] | None = None
    for line in text.split("\n"):
        mark = line.strip()
        if block is None:
            block = [] if mark.lower() == "```json" else None
        elif mark == "```":
            blocks.append("\n".join(block))
            block = None
        else:
            block.append(line)
    return blocks


def _embedded(text: str) -> Iterator[str]:
    """Yield the objects and arrays within text."""
    start = 0
    while opening := _OPENING.search(text, start):
        begin = opening.start()
        if begin > _MAX_BEFORE:  # an error counts the lines up to its place
            text, begin = text[begin:], 0
        try:
            _, start = _scan(text, begin)
        except (ValueError, RecursionError) as error:
            if not isinstance(error, json.JSONDecodeError) or _SURELY_JSON.match(text, begin):
                raise _BrokenError(f"broken JSON ({error})") from None
            start = max(error.pos, begin + 1)  # a bracket in prose
        else:
            yield text[begin:start]
