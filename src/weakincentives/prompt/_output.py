"""A model's reply as a typed value, and the JSON schema that tells the model its form.

Rules of this file:
1. Plain text and structured output are equal: for `str` and `Any` the reply is the output.
2. Nothing is guessed. A reply is JSON as a whole, or holds fenced `json` blocks, or JSON objects
   and arrays among words; of these exactly one may fit the type. JSON that breaks off is refused,
   rather than some piece of its inside taken for the answer.
3. Nothing is coerced, and a key that the type does not have is refused, at any depth. So is a key
   that an object has twice: a reader would take the last, silently, and drop the others.
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
from ..errors import OutputParseError, PromptError, SerializationError, shown
from ._typed import name_of

__all__ = ["fitted", "is_text", "json_schema", "output_schema", "parse_output", "said"]

T = TypeVar("T")

_SHOWN = 200  # characters of a reply in a message
_OPENING = re.compile(r"[{\[]")
_SURELY_JSON = re.compile(r'\{\s*"|\[\s*\{')
_scan = json.JSONDecoder().raw_decode


def is_text(wanted: Any) -> bool:
    """True for the types whose output is the reply itself."""
    return wanted is str or wanted is Any or wanted is None


def output_schema(wanted: Any) -> dict[str, Any] | None:
    """The JSON schema of structured output; None for plain text."""
    return None if is_text(wanted) else json_schema(wanted)


def json_schema(wanted: Any) -> dict[str, Any]:
    """The JSON schema of a type, an object at its top where the type is one."""
    try:
        schema = msgspec.json.schema(wanted, schema_hook=_hook)
        serde.decoder(wanted)
    except (NameError, TypeError, ValueError) as error:
        raise PromptError(
            f"expected a type that JSON can fill, got `{name_of(wanted)}`: {error} - "
            "make it a dataclass"
        ) from None
    schema = _closed(schema)
    if set(schema) == {"$ref", "$defs"}:
        # Providers want `"type": "object"` at the top. A recursive type still needs its name.
        own = schema["$ref"].removeprefix("#/$defs/")
        top, named = deepcopy(schema["$defs"][own]), schema["$defs"]
        if schema["$ref"] not in _references(named):
            del named[own]
        schema = {**top, "$defs": named} if named else top
    return schema


def _hook(wanted: type[Any]) -> dict[str, Any]:
    """What msgspec cannot describe by itself, and `serde` can build."""
    if hasattr(wanted, "model_json_schema"):
        described: dict[str, Any] = wanted.model_json_schema()
        return described
    if issubclass(wanted, PurePath):
        return {"type": "string"}
    raise TypeError(f"no JSON schema for `{wanted.__qualname__}`")


def _closed(schema: Any) -> Any:
    """The schema, also saying that objects have no other keys than those it lists."""
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
    """The output in a reply: the text itself, or the one JSON value in it that fits the type.

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
                fits.append(fitted(candidate, wanted))
            except SerializationError as error:
                reason = reason if index else str(error)
    except _BrokenError as error:
        fits, reason = [], str(error)
    if len(fits) == 1:
        return fits[0]
    if fits:
        reason = f"{len(fits)} that fit"
    raise OutputParseError(
        f"expected one JSON value for `{name_of(wanted)}` in the reply, got {reason} - "
        f"in {shown(text, _SHOWN)}"
    )


def fitted(data: bytes | str, wanted: Any) -> Any:
    """JSON as a value of the type; an error says what was expected, what came, and where."""
    try:
        value = serde.decode(data, wanted)
        _refuse_unknown(_plain(data if isinstance(data, str) else data.decode()), value, "$")
    except SerializationError as error:
        text = str(error)
        raise SerializationError(text[:1].lower() + text[1:]) from None
    except _BrokenError:
        raise
    except Exception as error:  # a user's `__post_init__`, or too deep a value
        name = name_of(wanted)
        raise SerializationError(f"expected a valid `{name}`, got {said(error)}") from error
    return value


def said(error: Exception) -> str:
    """An error in a line, also one that cannot say itself."""
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
        # Keys that are no text were made from the raw ones, in the same order.
        as_text = all(isinstance(key, str) for key in value)
        made = dict(zip(value if as_text else raw, value.values(), strict=False))
    else:
        return  # a type with rules of its own, such as a pydantic model
    for key, each in raw.items():
        if key not in made:
            known = ", ".join(f"`{name}`" for name in made) or "none"
            raise SerializationError(
                f"expected no other keys than {known}, got `{key}` - at `{path}`"
            )
        _refuse_unknown(each, made[key], f"{path}.{key}")


class _BrokenError(Exception):
    """JSON that does not end, or that says two things at once: the whole reply is refused."""


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        key, times = Counter(key for key, _ in pairs).most_common(1)[0]
        raise _BrokenError(f"an object that has the key {shown(key)} {times} times")
    return made


_plain = json.JSONDecoder(object_pairs_hook=_each_key_once).decode


def _candidates(text: str) -> Iterator[str]:
    """The JSON values that a reply offers."""
    try:
        serde.decode(text)
    except SerializationError:
        yield from _fenced(text) or _embedded(text)
    else:
        yield text


def _fenced(text: str) -> list[str]:
    """The blocks between "```json" and "```", each on a line of its own."""
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
    """The objects and arrays that stand among words."""
    start = 0
    while opening := _OPENING.search(text, start):
        begin = opening.start()
        try:
            _, start = _scan(text, begin)
        except (ValueError, RecursionError) as error:
            if not isinstance(error, json.JSONDecodeError) or _SURELY_JSON.match(text, begin):
                raise _BrokenError(f"broken JSON ({error})") from None
            start = max(error.pos, begin + 1)  # a bracket of prose
        else:
            yield text[begin:start]
