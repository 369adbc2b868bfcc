"""What `@dataclass(frozen=True, slots=True)` gets wrong on a generic class before Python 3.13.

`Sample[str, str](...)` ends in a TypeError there, because `typing` sets an attribute on the new
object, and the refusal of the class looks at the class as it was before it got its slots.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any, TypeVar

__all__ = ["truly_frozen"]

C = TypeVar("C", bound=type[Any])


def truly_frozen(cls: C) -> C:
    """Refuse every change by a plain `FrozenInstanceError`, which `typing` expects and ignores."""

    def __setattr__(self: object, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: object, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    type.__setattr__(cls, "__setattr__", __setattr__)
    type.__setattr__(cls, "__delattr__", __delattr__)
    return cls
