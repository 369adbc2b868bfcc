"""Checks of arguments and fields: convert what is clearly meant, refuse the rest with an error."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import wraps
from inspect import signature
from types import MappingProxyType
from typing import Any, TypeVar, cast

from ..errors import UsageError, short_repr
from ..secrets import redact_message
from .names import did_you_mean

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_set = object.__setattr__


def plain_texts(owner: object, *names: str, or_none: tuple[str, ...] = ()) -> None:
    """Convert these fields to plain `str`, or leave None if it is allowed; refuse the rest."""
    for name in (*names, *or_none):
        value = getattr(owner, name)
        if value.__class__ is str or (value is None and name in or_none):
            continue
        _set(owner, name, plain_text(value, f"{type(owner).__qualname__}.{name}"))


def plain_text(value: Any, where: str) -> str:
    """Return the text that the value clearly stands for, as a plain `str`; refuse the rest.

    That is the text of a subclass of `str`, which JSON does not know; the message of an exception;
    the value of an `Enum` member, or its name if the value is not text.
    """
    text = value
    if isinstance(value, Enum):
        text = value.value if isinstance(value.value, str) else value.name
    elif isinstance(value, BaseException):
        try:
            text = str(value) or type(value).__name__
        except Exception:
            text = type(value).__name__
    if not isinstance(text, str):
        raise UsageError(f"expected `str` for `{where}`, got {short_repr(value)}")
    return str.__str__(text)


def instance_or_none(owner: object, name: str, cls: type, advice: str) -> None:
    """Refuse a field that is neither None nor a `cls`."""
    value = getattr(owner, name)
    if value is not None and not isinstance(value, cls):
        raise UsageError(
            f"expected `{cls.__qualname__}` or None for `{type(owner).__qualname__}.{name}`, "
            f"got {short_repr(value)} - {advice}"
        )


def finite(value: Any, where: str) -> float:
    """Return a number of any kind as a float; refuse NaN, infinity and everything else."""
    if value.__class__ is float and math.isfinite(value):
        return value
    given = value.value if isinstance(value, Enum) else value
    try:
        # Not of text or bytes, which `float` reads too: "4" is not 4.
        is_number = hasattr(type(given), "__float__") or hasattr(type(given), "__index__")
        number = float(given) if is_number else math.nan
    except Exception:  # a user's type may raise anything
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"expected a finite number for `{where}`, got {short_repr(value)}")
    return number


def tuple_of(cls: type[T], items: Iterable[T] | None, where: str, advice: str) -> tuple[T, ...]:
    """Return the items as a tuple, () for None; refuse an item that is not a `cls`."""
    if items is None:
        return ()
    kind = cls.__qualname__
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise UsageError(
            f"expected several of `{kind}`, got {short_repr(items)} - for `{where}`; {advice}"
        )
    many = tuple(items)
    for index, item in enumerate(many):
        if not isinstance(item, cls):
            raise UsageError(
                f"expected `{kind}`, got {short_repr(item)} - at `{where}[{index}]`; {advice}"
            )
    return many


def whole_or_none(owner: object, name: str, *, least: int) -> None:
    """Convert a field to a whole number of at least `least`, or leave None; refuse the rest."""
    value = getattr(owner, name)
    if value is None or (value.__class__ is int and value >= least):
        return
    _set(owner, name, whole(value, f"{type(owner).__qualname__}.{name}", least=least))


def whole(value: Any, where: str, *, least: int, maximum: float = math.inf) -> int:
    """Return a whole number of any kind as an `int`, `Decimal("12")` too; refuse the rest."""
    given = value.value if isinstance(value, Enum) else value
    number = None
    try:
        if isinstance(given, bool):
            pass
        elif hasattr(type(given), "__index__"):
            number = operator.index(given)
        elif hasattr(type(given), "__float__") and given == int(given):
            number = int(given)
    except Exception:  # a user's type may raise anything
        number = None
    if number is None or not least <= number <= maximum:
        limits = f">= {least}" if maximum == math.inf else f"from {least} to {maximum}"
        raise UsageError(f"expected a whole number {limits} for `{where}`, got {short_repr(value)}")
    return number


def plain_numbers(
    owner: object, name: str, kind: type[float], what: str, *, least: float, maximum: float
) -> None:
    """Convert a field (a sequence, array or tensor) to a tuple of finite numbers; refuse the rest.

    There may be many thousands, so they are checked together, and one by one only on failure.
    """
    given = getattr(owner, name)
    given = given.tolist() if hasattr(given, "tolist") else given
    where = f"{type(owner).__qualname__}.{name}"
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise UsageError(f"expected several numbers for `{where}`, got {short_repr(given)}")
    many = given = tuple(given)
    if not set(map(type, given)) <= {kind}:
        flags = (least, maximum) == (0, 1)
        many = tuple(_number(kind, each, flags) for each in given)
    if not _within(many, least, maximum):
        index = next(i for i, each in enumerate(many) if not _within((each,), least, maximum))
        raise UsageError(f"expected {what}, got {short_repr(given[index])} - at `{where}[{index}]`")
    _set(owner, name, many)


def _number(kind: type[float], value: Any, flags: bool) -> float:
    """Return the value as this kind of number; NaN if it is not one."""
    if isinstance(value, str | bytes) or (isinstance(value, bool) and not flags):
        return math.nan
    try:
        return operator.index(value) if kind is int else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _within(many: tuple[float, ...], least: float, maximum: float) -> bool:
    return not many or (
        least <= min(many) and max(many) <= maximum and all(map(math.isfinite, many))
    )


def plain_mapping(given: Any, where: str, advice: str = "") -> dict[str, Any]:
    """Return a copy as a dict with plain `str` keys; refuse other keys."""
    hint = f" - {advice}" if advice else ""
    if not isinstance(given, Mapping):
        raise UsageError(
            f"expected a mapping for `{where}`, got `{type(given).__qualname__}`{hint}"
        )
    for key in given:
        if not isinstance(key, str):
            raise UsageError(f"expected `str` keys in `{where}`, got {short_repr(key)}")
    return {str.__str__(key): value for key, value in given.items()}


def short_name(text: str, maximum: int, what: str) -> str:
    """Return a name that a person typed: in one line, without secrets, and not too long."""
    name = " ".join(redact_message(text).split())
    if not 0 < len(name) <= maximum:
        raise UsageError(
            f"expected the name of {what}, of 1 to {maximum} characters, got {short_repr(name)}"
        )
    return name


def check_options(
    function: str, given: Iterable[str], known: Collection[str], settings: Collection[str] = ()
) -> None:
    """Raise the TypeError of Python for an unknown option, with the one that was meant.

    `settings` are the fields of an `EvalConfig` that is one of the options.
    """
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            if name in settings:
                hint = f"pass config=EvalConfig({name}=...)"
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}"
                + (f" - {hint}" if hint else "")
            )


def checked_options(settings: Collection[str]) -> Callable[[F], F]:
    """Return a decorator that checks the keyword arguments of every call by `check_options`."""

    def decorate(function: F) -> F:
        known = signature(function).parameters
        name = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            check_options(name, options, known, settings)
            return function(*args, **options)

        return cast(F, call)

    return decorate


def check_tags(tags: Any) -> None:
    """Raise UsageError unless this is a mapping from text to text."""
    if not isinstance(tags, Mapping):
        raise UsageError(f"expected a mapping for `tags`, got {short_repr(tags)}")
    for key, value in tags.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"expected `tags` from `str` to `str`, got {key!r}: {value!r}")


def plain_metadata(owner: object) -> None:
    """Convert the field `metadata` to a mapping with plain `str` keys; None becomes empty.

    A dict that has only such keys is not copied, since there is one for each sample.
    """
    given = owner.metadata  # type: ignore[attr-defined]
    if given.__class__ in (dict, MappingProxyType) and all(key.__class__ is str for key in given):
        return
    where = f"{type(owner).__qualname__}.metadata"
    _set(owner, "metadata", plain_mapping({} if given is None else given, where))


def check_whole(value: Any, least: int, what: str) -> None:
    """Raise UsageError unless the value is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(
            f"expected a whole number >= {least} for `{what}`, got {short_repr(value)}"
        )


def check_number(
    value: Any, what: str, *, unit: str = "a number", above: float = 0.0, least: float | None = None
) -> None:
    """Raise UsageError unless the value is a finite number > `above`, or >= `least` if given."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = is_number and (value > above if least is None else value >= least) and value < math.inf
    if not fits:
        limit = f"> {above:g}" if least is None else f">= {least:g}"
        raise UsageError(f"expected {unit} {limit} for `{what}`, got {short_repr(value)}")
