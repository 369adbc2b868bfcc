"""A place among those who run at once: whoever only waits gives it back meanwhile.

The engine lets so many samples run at once. A call that waits out a `Retry-After` runs nothing, so
it lends its place to another sample, and takes one again before it goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import anyio

__all__ = ["Slot", "away"]

_current: ContextVar[Slot | None] = ContextVar("weakincentives.slot", default=None)


class Slot:
    """One place, for one task at a time. `on_leave` is told when the place becomes free."""

    __slots__ = ("_away", "_held", "_on_leave", "_places")

    def __init__(self, places: anyio.Semaphore, on_leave: Callable[[int], object]) -> None:
        self._places = places
        self._on_leave = on_leave
        self._held = False
        self._away = 0

    async def __aenter__(self) -> Slot:
        await self._places.acquire()
        self._held = True
        _current.set(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._held:
            self._held = False
            self._places.release()

    def leave(self) -> None:
        """Give the place back, unless another call of the same task did so before."""
        self._away += 1
        if self._away == 1 and self._held:
            self._held = False
            self._places.release()
            self._on_leave(+1)

    async def come_back(self) -> None:
        """Wait for a place again. If that is cancelled, there is none to give back later."""
        self._away -= 1
        if self._away == 0 and not self._held:
            self._on_leave(-1)
            await self._places.acquire()
            self._held = True


@asynccontextmanager
async def away() -> AsyncIterator[None]:
    """Without a place inside, for waiting; outside of an engine it changes nothing."""
    slot = _current.get()
    if slot is None:
        yield
        return
    slot.leave()
    try:
        yield
    finally:
        await slot.come_back()
