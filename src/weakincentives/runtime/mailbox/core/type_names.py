"""The wire name of a body's type, and the type of that name if the receiver knows it.

    my.module:Question            a class, by its module and its name there
    list[my.module:Question]      all items are of one class; likewise in a tuple, set, dict
    wink:Request[my:Input,]       type arguments, inferred from values; empty if JSON is enough

Rules of this file:
1. A class is found only among imported modules, by plain lookups, and only if it holds data.
2. The classes of a script go by the name of its file, `qa.py` as `qa`, whether the script was
   started or imported.
3. If one name has to cover values of several classes, they are decoded as plain data.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import Path, PurePath
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from .... import serde
from ....errors import SerializationError, short_repr
from ....internal.wire_names import named_type, wire_names

_MAX_NAME_CHARS = 4000
_SCALARS = {str, int, float, bool, type(None)}  # JSON is enough for them
_BUILT_IN = {kind.__name__: kind for kind in (list, tuple, set, frozenset, dict, bytes, int, float)}
_STANDARD = (UUID, datetime, date, time, timedelta, Decimal, PurePath)
_MAIN = ("__main__", "__mp_main__")  # the second in a process that `multiprocessing` spawned


# ── from a value to a name ──────────────────────────────────────────────────────────────────────


def name_of(body: Any) -> str:
    """Return the wire name of a body's type; empty if JSON is enough."""
    name = _name(body)
    if name is None:
        raise SerializationError(
            f"expected a body that can be read back, got `{type(body).__qualname__}` - make it a "
            "dataclass"
        )
    return name


def field_names(body: Any) -> dict[str, str]:
    """Return the names of types that a body's own type leaves open, by field, if JSON needs them.

    For example, a result declares a `Sample[Any, Any]`; this says of which types.
    """
    kind: Any = type(body)
    names = {field: _name(getattr(body, field)) or "" for field in open_fields(kind)}
    return {field: name for field, name in names.items() if "[" in name}


