"""Concurrency slots that a task can lend to others while it only sleeps.

The engine runs a limited number of samples concurrently. A call that sleeps on a `Retry-After` runs
nothing, so it lends its slot to another sample and reacquires one before it continues.

Rules of this file:
1. A task holds one slot or none, however many of its calls are sleeping at the same time.
2. Every slot that was lent is counted as returned once, however the wait ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import anyio
from anyio.lowlevel import RunVar

_current: ContextVar[Slot | None] = ContextVar("weakincentives.slot", default=None)
_loop: RunVar[object] = RunVar("weakincentives.slots")


class Slot:
    """A slot of one task. `on_lend` is called with +1 when it is lent, and with -1 afterwards."""

    __slots__ = ("_held", "_lent", "_lock", "_on_lend", "_open", "_semaphore", "_sleeping", "loop")

    def __init__(self, semaphore: anyio.Semaphore, on_lend: Callable[[int], object]) -> None:
        self.loop = loop_token()
        self._semaphore = semaphore
        self._on_lend = on_lend
        self._lock = anyio.Lock(fast_acquire=True)
        self._held = self._lent = False
        self._open = True
        self._sleeping = 0  # calls of the task that need no slot at the moment

    async def __aenter__(self) -> Slot:
        await self.acquire()
        _current.set(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._open = False
        self._end_loan()
        if self._held:
            self._held = False
            self._semaphore.release()

    async def acquire(self) -> None:
        """Wait for a slot, unless the task holds one."""
        if self._held:
            return
        async with self._lock:
            if not self._held:
                await self._semaphore.acquire()
                self._held = True
        if not self._open:  # the task ended while this call waited
            await self.__aexit__()

    def lend(self) -> None:
        """Release the slot, unless another call of the same task has released it already."""
        self._sleeping += 1
        if self._held:
            self._held = False
            self._lent = True
            self._semaphore.release()
            self._on_lend(+1)

    async def reacquire(self) -> None:
        """Wait for a slot again. If cancelled here, the task has none until it calls `acquire`."""
        self._sleeping -= 1
        if self._sleeping == 0:
            self._end_loan()
            await self.acquire()

    def _end_loan(self) -> None:
        if self._lent:
            self._lent = False
            self._on_lend(-1)


@asynccontextmanager
async def slot_released() -> AsyncIterator[None]:
    """Lend the current task's slot inside, for sleeping; outside of an engine, do nothing."""
    slot = _current.get()
    if slot is None or slot.loop is not loop_token():  # a thread's own event loop has no slots
        yield
        return
    slot.lend()
    try:
        yield
    finally:
        await slot.reacquire()


def loop_token() -> object:
    """Return an object that stands for the running event loop."""
    token = _loop.get(None)
    if token is None:
        _loop.set(token := object())
    return token
