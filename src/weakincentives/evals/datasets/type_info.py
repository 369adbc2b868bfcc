"""Inspect types: whether JSON can fill them, and which types they have at a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, get_args

from msgspec import inspect

from ...errors import UsageError, short_repr

_MAX_LISTED_CHOICES = 10


def refuse_unfillable(sample_type: Any) -> None:
    """Raise for an input or expected type that no JSON can fill, before any is read."""
    for wanted in get_args(sample_type):
        try:
            info = inspect.type_info(wanted)
        except Exception as error:  # an annotation is code, and may raise anything
            raise _unfillable(wanted, f": {error}") from None
        for cls in _custom_types(info):
            if not _is_fillable(cls):
                raise _unfillable(cls, " - make it a dataclass")


def _unfillable(wanted: Any, reason: str) -> UsageError:
    name = wanted.__qualname__ if isinstance(wanted, type) else repr(wanted)
    return UsageError(f"expected a type that JSON can fill, got `{name}`{reason}")


def _custom_types(info: inspect.Type) -> Iterator[type]:
    """Yield the classes that msgspec leaves to us. A field with a default is not required."""
    seen: set[int] = set()
    todo = _alternatives(info)
    while todo:
        if id(part := todo.pop()) in seen:
            continue  # a type that contains itself
        seen.add(id(part))
        if isinstance(part, inspect.CustomType):
            yield part.cls
        todo += _inside(part, [field for field in _fields(part) if field.required])


def _is_fillable(cls: type) -> bool:
    """Return whether `serde` can make one: a pydantic model, a path, or `object`."""
    return hasattr(cls, "model_validate") or issubclass(cls, PurePath) or cls is object


def choices(sample_type: Any, path: Iterable[str]) -> str:
    """Return the values that enums and literals allow at a path, for a message."""
    values = allowed_values(types_at(inspect.type_info(sample_type), path))
    if 0 < len(values) <= _MAX_LISTED_CHOICES:
        return f"one of {', '.join(map(short_repr, values))}"
    return "one of the allowed values"


def allowed_values(types: Iterable[inspect.Type]) -> list[Any]:
    """Return the values of the enums and literals among the types."""
    values: list[Any] = []
    for info in types:
        if isinstance(info, inspect.LiteralType):
            values += info.values
        elif isinstance(info, inspect.EnumType):
            values += [member.value for member in info.cls]
    return values


def types_at(sample: inspect.Type, path: Iterable[str]) -> list[inspect.Type]:
    """Return the types of a sample at `("input", "question")`; none if it may be any."""
    types = _alternatives(sample)
    for depth, key in enumerate(path):
        name = "expected" if depth == 0 and key == "ground_truth" else key
        types = [
            one
            for part in types
            for one in _inside(part, [f for f in _fields(part) if f.encode_name == name])
        ]
    return types


def _fields(info: inspect.Type) -> tuple[inspect.Field, ...]:
    return getattr(info, "fields", ())


def _inside(info: inspect.Type, fields: Iterable[inspect.Field]) -> list[inspect.Type]:
    """Return the types one level down: of these fields, or of the items of a container."""
    inner = [field.type for field in fields]
    inner += getattr(info, "item_types", ())
    inner += [getattr(info, name) for name in ("item_type", "value_type") if hasattr(info, name)]
    return [one for part in inner for one in _alternatives(part)]


def _alternatives(info: inspect.Type) -> list[inspect.Type]:
    """Return the type itself, or those of a union, without annotations."""
    if isinstance(info, inspect.Metadata):
        return _alternatives(info.type)
    if isinstance(info, inspect.UnionType):
        return [one for part in info.types for one in _alternatives(part)]
    return [info]