@lru_cache(maxsize=256)
def open_fields(kind: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass whose type is a generic dataclass of `Any`."""
    return tuple(name for name, hint in _hints(kind).items() if _is_open(hint))


def _is_open(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(map(_is_open, get_args(hint)))
    return is_dataclass(get_origin(hint)) and set(get_args(hint)) == {Any}


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields; empty if only a type checker can see them."""
    if not is_dataclass(kind):
        return {}
    try:
        hints = get_type_hints(kind)
    except NameError:
        return {}
    return {field.name: hints[field.name] for field in fields(kind)}


def _name(value: Any) -> str | None:
    """Return the name of a value's type; empty for plain data, None if it cannot be encoded."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return ""
    if kind is list:
        return _with_arguments("list", [_common(value)], bare="")
    if kind is dict:
        return _with_arguments("dict", [_key(value), _common(value.values())], bare="")
    if kind in (tuple, set, frozenset):
        return _with_arguments(kind.__name__, [_common(value)])
    if kind is bytes:
        return "bytes"
    if holds_data(kind):
        return _with_arguments(class_name(kind), _arguments(kind, value))
    return "" if isinstance(value, (Mapping, str, int, float, list)) else None


def _with_arguments(name: str, arguments: list[str], bare: str | None = None) -> str:
    if any(arguments):
        return f"{name}[{','.join(arguments)}]"
    return name if bare is None else bare


def _common(values: Iterable[Any]) -> str:
    """Return the one name of all values; empty if there are several."""
    if set(map(type, values)) <= _SCALARS:
        return ""
    return _only({_name(value) or "" for value in values})


def _only(names: set[str]) -> str:
    return names.pop() if len(names) == 1 else ""


def _key(keys: Iterable[Any]) -> str:
    """Return the one type of all keys; empty if they are text, or of several types."""
    kind, *others = set(map(type, keys)) or {str}
    if others or not (kind in (int, float) or holds_data(kind)):
        return ""
    return kind.__name__ if kind in (int, float) else class_name(kind)


def _arguments(kind: Any, value: Any) -> list[str]:
    """Return the type arguments of a generic class, as far as the values show them."""
    if not (parameters := getattr(kind, "__parameters__", ())):
        return []
    known: dict[Any, set[str]] = {parameter: set() for parameter in parameters}
    _infer(kind, value, known)
    return [_only(names) for names in known.values()]


@lru_cache(maxsize=256)
def _generic_fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a dataclass whose types mention a type parameter."""
    return tuple((name, hint) for name, hint in _hints(kind).items() if _is_generic(hint))


def _is_generic(hint: Any) -> bool:
    return isinstance(hint, TypeVar) or any(map(_is_generic, get_args(hint)))


def _infer(kind: Any, value: Any, known: Mapping[Any, set[str]]) -> None:
    """Add to each type parameter the names of the values that have its type."""
    for name, hint in _generic_fields(kind):
        _infer_from(hint, getattr(value, name, None), known)


def _infer_from(hint: Any, value: Any, known: Mapping[Any, set[str]]) -> None:
    origin: Any = get_origin(hint)
    arguments = get_args(hint)
    if isinstance(hint, TypeVar):
        if hint in known:
            known[hint].add(_name(value) or "")
    elif origin in (Union, UnionType):
        for option in filter(_is_generic, arguments) if value is not None else ():
            _infer_from(option, value, known)
    elif not isinstance(origin, type) or not isinstance(value, origin):
        return
    elif is_dataclass(origin):
        pairs = zip(origin.__parameters__, arguments, strict=False)  # type: ignore[attr-defined]
        _infer(origin, value, {own: known[outer] for own, outer in pairs if outer in known})
    elif isinstance(value, Mapping):
        for item in value.values():
            _infer_from(arguments[-1], item, known)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            _infer_from(arguments[0], item, known)


# ── from a name to a type ───────────────────────────────────────────────────────────────────────


def type_for(name: str, body_type: Any) -> Any:
    """Return the type to decode: the receiver's `body_type`, completed by the sender's name."""
    if not name or body_type is Any:
        return Any if body_type is None else body_type
    if body_type is None:
        return _type(name, frozenset())
    sent = _type(name.partition("[")[0], _classes(body_type))
    union = get_origin(body_type) in (Union, UnionType)
    for option in get_args(body_type) if union else (body_type,):
        wanted = get_origin(option) or option
        if isinstance(wanted, type) and isinstance(sent, type) and issubclass(sent, wanted):
            # A receiver that has type arguments need not know the sender's.
            return option if get_args(option) else _type(name, _classes(body_type))
    wanted = class_name(body_type) if isinstance(body_type, type) else body_type
    raise SerializationError(f"expected a body of type `{wanted}`, got {short_repr(name)}")


@lru_cache(maxsize=256)
def _classes(kind: Any) -> frozenset[Any]:
    """Return the classes that a type mentions."""
    own = {each for each in (kind, get_origin(kind)) if isinstance(each, type)}
    return frozenset(own).union(*map(_classes, get_args(kind)))


def _type(name: str, known: frozenset[Any]) -> Any:
    """Parse a name; look its classes up among those that are known, then in imported modules."""
    if len(name) > _MAX_NAME_CHARS:
        raise SerializationError(f"expected the name of a type, got {len(name):,} characters")
    try:
        kind, separator = _parse(iter(_tokens(name)), known)
        if separator:
            raise ValueError(separator)
    except SerializationError:
        raise
    except (TypeError, ValueError, StopIteration) as error:
        raise SerializationError(f"expected the name of a type, got {short_repr(name)}") from error
    return kind


@lru_cache(maxsize=256)
def _tokens(name: str) -> tuple[str, ...]:
    """Return names and separators in turn: `('list', '[', 'a:B', ']', '')`."""
    return tuple(re.split(r"([\[\],])", name))


def _parse(tokens: Iterator[str], known: frozenset[Any]) -> tuple[Any, str]:
    """Return the next type, and the separator after it; empty at the end."""
    token = next(tokens)
    kind: Any = _class(token, known) if token else Any
    separator = next(tokens, "")
    if separator == "[":
        arguments: list[Any] = []
        separator = ","
        while separator == ",":
            argument, separator = _parse(tokens, known)
            arguments.append(argument)
        if separator != "]" or next(tokens):
            raise ValueError(separator)
        kind = kind[(*arguments, ...) if kind is tuple else tuple(arguments)]
        separator = next(tokens, "")
    return kind, separator


def _class(name: str, known: frozenset[Any]) -> Any:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    for kind in known:
        if name == class_name(kind) or name in wire_names(kind):
            return kind
    if (ours := named_type(name)) is not None:
        return ours
    module, _, path = name.partition(":")
    for home in ("__main__", module) if module == _script() else (module,):
        value: Any = sys.modules.get(home)
        for part in path.split(".") if value is not None else ():
            # By plain lookups in modules and classes only: no code of theirs runs.
            inside = type(value) is type(sys) or issubclass(type(value), type)
            value = vars(value).get(part) if inside else None
        if issubclass(type(value), type) and holds_data(value):
            return value
    raise SerializationError(
        f"expected a body of a type that is imported here, got {short_repr(name)} - import "
        "its module, or give the mailbox a `body_type`"
    )


# ── classes ─────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def class_name(kind: Any) -> str:
    """Return `module:QualName`, where a script is the module of its file's name."""
    if kind.__module__ in _MAIN:
        return f"{_script()}:{kind.__qualname__}"
    return serde.type_name(kind)


@lru_cache(maxsize=1)
def _script() -> str:
    """Return the name that the main module would have if it were imported."""
    main = sys.modules.get("__main__")
    if (spec := getattr(main, "__spec__", None)) is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


@lru_cache(maxsize=256)
def holds_data(kind: Any) -> bool:
    """Return whether a class can be built from JSON."""
    return (
        is_dataclass(kind)
        or issubclass(kind, (Enum, msgspec.Struct, *_STANDARD))
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or hasattr(kind, "model_validate")
    )
