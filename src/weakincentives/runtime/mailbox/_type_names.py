"""The name of a body's type, and the type of that name as far as the receiver knows it.

    my.module:Question            a class, by its module and its name there
    list[my.module:Question]      where all items are of one class; likewise in a tuple, set, dict
    wink:Request[my:Input,]       type arguments, learnt from values; none where JSON says enough

Rules of this file:
1. A class is found only among imported modules, by plain look-ups, and only if it holds data.
2. A script's own classes go by the name of its file, `qa.py` as `qa`, whether it was started or
   imported.
3. Values of several classes, where one name would have to do for all, are read as plain data.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
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

from ... import serde
from ...errors import SerializationError, shown

__all__ = ["name_of", "type_for"]

_LONGEST = 4000  # characters of a name; nobody's are longer, and all of it is read
_SCALARS = {str, int, float, bool, type(None)}  # JSON says enough of them
_BUILT_IN = {kind.__name__: kind for kind in (list, tuple, set, frozenset, dict, bytes, int, float)}
_STANDARD = (UUID, datetime, date, time, timedelta, Decimal, PurePath)
_MAIN = ("__main__", "__mp_main__")  # the second in a process that `multiprocessing` spawned


# ── from a value to a name ──────────────────────────────────────────────────────────────────────


def name_of(body: Any) -> str:
    """The name of a body's type; empty where JSON says enough of it."""
    kind: Any = type(body)
    if kind in _SCALARS:
        return ""
    if kind is list:
        return _with_arguments("list", [_common(body)], bare="")
    if kind is dict:
        return _with_arguments("dict", [_key(body), _common(body.values())], bare="")
    if kind in (tuple, set, frozenset):
        return _with_arguments(kind.__name__, [_common(body)])
    if kind is bytes:
        return "bytes"
    if holds_data(kind):
        return _with_arguments(class_name(kind), _arguments(kind, body))
    if isinstance(body, Mapping):
        return ""
    raise SerializationError(
        f"expected a body that can be read back, got `{kind.__qualname__}` - make it a dataclass"
    )


def _with_arguments(name: str, arguments: list[str], bare: str | None = None) -> str:
    if any(arguments):
        return f"{name}[{','.join(arguments)}]"
    return name if bare is None else bare


def _common(values: Iterable[Any]) -> str:
    """The one name of all these; empty where there are several."""
    kinds = set(map(type, values))
    if kinds <= _SCALARS:
        return ""
    names = {name_of(value) for value in values}
    return names.pop() if len(names) == 1 else ""


def _key(keys: Iterable[Any]) -> str:
    """The one type of all keys; empty where they are text, or of several types."""
    kind, *others = set(map(type, keys)) or {str}
    if others or not (kind in (int, float) or holds_data(kind)):
        return ""
    return kind.__name__ if kind in (int, float) else class_name(kind)


def _arguments(kind: Any, body: Any) -> list[str]:
    """What the values of a generic class tell of its parameters."""
    parameters = _parameters(kind)
    if not parameters:
        return []
    known: dict[Any, set[str]] = {each: set() for each in parameters}
    _learn(kind, body, known)
    return [names.pop() if len(names) == 1 else "" for names in known.values()]


@lru_cache(maxsize=256)
def _parameters(kind: Any) -> tuple[Any, ...]:
    return tuple(getattr(kind, "__parameters__", ()))


