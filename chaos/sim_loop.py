"""An event loop on virtual time, and processes in it that crash and pause as real ones do.

Rules of this file:
1. Nothing waits: when all are idle, time moves to the next timer.
2. No threads: what would run in one runs here, at a random moment of virtual time.
3. A process that crashed does nothing more, not even clean up. One that is paused does nothing
   until it is resumed, and then goes on as if no time had passed.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

import anyio
from anyio import to_thread

__all__ = ["Crash", "Process", "SimClock", "Stuck", "VirtualLoop", "current_process", "no_threads"]

STILL = 300_000  # steps without any time passing, after which something must be wrong
EPOCH = 1_800_000_000.0  # seconds since 1970 when every simulation begins

_process: ContextVar[Process | None] = ContextVar("chaos.process", default=None)


class Crash(BaseException):
    """The process is gone. Raised where it dies; nothing of it runs afterwards."""


class Stuck(Exception):
    """Nothing will ever happen again, or something happens for ever at the same moment."""


class Process:
    """One process of the simulated system: a worker, a submitter, a collector."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.cut_until = 0.0  # a partition keeps it from every server
        self.on_death: Callable[[], object] = lambda: None
        self._held: list[asyncio.Handle] = []

    def start(self, loop: VirtualLoop, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run this as the process."""
        context = copy_context()
        context.run(_process.set, self)
        return loop.create_task(main, context=context)

    def check(self) -> None:
        """Raise where it is dead, so that a step that killed it ends there."""
        if self.dead:
            raise Crash(self.name)

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether a step of this process may run now."""
        if self.dead or self.paused:
            self._held.append(handle)  # also of the dead, whose tasks must end when all is over
            return False
        return True

    def resume(self, loop: VirtualLoop) -> None:
        """Go on after a pause."""
        self.paused = False
        loop.again(self._held)
        self._held = []


def current_process() -> Process | None:
    """The process whose code runs; None for the simulation itself."""
    return _process.get()


class _Task(asyncio.Task[Any]):
    """A task that sets keep in the same order in every run: hashed by number, not by address."""

    _numbers = count()

    def __init__(self, *args: Any, **more: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **more)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio without sockets, in no time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._still = 0
        self._open_gates = False
        _Task._numbers = count()
        self.set_task_factory(lambda loop, coro, **more: _Task(coro, loop=loop, **more))

    def time(self) -> float:
        return self.now

    def again(self, handles: list[asyncio.Handle]) -> None:
        """Run these with the next step."""
        self._ready.extend(handles)

    def _write_to_self(self) -> None:
        """There is nobody to wake."""

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise Stuck("nothing is left that could ever happen")
            if timers[0]._when > self.now:
                self.now, self._still = timers[0]._when, 0
        while timers and timers[0]._when <= self.now:
            ready.append(heapq.heappop(timers))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_process)
            if process is None or self._open_gates or process.admits(handle):
                handle._run()
                self._still += 1
        if self._still > STILL:
            raise Stuck(f"time stands still at {self.now:.3f}")

    def bury(self, processes: list[Process]) -> None:
        """End what is left, so that nothing of a simulation outlives it."""
        for process in processes:
            process.dead = True
            process.resume(self)
        self._open_gates, self._still = True, 0
        while left := asyncio.all_tasks(self):
            for task in left:
                # What never began must begin before it ends, or Python complains.
                if inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED:
                    task.add_done_callback(_look)
                    task.cancel()
            self.run_until_complete(asyncio.sleep(0))
        self.close()


class SimClock:
    """The loop's time, or that of a server whose clock jumps."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.offset = 0.0

    def monotonic(self) -> float:
        return self._loop.now + self.offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(EPOCH + self.monotonic(), UTC)


@contextmanager
def no_threads(
    loop: VirtualLoop, around: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
) -> Iterator[None]:
    """Inside, what would run in a thread runs on the loop, by `around`.

    A function that would wait in its thread returns an awaitable instead, which is awaited.
    """

    async def run_sync(
        func: Callable[..., Any],
        *args: Any,
        abandon_on_cancel: bool = False,
        cancellable: bool | None = None,
        limiter: Any = None,
    ) -> Any:
        call = partial(func, *args) if args else func
        if not abandon_on_cancel:
            with anyio.CancelScope(shield=True):
                return await around(call)
        running = loop.create_task(around(call))
        running.add_done_callback(_look)  # nobody may be left to hear its error
        return await asyncio.shield(running)

    real = to_thread.run_sync
    to_thread.run_sync = run_sync  # type: ignore[assignment]
    try:
        yield
    finally:
        to_thread.run_sync = real


def _look(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def finished(answer: Any) -> Any:
    """The answer, once it is there."""
    return await answer if inspect.isawaitable(answer) else answer
