"""What stands in an address, and answers that are kept until what they were made from changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ..errors import UsageError

__all__ = ["Kept", "Query", "number", "one", "run_of", "whole"]

Query = Mapping[str, Sequence[str]]
ValueT = TypeVar("ValueT")

_MAX_KEPT = 500


def one(query: Query, name: str) -> str:
    """Return the first value of this name, or an empty text."""
    return (query.get(name) or [""])[0]


def run_of(query: Query) -> str:
    """Return the run that is asked for."""
    if run := one(query, "run"):
        return run
    raise UsageError("expected a `run`, got none")


def whole(query: Query, name: str, default: int) -> int:
    """Return a whole number."""
    text = one(query, name)
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(f"expected a whole number for `{name}`, got {text!r}")
    return int(text) if text else default


def number(query: Query, name: str) -> float | None:
    """Return a number, or None if there is none of this name."""
    text = one(query, name)
    try:
        return float(text) if text else None
    except ValueError:
        raise UsageError(f"expected a number for `{name}`, got {text!r}") from None


class Kept(Generic[ValueT]):
    """Values of runs, which are computed again only if the state of the run has changed.

    Threads may share it. `limit` values are kept.
    """

    def __init__(self, limit: int = _MAX_KEPT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Any, ValueT]] = {}

    def get(self, run_id: str, state: Any, compute: Callable[[], ValueT]) -> ValueT:
        """Return the value of a run in this state."""
        with self._lock:
            known = self._known.get(run_id)
        if known is None or known[0] != state:
            known = state, compute()
            with self._lock:
                self._known.pop(run_id, None)
                while len(self._known) >= self._limit:
                    del self._known[next(iter(self._known))]
                self._known[run_id] = known
        return known[1]