@lru_cache(maxsize=256)
def _generic_fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass in whose types its parameters appear."""
    if not is_dataclass(kind):
        return ()
    try:
        hints = get_type_hints(kind)
    except NameError:  # an annotation that only a type checker can see
        return ()
    return tuple((f.name, hints[f.name]) for f in fields(kind) if _mentions(hints[f.name]))


def _mentions(hint: Any) -> bool:
    return isinstance(hint, TypeVar) or any(map(_mentions, get_args(hint)))


def _learn(kind: Any, value: Any, known: Mapping[Any, set[str]]) -> None:
    for name, hint in _generic_fields(kind):
        _learn_from(hint, getattr(value, name, None), known)


def _learn_from(hint: Any, value: Any, known: Mapping[Any, set[str]]) -> None:
    origin: Any = get_origin(hint)
    arguments = get_args(hint)
    if isinstance(hint, TypeVar):
        if hint in known:
            known[hint].add(name_of(value))
    elif origin in (Union, UnionType):
        for option in filter(_mentions, arguments) if value is not None else ():
            _learn_from(option, value, known)
    elif not isinstance(origin, type) or not isinstance(value, origin):
        return
    elif is_dataclass(origin):
        inner = zip(_parameters(origin), arguments, strict=False)
        _learn(origin, value, {own: known[given] for own, given in inner if given in known})
    elif isinstance(value, Mapping):
        for item in value.values():
            _learn_from(arguments[-1], item, known)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            _learn_from(arguments[0], item, known)


# ── from a name to a type ───────────────────────────────────────────────────────────────────────


def type_for(name: str, body_type: Any) -> Any:
    """The type to read: what the receiver asked for, completed by what the sender knew."""
    if not name or body_type is Any:
        return Any if body_type is None else body_type
    if body_type is None:
        return _type(name, frozenset())
    found = _type(name.partition("[")[0], _classes(body_type))
    union = get_origin(body_type) in (Union, UnionType)
    for option in get_args(body_type) if union else (body_type,):
        asked = get_origin(option) or option
        if isinstance(asked, type) and isinstance(found, type) and issubclass(found, asked):
            # Who asks for arguments of its own need not know the sender's.
            return option if get_args(option) else _type(name, _classes(body_type))
    raise SerializationError(f"expected a body of type `{_words(body_type)}`, got {shown(name)}")


def _words(kind: Any) -> str:
    return class_name(kind) if isinstance(kind, type) else str(kind)


@lru_cache(maxsize=256)
def _classes(kind: Any) -> frozenset[Any]:
    """The classes that a type is written with."""
    here = {each for each in (kind, get_origin(kind)) if isinstance(each, type)}
    return frozenset(here).union(*map(_classes, get_args(kind)))


def _type(name: str, given: frozenset[Any]) -> Any:
    if len(name) > _LONGEST:
        raise SerializationError(f"expected the name of a type, got {len(name):,} characters")
    tokens = _tokens(name)
    kind, end = _parsed(tokens, 0, given)
    if end < len(tokens):
        raise _no_name(name)
    return kind


@lru_cache(maxsize=256)
def _tokens(name: str) -> tuple[str, ...]:
    """Names and what stands between them, in turn: `('list', '[', 'a:B', ']', '')`."""
    return tuple(re.split(r"([\[\],])", name))


def _parsed(tokens: tuple[str, ...], at: int, given: frozenset[Any]) -> tuple[Any, int]:
    """The type that begins at this token, and where it ends."""
    kind: Any = _class(tokens[at], given) if tokens[at] else Any
    at += 1
    if tokens[at : at + 1] != ("[",):
        return kind, at
    arguments = []
    while tokens[at] in ("[", ","):
        argument, at = _parsed(tokens, at + 1, given)
        arguments.append(argument)
        if at == len(tokens):
            raise _no_name("".join(tokens))
    if tokens[at + 1] or tokens[at] != "]":
        raise _no_name("".join(tokens))
    if kind is tuple:
        arguments.append(...)
    try:
        return kind[tuple(arguments)], at + 2
    except TypeError as error:
        raise _no_name("".join(tokens)) from error


def _no_name(name: str) -> SerializationError:
    return SerializationError(f"expected the name of a type, got {shown(name)}")


def _class(name: str, given: frozenset[Any]) -> Any:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    for known in given:
        if class_name(known) == name:
            return known
    module, _, path = name.partition(":")
    for home in ("__main__", module) if module == _script() else (module,):
        found: Any = sys.modules.get(home)
        for part in path.split(".") if found is not None else ():
            # By plain look-ups, and through classes only: nothing of what is there gets to act.
            inside = type(found) is type(sys) or issubclass(type(found), type)
            found = vars(found).get(part) if inside else None
        if issubclass(type(found), type) and holds_data(found):
            return found
    raise SerializationError(
        f"expected a body of a type that is imported here, got {shown(name)} - import its module, "
        "or give the mailbox a `body_type`"
    )


# ── classes ─────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def class_name(kind: Any) -> str:
    """`module:QualName`, where a script is the module of its file's name."""
    if kind.__module__ in _MAIN:
        return f"{_script()}:{kind.__qualname__}"
    return serde.type_name(kind)


@lru_cache(maxsize=1)
def _script() -> str:
    """What the module that was started would be called, were it imported."""
    main = sys.modules.get("__main__")
    if (spec := getattr(main, "__spec__", None)) is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


@lru_cache(maxsize=256)
def holds_data(kind: Any) -> bool:
    """Whether a class is one that JSON can fill."""
    return (
        is_dataclass(kind)
        or issubclass(kind, (Enum, msgspec.Struct, *_STANDARD))
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or hasattr(kind, "model_validate")
    )
