"""Stable names of our own types, on disk and on the wire.

A queued message, a stored submission and a session's slice name the type of what they hold. These
names are part of the format: they stay when a class moves to another module. A user's own types are
named by their module, which is theirs to keep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

C = TypeVar("C", bound=type[Any])

_types: dict[str, type[Any]] = {}
_names: dict[type[Any], tuple[str, ...]] = {}


def wire_name(name: str, *earlier: str) -> Callable[[C], C]:
    """Give a class its name, and those under which earlier versions wrote it."""

    def register(cls: C) -> C:
        _names[cls] = names = (name, *earlier)
        for each in names:
            other = _types.setdefault(each, cls)
            # The same class again is fine: its module was imported again, as pytester does.
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(f"two types have the wire name {each!r}")
            _types[each] = cls
        return cls

    return register


def wire_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of a class, the one to write first: `module:QualName` if it has none."""
    return _names.get(cls) or (f"{cls.__module__}:{cls.__qualname__}",)


def named_type(name: str) -> type[Any] | None:
    """Return the class that has this wire name, if one of ours has it and was imported."""
    return _types.get(name)
