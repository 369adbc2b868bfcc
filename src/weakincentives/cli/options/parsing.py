"""Values of options: numbers, shares, `key=value` pairs; and options as words again."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from ...errors import UsageError, short_repr


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def whole_number(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers that are not below the minimum, nor above the maximum."""
    limits = f">= {minimum}" if maximum is None else f"from {minimum} to {maximum:,}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum or (maximum is not None and value > maximum):
            raise ArgumentTypeError(f"expected a whole number {limits}, got {text!r}")
        return value

    return parse


def non_negative(text: str) -> float:
    """Parse a finite number that is not negative."""
    value = _float(text)
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"expected a number >= 0, got {text!r}")
    return value


def share(text: str) -> float:
    """Parse `0.85` or `85%`."""
    value = _float(text[:-1]) / 100 if text.endswith("%") else _float(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"expected 0 to 1, or 0% to 100%, got {text!r}")
    return value


def minimum(text: str) -> str:
    """Check `0.85`, `85%` or `CRITERION=0.85`, and return it as it is."""
    share(text.rpartition("=")[2])
    return text


def minimums(words: Iterable[str]) -> dict[str, float]:
    """Return the minimum pass rates of `0.8` and `contains=0.9`: of "passed" and "contains"."""
    rates: dict[str, float] = {}
    for word in words:
        name, _, rate = word.rpartition("=")
        if (name or "passed") in rates:
            raise UsageError(f"expected one --fail-under for each criterion, got {word!r} as well")
        rates[name or "passed"] = share(rate)
    return rates


def confidence(text: str) -> float:
    """Parse a confidence level: `0.95` or `95%`."""
    value = share(text)
    if not 0.5 <= value < 1:
        raise ArgumentTypeError(f"expected 0.5 to 0.999, or 50% to 99.9%, got {text!r}")
    return value


def pairs(words: Iterable[str], option: str) -> dict[str, str]:
    """Return `key=value` words as a mapping."""
    return dict(pair(word, option) for word in words)


def pair(word: str, option: str) -> tuple[str, str]:
    """Return the key and the value of `key=value`."""
    key, separator, value = word.partition("=")
    if not key or not separator:
        raise UsageError(f"expected key=value for {option}, got {short_repr(word)}")
    return key, value


def login_name() -> str:
    """Return the name of the user who is logged in, as a default; "" if there is none."""
    from getpass import getuser  # needed by few of the commands that import this file

    with suppress(Exception):  # no such user, as in some containers
        return getuser()
    return ""


def to_argv(args: Namespace, names: Iterable[str]) -> Iterator[str]:
    """Yield the options of these names as words of a command line."""
    for name in names:
        value = getattr(args, name)
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            yield flag
        elif value is not None and value is not False:
            for text in map(str, value if isinstance(value, list) else [value]):
                yield from [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def allow_intermixed_args(parser: ArgumentParser) -> None:
    """Let positional arguments stand between options: `A --by level B`."""
    original = parser.parse_known_args

    def intermixed(args: Any = None, namespace: Any = None) -> Any:
        vars(parser)["parse_known_args"] = original  # the next line calls it
        try:
            return parser.parse_known_intermixed_args(args, namespace)
        finally:
            vars(parser)["parse_known_args"] = intermixed

    vars(parser)["parse_known_args"] = intermixed
