"""Read the query of an address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import UsageError

Query = Mapping[str, Sequence[str]]


def one(query: Query, name: str) -> str:
    """Return the first value of this name, or an empty text."""
    return (query.get(name) or [""])[0]


def run_of(query: Query) -> str:
    """Return the id of the requested run."""
    if run := one(query, "run"):
        return run
    raise UsageError("expected a `run`, got none")


def read_whole(query: Query, name: str, default: int) -> int:
    """Return a whole number."""
    text = one(query, name)
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(f"expected a whole number for `{name}`, got {text!r}")
    return int(text) if text else default


def read_number(query: Query, name: str) -> float | None:
    """Return a number, or None if there is none of this name."""
    text = one(query, name)
    try:
        return float(text) if text else None
    except ValueError:
        raise UsageError(f"expected a number for `{name}`, got {text!r}") from None
