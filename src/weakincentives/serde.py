"""Encode values to JSON and decode them again, on msgspec.

Rules of this file:
1. Every value that JSON can represent comes back equal, lone surrogates included.
   (A high surrogate before a low one is not lone: in JSON the two are one character.)
2. The caller names the type to decode to; nothing here looks up a class by a name in the data.
   Mailbox envelopes and session snapshots do name types: `runtime/mailbox/core/type_names.py`
   resolves these names, and only to types that the receiver was given or has already imported.
3. Nothing is coerced: `"3"` is not 3 and `4` is not `"4"`, since equality decides scores.

JSON has no NaN and no infinity: they are refused, and never become `null` on the way.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import PurePath
from typing import Any, TypeVar, overload

import msgspec

from .errors import SerializationError
from .internal.wire_names import wire_names

__all__ = ["convert", "decode", "decoder", "encode", "plain", "refuse_non_finite", "type_name"]

T = TypeVar("T")

# msgspec caches what it knows about a class on the class itself, before that is complete. A second
# thread that uses the cache then crashes the process, so one thread at a time inspects types.
_inspecting_types = threading.RLock()
if hasattr(os, "register_at_fork"):  # otherwise a child process could start with the lock held
    os.register_at_fork(
        before=_inspecting_types.acquire,
        after_in_parent=_inspecting_types.release,
        after_in_child=_inspecting_types.release,
    )


def _to_json(value: Any) -> Any:
    """Convert a value that msgspec cannot encode to one that it can."""
    if isinstance(value, _SCALARS) and value.__class__ is not bool:  # a bool as a key is refused
        return _base_of(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, type):
        return type_name(value)
    # Pydantic models, then NumPy scalars and arrays: recognised by method, without an import.
    for method in ("model_dump", "tolist"):
        if hasattr(type(value), method):  # a mock has every method, each of which returns a mock
            return getattr(value, method)()
    raise SerializationError(
        f"expected a value that JSON can carry, got `{type(value).__qualname__}` - "
        "make it a dataclass, or return plain data"
    )


_SCALARS = (str, int, float, bytes)  # msgspec knows these, but not their subclasses


def _base_of(value: str | float | bytes) -> str | float | bytes:
    """Return the plain value of a subclass (`Markup`, `float64`) without calling its methods."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return bytes.__getitem__(value, slice(None))


def _from_json(wanted: type[Any], value: Any) -> Any:
    """Build a value of a type that msgspec does not know."""
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    if issubclass(wanted, PurePath) and isinstance(value, str):
        return wanted(value)
    if isinstance(value, wanted):
        return value
    raise SerializationError(
        f"expected a type that JSON can fill, got `{wanted.__qualname__}` - make it a dataclass"
    )


_encoder = msgspec.json.Encoder(enc_hook=_to_json)
_sorting_encoder = msgspec.json.Encoder(enc_hook=_to_json, order="sorted")
_msgpack_encoder = msgspec.msgpack.Encoder(enc_hook=_to_json)


def encode(value: Any, *, sort: bool = False) -> bytes:
    """Return JSON bytes; with `sort`, equal values give equal bytes in every process."""
    return encode_with_nulls(value, 0, sort=sort)


def encode_with_nulls(value: Any, nulls: int, *, sort: bool = False) -> bytes:
    """Encode a value in which at least `nulls` fields are known to be None.

    msgspec writes NaN as `null`. Only if there are more nulls than that does the value have to be
    searched for NaN, which saves the search for nearly all stored results.
    """
    try:
        data = (_sorting_encoder if sort else _encoder).encode(value)
    except UnicodeEncodeError:
        # A lone surrogate, which models do emit: UTF-8 cannot encode it, an escape can.
        simple = msgspec.to_builtins(
            value, enc_hook=_to_json, str_keys=True, order="sorted" if sort else None
        )
        refuse_non_finite(simple)
        return json.dumps(simple, sort_keys=sort, separators=(",", ":")).encode("ascii")
    except SerializationError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(
            f"expected a value that JSON can carry, got `{type(value).__qualname__}`: {error}"
        ) from None
    if data.count(b"null") > nulls and _may_be_non_finite(value):
        refuse_non_finite(msgspec.to_builtins(value, enc_hook=_to_json, str_keys=True))
    return data


