"""Reducers: functions from a slice's items and an event to the slice's new items.

A reducer only returns; it never changes the session. For slices that hold the events themselves,
use one of the three below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

Reducer = Callable[[tuple[T, ...], Any], Iterable[T]]


def append_all(state: tuple[T, ...], event: T) -> tuple[T, ...]:
    """Keep every event; the default without a registered reducer."""
    return (*state, event)


def replace_latest(_state: tuple[T, ...], event: T) -> tuple[T, ...]:
    """Keep only the newest event."""
    return (event,)


def upsert_by(key: Callable[[T], Any]) -> Callable[[tuple[T, ...], T], tuple[T, ...]]:
    """Return a reducer that keeps the newest event per key, in the place of the earlier one.

    >>> upsert_by(str.lower)(("a", "b"), "A")
    ('A', 'b')
    """

    def upsert(state: tuple[T, ...], event: T) -> tuple[T, ...]:
        same = key(event)
        by_key: list[T] = []
        placed = False
        for item in state:
            if key(item) != same:
                by_key.append(item)
            elif not placed:
                by_key.append(event)
                placed = True
        return tuple(by_key) if placed else (*by_key, event)

    return upsert
