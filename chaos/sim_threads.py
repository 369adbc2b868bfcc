"""Threads on virtual time: the run store's own, and those that its blocking calls run in.

Each is a thread of Python, since only that can wait in the middle of a call. But one at a time
runs, and only while the event loop waits for it, so a seed determines every interleaving. It gives
way where a real one may wait: in a sleep, for a lock or an event, and at a statement of SQLite.

Like a task, a thread belongs to a process: it waits while that is paused, and ends with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import TracebackType
from typing import Any

from weakincentives.evals.store import writer
from weakincentives.evals.store.sqlite import database, ownership
from weakincentives.internal import sqlite

from .sim_loop import VirtualLoop, current_process

__all__ = ["SimThread", "current_thread", "pause", "simulated_threads"]

_this = threading.local()


class SimThread:
    """A thread that takes turns with the event loop."""

    def __init__(self, loop: VirtualLoop, call: Callable[[], Any]) -> None:
        self.finished = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.on_end: list[Callable[[], object]] = []
        self._loop = loop
        self._call = call
        self._process = current_process()
        self._context, self._steps = copy_context(), copy_context()
        self._turn = 0  # the number of its turns; a wake-up for an earlier one comes too late
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread: threading.Thread | None = None

    def wake(self, seconds: float = 0.0) -> None:
        """Run the next turn in so many seconds, unless another wake-up comes first."""
        if not self.finished:
            self._loop.call_later(seconds, self._step, self._turn, context=self._steps)

    def end(self) -> None:
        """Let it run to its end; its process is dead, so each of its steps raises `Crash`."""
        while self._thread is not None and not self.finished:
            self._step(self._turn)

    def give_way(self) -> None:
        """End this turn; return in the next one."""
        self._back.release()
        self._go.acquire()
        if self._process is not None:
            self._process.check()

    def _step(self, turn: int) -> None:
        if turn != self._turn or self.finished:
            return
        self._turn += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    def _run(self) -> None:
        _this.thread = self
        try:
            self.value = self._context.run(self._call)
        except BaseException as error:
            self.error = error
        self.finished = True
        for call in self.on_end:
            call()
        self._back.release()


def current_thread() -> SimThread | None:
    """Return the thread whose code is running; None on the event loop."""
    return getattr(_this, "thread", None)


def pause(seconds: float) -> None:
    """Let this thread wait; on the event loop, which cannot, no time passes."""
    if (thread := current_thread()) is not None:
        thread.wake(seconds)
        thread.give_way()


def wait_until(
    waiting: list[SimThread], done: Callable[[], bool], timeout: float | None = None
) -> bool:
    """Wait until it is done, for `timeout` seconds at most; whoever changes that calls `_wake`."""
    thread = current_thread()
    if done() or thread is None:
        if not done() and timeout is None:
            raise RuntimeError("expected a free lock, got one that would block the event loop")
        return done()
    end = None if timeout is None else thread._loop.now + timeout
    while not done() and (end is None or thread._loop.now < end):
        waiting.append(thread)
        if end is not None:
            thread.wake(end - thread._loop.now)
        try:
            thread.give_way()
        finally:
            waiting.remove(thread)
    return done()


def _wake(waiting: list[SimThread]) -> None:
    for thread in waiting:
        thread.wake()


class _Event:
    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[SimThread] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        _wake(self._waiting)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return wait_until(self._waiting, self.is_set, timeout)


class _Semaphore:
    """A semaphore; with the value 1 a lock, and with `reentrant` one that its holder may repeat."""

    def __init__(self, value: int = 1, *, reentrant: bool = False) -> None:
        self._free = value
        self._reentrant = reentrant
        self._holder: object = None
        self._depth = 0
        self._waiting: list[SimThread] = []

    def acquire(self) -> bool:
        holder = current_thread() or _this
        if not (self._reentrant and self._depth and self._holder is holder):
            wait_until(self._waiting, lambda: self._free > 0)
            self._free -= 1
            self._holder = holder
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0 or not self._reentrant:
            self._free += 1
            _wake(self._waiting)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class _Threading:
    """What the run store uses of the module `threading`."""

    Event = _Event
    Lock = Semaphore = _Semaphore

    def __init__(self, start: Callable[[Callable[[], Any]], SimThread]) -> None:
        self._start = start

    def RLock(self) -> _Semaphore:  # as in `threading`
        return _Semaphore(reentrant=True)

    def Thread(self, *, target: Callable[[], Any], name: str, daemon: bool) -> _Thread:
        return _Thread(lambda: self._start(target))

    def current_thread(self) -> object:
        return current_thread()


class _Thread:
    def __init__(self, start: Callable[[], SimThread]) -> None:
        self._start = start
        self._thread: SimThread | None = None
        self._ended = _Event()

    def start(self) -> None:
        self._thread = self._start()
        self._thread.on_end.append(self._ended.set)

    def join(self) -> None:
        self._ended.wait()


class _Time:
    """The module `time` of a process, which sleeps on virtual time."""

    sleep = staticmethod(pause)

    def __init__(self, loop: VirtualLoop) -> None:
        self.monotonic = lambda: loop.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def simulated_threads(
    loop: VirtualLoop, start: Callable[[Callable[[], Any]], SimThread]
) -> Iterator[None]:
    """Let the run store's threads, locks and sleeps be those of this simulation."""
    with_threads, with_time = (ownership, database, writer), (ownership, writer, sqlite)
    threads, times = _Threading(start), _Time(loop)
    for module in with_threads:
        module.threading = threads  # type: ignore[assignment]
    for module in with_time:
        module.time = times  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in with_threads:
            module.threading = threading
        for module in with_time:
            module.time = time