# The first bytes of a NaN or infinity in MessagePack. No UTF-8 text contains them.
_non_finite = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search


def _may_be_non_finite(value: Any) -> bool:
    """Return False if the value certainly holds no NaN; cheaper than looking at each number."""
    try:
        data = _msgpack_encoder.encode(value)
    except (OverflowError, ValueError):  # an integer too long for MessagePack
        return True
    return _non_finite(data) is not None


def refuse_non_finite(value: Any, path: str = "$") -> None:
    """Raise SerializationError for a NaN or an infinity in plain data, and say where it is."""
    if isinstance(value, float) and not math.isfinite(value):
        raise SerializationError(f"expected a finite number, got {value} - at `{path}`")
    if isinstance(value, dict):
        for key, item in value.items():
            refuse_non_finite(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            refuse_non_finite(item, f"{path}[{index}]")


def decoder(wanted: Any = Any) -> Callable[[bytes], Any]:
    """Return a function from JSON bytes to `wanted`, which raises msgspec's errors; cached."""
    return _decoder(wanted)


@lru_cache(maxsize=256)
def _decoder(wanted: Any) -> Callable[[bytes], Any]:
    try:
        with _inspecting_types:
            decode_fast = msgspec.json.Decoder(wanted, dec_hook=_from_json).decode
    except (TypeError, NameError) as error:  # NameError: an annotation that does not resolve
        raise SerializationError(
            f"expected a type that JSON can fill, got `{wanted!r}`: {error}"
        ) from None

    def decode_any(data: bytes) -> Any:
        try:
            return decode_fast(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if b"\\ud" not in data and b"\\uD" not in data:
                raise
            # Perhaps a lone surrogate, which the standard library accepts. If that fails too,
            # msgspec gives the better error once the surrogates are masked.
            try:
                simple = json.loads(data, parse_float=_finite, parse_constant=_finite)
                return msgspec.convert(simple, wanted, dec_hook=_from_json, str_keys=True)
            except (ValueError, RecursionError) as error:
                decode_fast(data.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0"))
                raise msgspec.DecodeError(str(error)) from None

    return decode_any


def _finite(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"Number out of range: {text}")


@overload
def decode(data: bytes | str, wanted: type[T]) -> T: ...
@overload
def decode(data: bytes | str, wanted: Any = Any) -> Any: ...
def decode(data: bytes | str, wanted: Any = Any) -> Any:
    """Return the value of JSON bytes as `wanted`; without a type, plain data."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    try:
        return decoder(wanted)(data)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise SerializationError(str(error)) from None


@overload
def convert(value: Any, wanted: type[T]) -> T: ...
@overload
def convert(value: Any, wanted: Any) -> Any: ...
def convert(value: Any, wanted: Any) -> Any:
    """Convert plain data to `wanted`: `convert({"question": "?"}, QAInput)`."""
    with suppress(TypeError, NameError):  # `msgspec.convert` reports it
        _inspect_type(wanted)
    try:
        return msgspec.convert(value, wanted, dec_hook=_from_json)
    except (TypeError, ValueError) as error:  # msgspec's own errors are ValueErrors
        raise SerializationError(str(error)) from None


@lru_cache(maxsize=256)
def _inspect_type(wanted: Any) -> None:
    """Let msgspec inspect and cache a type; MessagePack accepts more types than JSON."""
    with _inspecting_types:
        msgspec.msgpack.Decoder(wanted, dec_hook=_from_json)


def plain(value: Any) -> Any:
    """Return the value as JSON data (dict, list, str, int, float, bool, None)."""
    if value is None or value.__class__ in (str, bool):
        return value
    return decode(encode(value))


def type_name(cls: type[Any]) -> str:
    """Return the name of a type in stored and sent data: its wire name, or `module:QualName`."""
    return wire_names(cls)[0]
