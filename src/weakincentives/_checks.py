"""What values check of their own fields: made plain where it is clear what is meant, or refused."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .errors import UsageError, shown

__all__ = ["plain_mapping", "plain_numbers", "plain_texts", "tuple_of", "whole_or_none"]

T = TypeVar("T")
_set = object.__setattr__


def plain_texts(owner: object, *names: str, or_none: tuple[str, ...] = ()) -> None:
    """Each of these fields as a plain `str`, or None where that is allowed; refuse the rest."""
    for name in (*names, *or_none):
        value = getattr(owner, name)
        if value.__class__ is str or (value is None and name in or_none):
            continue
        if isinstance(value, str):
            _set(owner, name, str.__str__(value))  # of a subclass too, which JSON does not know
        else:
            raise UsageError(
                f"expected `str` for `{type(owner).__qualname__}.{name}`, got {shown(value)}"
            )


def tuple_of(cls: type[T], items: Iterable[T] | None, where: str, advice: str) -> tuple[T, ...]:
    """The items, None being no items; where one is no `cls`, an error says what to pass."""
    if items is None:
        return ()
    kind = cls.__qualname__
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise UsageError(
            f"expected several of `{kind}`, got {shown(items)} - for `{where}`; {advice}"
        )
    many = tuple(items)
    for index, item in enumerate(many):
        if not isinstance(item, cls):
            raise UsageError(
                f"expected `{kind}`, got {shown(item)} - at `{where}[{index}]`; {advice}"
            )
    return many


def whole_or_none(owner: object, name: str, *, least: int) -> None:
    """A field as a plain whole number of at least `least`, or None; refuse the rest."""
    value = getattr(owner, name)
    if value is None or (value.__class__ is int and value >= least):
        return
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise UsageError(
            f"expected a whole number >= {least} for `{type(owner).__qualname__}.{name}`, "
            f"got {shown(value)}"
        )
    _set(owner, name, number)


def plain_numbers(
    owner: object, name: str, kind: type[float], what: str, *, least: float, most: float
) -> None:
    """A field as a tuple of plain finite numbers; an array or a tensor will do. Refuse the rest.

    There may be many thousands: they are looked at together, and one by one only if one is wrong.
    """
    given = getattr(owner, name)
    given = given.tolist() if hasattr(given, "tolist") else given
    where = f"{type(owner).__qualname__}.{name}"
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise UsageError(f"expected several numbers for `{where}`, got {shown(given)}")
    many = given = tuple(given)
    if not set(map(type, given)) <= {kind}:
        flags = (least, most) == (0, 1)
        many = tuple(_number(kind, each, flags) for each in given)
    if not _within(many, least, most):
        index = next(i for i, each in enumerate(many) if not _within((each,), least, most))
        raise UsageError(f"expected {what}, got {shown(given[index])} - at `{where}[{index}]`")
    _set(owner, name, many)


def _number(kind: type[float], value: Any, flags: bool) -> float:
    """The value as this kind of number; NaN where it is none."""
    if isinstance(value, str | bytes) or (isinstance(value, bool) and not flags):
        return math.nan
    try:
        return operator.index(value) if kind is int else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _within(many: tuple[float, ...], least: float, most: float) -> bool:
    return not many or (least <= min(many) and max(many) <= most and all(map(math.isfinite, many)))


def plain_mapping(given: Any, where: str, advice: str = "") -> dict[str, Any]:
    """A dict of our own with plain `str` keys; later changes of the given one do not reach it."""
    hint = f" - {advice}" if advice else ""
    if not isinstance(given, Mapping):
        raise UsageError(
            f"expected a mapping for `{where}`, got `{type(given).__qualname__}`{hint}"
        )
    for key in given:
        if not isinstance(key, str):
            raise UsageError(f"expected `str` keys in `{where}`, got {shown(key)}")
    return {str.__str__(key): value for key, value in given.items()}
