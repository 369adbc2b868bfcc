"""A place among those who run at once: whoever only waits gives it back meanwhile.

The engine lets so many samples run at once. A call that waits out a `Retry-After` runs nothing, so
it lends its place to another sample, and takes one again before it goes on.

Rules of this file:
1. A slot has one place or none, however many calls of its task are away at the same time.
2. Every place that was lent is counted back once, however the wait ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import anyio
from anyio.lowlevel import RunVar

__all__ = ["Slot", "away"]

_current: ContextVar[Slot | None] = ContextVar("weakincentives.slot", default=None)
_loop: RunVar[object] = RunVar("weakincentives.slots")


class Slot:
    """One place, for one task at a time. `on_leave` is told when it is lent, and counted back."""

    __slots__ = ("_away", "_door", "_held", "_lent", "_on_leave", "_open", "_places", "loop")

    def __init__(self, places: anyio.Semaphore, on_leave: Callable[[int], object]) -> None:
        self.loop = _here()
        self._places = places
        self._on_leave = on_leave
        self._door = anyio.Lock(fast_acquire=True)
        self._held = self._lent = False
        self._open = True
        self._away = 0

    async def __aenter__(self) -> Slot:
        await self.hold()
        _current.set(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._open = False
        self._count_back()
        if self._held:
            self._held = False
            self._places.release()

    async def hold(self) -> None:
        """Have a place: wait for one, unless it is there."""
        if self._held:
            return
        async with self._door:
            if not self._held:
                await self._places.acquire()
                self._held = True
        if not self._open:  # its task ended meanwhile
            await self.__aexit__()

    def leave(self) -> None:
        """Give the place back, unless another call of the same task did so before."""
        self._away += 1
        if self._held:
            self._held = False
            self._lent = True
            self._places.release()
            self._on_leave(+1)

    async def come_back(self) -> None:
        """Wait for a place again. Who is cancelled then has none, until it asks to `hold` one."""
        self._away -= 1
        if self._away == 0:
            self._count_back()
            await self.hold()

    def _count_back(self) -> None:
        if self._lent:
            self._lent = False
            self._on_leave(-1)


@asynccontextmanager
async def away() -> AsyncIterator[None]:
    """Without a place inside, for waiting; outside of an engine it changes nothing."""
    slot = _current.get()
    if slot is None or slot.loop is not _here():  # a thread's own loop has no part in the engine's
        yield
        return
    slot.leave()
    try:
        yield
    finally:
        await slot.come_back()


def _here() -> object:
    """What stands for the event loop that runs here."""
    here = _loop.get(None)
    if here is None:
        _loop.set(here := object())
    return here
