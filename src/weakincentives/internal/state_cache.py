"""Values that are computed again only if what they were made from has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")


class StateCache:
    """Keeps up to `limit` values, each with the state that it was computed in.

    Threads may share it. Values are computed outside its lock, so two threads may compute the same.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[Any, Any]] = {}

    def get(self, key: Hashable, state: Any, compute: Callable[[], T]) -> T:
        """Return the value of a key in this state."""
        with self._lock:
            known = self._known.get(key)
        if known is None or known[0] != state:
            known = state, compute()
            with self._lock:
                self._known.pop(key, None)
                while len(self._known) >= self._limit:
                    del self._known[next(iter(self._known))]
                self._known[key] = known
        return cast("T", known[1])
