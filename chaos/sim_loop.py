"""An event loop on virtual time, with processes in it that crash and pause as real ones do.

Rules of this file:
1. Nothing sleeps: when no task is ready, time jumps to the next timer.
2. No threads: a blocking call runs on the loop, at a random moment of virtual time.
3. A crashed process runs nothing more, not even cleanup. A paused process runs nothing until it is
   resumed, and then continues as if no time had passed.
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

from weakincentives.internal import threads as _threads

__all__ = ["Crash", "Process", "SimClock", "Stuck", "VirtualLoop", "current_process", "no_threads"]

MAX_STEPS_WITHOUT_TIME = 300_000  # before the simulation counts as stuck
EPOCH = 1_800_000_000.0  # the Unix time at which every simulation starts

_process: ContextVar[Process | None] = ContextVar("chaos.process", default=None)


class Crash(BaseException):
    """Raised inside a process when it crashes; nothing of it runs afterwards."""


class Stuck(Exception):
    """The simulation cannot make progress: no timer is left, or time stands still."""


class Process:
    """One process of the simulated system: a worker, a submitter, a collector."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.cut_until = 0.0  # by a network partition
        self.machine = 0
        self.troubled = False  # by a fault that its user may be told of
        self.on_death: Callable[[], object] = lambda: None
        self._held: list[asyncio.Handle] = []

    def start(self, loop: VirtualLoop, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `main` as this process."""
        context = copy_context()
        context.run(_process.set, self)
        return loop.create_task(main, context=context)

    def check(self) -> None:
        """Raise `Crash` if the process is dead, so that the step that killed it ends there."""
        if self.dead:
            raise Crash(self.name)

    def admits(self, handle: asyncio.Handle) -> bool:
        """Return whether a step of this process may run now; hold it back otherwise."""
        if self.dead or self.paused:
            self._held.append(handle)  # also of a dead process: its tasks are ended by `shut_down`
            return False
        return True

    def resume(self, loop: VirtualLoop) -> None:
        """Continue after a pause."""
        self.paused = False
        loop.again(self._held)
        self._held = []


def current_process() -> Process | None:
    """Return the process whose code is running; None for the simulation itself."""
    return _process.get()


class _Task(asyncio.Task[Any]):
    """A task with the same hash in every run, so that sets of tasks iterate in the same order."""

    _numbers = count()

    def __init__(self, *args: Any, **more: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **more)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio event loop without sockets, on virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._steps_without_time = 0
        self._run_everything = False
        _Task._numbers = count()
        self.set_task_factory(lambda loop, coro, **more: _Task(coro, loop=loop, **more))

    def time(self) -> float:
        return self.now

    def again(self, handles: list[asyncio.Handle]) -> None:
        """Run these handles in the next step."""
        self._ready.extend(handles)

    def _write_to_self(self) -> None:
        """Do nothing: no other thread waits."""

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise Stuck("no task is ready and no timer is left")
            if timers[0]._when > self.now:
                self.now, self._steps_without_time = timers[0]._when, 0
        while timers and timers[0]._when <= self.now:
            ready.append(heapq.heappop(timers))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_process)
            if process is None or self._run_everything or process.admits(handle):
                handle._run()
                self._steps_without_time += 1
        if self._steps_without_time > MAX_STEPS_WITHOUT_TIME:
            raise Stuck(f"time stands still at {self.now:.3f}")

    def shut_down(self, processes: list[Process]) -> None:
        """End all remaining tasks, so that nothing outlives the simulation."""
        for process in processes:
            process.dead = True
            process.resume(self)
        self._run_everything, self._steps_without_time = True, 0
        while remaining := asyncio.all_tasks(self):
            for task in remaining:
                # A coroutine that never started must start first, or Python warns.
                if inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED:
                    task.add_done_callback(_retrieve_exception)
                    task.cancel()
            self.run_until_complete(asyncio.sleep(0))
        self.close()


class SimClock:
    """The virtual time, or that of a server whose clock jumps.

    If its clock is set back, its leases continue, as in our backends: they keep the latest time
    that they saw (the contract of mailboxes tests that). If it is set forward, leases end early.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._offset = self._set_back = 0.0

    def jump(self, seconds: float) -> None:
        self._offset += seconds
        self._set_back += max(0.0, -seconds)

    def monotonic(self) -> float:
        return self._loop.now + self._offset + self._set_back

    def now(self) -> datetime:
        return datetime.fromtimestamp(EPOCH + self._loop.now + self._offset, UTC)


@contextmanager
def no_threads(
    loop: VirtualLoop, around: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
) -> Iterator[None]:
    """Run blocking calls on the loop, through `around`, inside this context.

    A function that would block its thread returns an awaitable instead, which is awaited.
    """

    async def in_no_thread(fn: Callable[..., Any], args: tuple[Any, ...], abandon: bool) -> Any:
        call = partial(fn, *args) if args else fn
        if not abandon:
            with anyio.CancelScope(shield=True):
                return await around(call)
        running = loop.create_task(around(call))
        running.add_done_callback(_retrieve_exception)  # its caller may be cancelled by then
        return await asyncio.shield(running)

    real = _threads._in_daemon_thread
    _threads._in_daemon_thread = in_no_thread
    try:
        yield
    finally:
        _threads._in_daemon_thread = real


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def finished(answer: Any) -> Any:
    """Return the answer, awaiting it if needed."""
    return await answer if inspect.isawaitable(answer) else answer
