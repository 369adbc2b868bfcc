"""Work around a bug of `@dataclass(frozen=True, slots=True)` on generics before Python 3.13.

`Sample[str, str](...)` raises a TypeError there: `typing` sets an attribute on the new object, and
the generated `__setattr__` refers to the class as it was before it got its slots.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any, TypeVar

C = TypeVar("C", bound=type[Any])


def frozen_generic(cls: C) -> C:
    """Raise `FrozenInstanceError` for every assignment, which `typing` expects and ignores."""

    def __setattr__(self: object, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: object, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    type.__setattr__(cls, "__setattr__", __setattr__)
    type.__setattr__(cls, "__delattr__", __delattr__)
    return cls
