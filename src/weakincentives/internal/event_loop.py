"""One event loop behind every synchronous function of the process: `run_sync`.

Theory of operation. An async client keeps its connections on the event loop that opened them, and
people create one client per module. So `EvalSuite.run`, `EvalLoop.run`, a judge that is called
directly, pytest and the command line all use the same asyncio loop, which exists until the process
ends. It runs only while such a call is in progress, in one thread at a time:

- A call on the main thread runs it right there, as `asyncio.run` would: Ctrl-C and objects that
  belong to a thread, such as a connection of `sqlite3`, work as usual.
- A call in another thread, or where an event loop is running already, as in a notebook, runs it in
  a background thread and waits.
- A call while it is running joins in. If the call that runs it ends first, a background thread
  takes over.

There are two exceptions. In a worker thread of an event loop, such as that of a synchronous agent,
a call runs on that loop. And a call from a coroutine of our loop itself, or from a thread that such
a coroutine waits for, would wait for itself: it runs on a second loop of the same kind.

What user code can do to the loop:

- `loop.stop()`, or a callback that raises `SystemExit`: all tasks are cancelled, and the calls in
  progress raise that error. The loop stays usable. One that was closed is replaced.
- A task that outlives its call is suspended with the loop, and continues during the next call: it
  may belong to a client. It is cancelled when the process ends, which waits for it a few seconds
  only.
- After a fork, the child starts with its own loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from anyio import from_thread

from .threads import DaemonExecutor

T = TypeVar("T")

EXIT_SECONDS = 3.0  # at the end of the process, for tasks that were left behind
BLOCKED_SECONDS = 10.0  # until a loop that starts no call is taken to be blocked
WAKE_INTERVAL = 0.5  # seconds; a waiting main thread may notice a signal only when it wakes up
MAX_FAILURES = 100  # of a loop in one call; one whose descriptors were closed always fails
MAX_INTERRUPTS = 2  # the first cancels a call, the second all tasks, the next one leaves at once


def run_sync(call: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run async code from synchronous code, and return its result."""
    fn: Callable[[], Awaitable[T]] = partial(call, *args)
    try:
        from_thread.check_cancelled()
    except RuntimeError:  # not in a worker thread of an event loop
        pass
    else:
        return from_thread.run(_result_of, fn)
    running = _running_loop()
    level = next((n for n, each in enumerate(_loops, 1) if each.is_loop(running)), 0)
    is_main = threading.current_thread() is threading.main_thread()
    while True:
        if level == len(_loops):
            _loops.append(_SharedLoop())
        try:
            return _loops[level].run(fn, here=is_main and running is None)
        except _LoopBlocked:
            level += 1


def on_shared_loop() -> bool:
    """Return whether the caller runs on such an event loop."""
    running = _running_loop()
    return any(each.is_loop(running) for each in _loops)


async def _result_of(fn: Callable[[], Awaitable[T]]) -> T:
    return await fn()


def _running_loop() -> object | None:
    """Return the event loop that is running in this thread; of trio, its module."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return trio
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _LoopBlocked(Exception):
    """A coroutine blocks the loop, perhaps waiting for this very call, which was not started."""


class _Call(Generic[T]):
    """One call, and the task that executes it."""

    loop: asyncio.AbstractEventLoop
    _value: T

    def __init__(self, fn: Callable[[], Awaitable[T]]) -> None:
        self.done = threading.Event()
        self.task: asyncio.Task[None] | None = None
        self.ended_by: BaseException | None = None  # what ended the event loop, or our wait for it
        self.interrupts = 0
        self.is_first = True  # no other call was running when it began
        self._fn = fn
        self._error: BaseException | None = None
        self._context = copy_context()
        if sniffio := sys.modules.get("sniffio"):  # the caller may be in trio
            self._context.run(sniffio.current_async_library_cvar.set, "asyncio")

    def start(self, on_done: Callable[[], object]) -> None:
        """Create the task."""
        self.task = self.loop.create_task(self._run(), context=self._context)
        self.task.add_done_callback(lambda _: on_done())
        if self.interrupts:
            self.task.cancel()

    async def _run(self) -> None:
        """Catch everything: a `SystemExit` would end the loop, and with it the calls of others."""
        try:
            for _ in range(3):  # lets clients notice connections that were closed in the meantime
                await asyncio.sleep(0)
            self._value = await self._fn()
        except BaseException as error:
            self._error = error

    def cancel(self) -> None:
        """Cancel the task; call it on the loop only."""
        if self.task is not None:
            self.task.cancel()

    def result(self) -> T:
        """Return the result of a call that is done, or raise its error."""
        error = self.ended_by or self._error
        if error is None and not hasattr(self, "_value"):  # cancelled before its first step
            error = asyncio.CancelledError()
        if self.interrupts and isinstance(error, asyncio.CancelledError):
            error = KeyboardInterrupt()
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error, self.ended_by, self._error  # break the reference cycle with the traceback


class _SharedLoop:
    """An event loop, the calls in progress on it, and the thread that runs it for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._executor = DaemonExecutor()
        self._calls: list[_Call[Any]] = []
        self._runner: threading.Thread | None = None

    def is_loop(self, loop: object | None) -> bool:
        """Return whether it is ours."""
        return loop is not None and loop is self._loop

    def run(self, fn: Callable[[], Awaitable[T]], *, here: bool) -> T:
        """Run the function on the loop and return its result; with `here`, in this thread."""
        call = _Call(fn)
        with _cancelled_by_sigint(call) if here else nullcontext():
            if self._begin(call, here):
                try:
                    self._run_to_end(call)
                finally:
                    self._leave()
            else:
                self._wait(call)
        return call.result()

    def _begin(self, call: _Call[Any], here: bool) -> bool:
        """Add a call, and return whether this thread is to run the loop for it."""
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(self._executor)
            call.loop = self._loop
            # It may be this thread already, if a signal handler raised while it was leaving.
            if here and self._runner in (None, threading.current_thread()):
                self._runner = threading.current_thread()
            elif self._runner is None:
                self._start_background()
            else:
                call.is_first = False
                self._loop.call_soon_threadsafe(self._start, call)
            self._calls.append(call)
            return self._runner is threading.current_thread()

    def _start(self, call: _Call[Any]) -> None:
        """Start a call, unless it was started or withdrawn."""
        with self._lock:
            if call.task is None and call in self._calls:
                call.start(partial(self._finish, call))

    def _withdraw(self, call: _Call[Any]) -> bool:
        """Remove a call that was not started; return whether it was removed."""
        with self._lock:
            if call.task is None:
                self._calls.remove(call)
            return call.task is None

    def _finish(self, call: _Call[Any]) -> None:
        with self._lock:
            self._calls.remove(call)
        call.done.set()

    def _leave(self) -> None:
        with self._lock:
            self._runner = None
            if self._calls:
                self._start_background()

    def _start_background(self) -> None:
        thread = threading.Thread(
            target=self._run_in_background, name="wink-event-loop", daemon=True
        )
        thread.start()
        self._runner = thread

    def _run_in_background(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._runner = None
                    return
                call = self._calls[0]
            with suppress(KeyboardInterrupt):  # raised by a callback; only the main thread leaves
                self._run_to_end(call)

    def _run_to_end(self, call: _Call[Any]) -> None:
        """Run the loop until the call is done, whatever user code does to the loop."""
        self._start(call)
        failures = 0
        while call.task is not None and not call.done.is_set():
            try:
                call.loop.run_until_complete(call.task)
            except BaseException as error:
                call.interrupts += isinstance(error, KeyboardInterrupt)
                failures += 1
                if call.interrupts > MAX_INTERRUPTS or failures > MAX_FAILURES:
                    raise
                if call.loop.is_closed():
                    call.ended_by = error
                    self._finish(call)
                elif not call.task.done():
                    self._cancel_all(call.loop, error)

    def _cancel_all(self, loop: asyncio.AbstractEventLoop, error: BaseException) -> None:
        """Cancel every task of the loop, after an error that is the loop's or the user's."""
        for call in tuple(self._calls):
            if call.task is not None:
                call.ended_by = call.ended_by or error
        for task in asyncio.all_tasks(loop):
            task.cancel()

    def _wait(self, call: _Call[Any]) -> None:
        """Wait until the call is done, which another thread executes."""
        end = time.monotonic() + BLOCKED_SECONDS
        while not call.done.is_set():
            is_late = call.task is None and not call.is_first and time.monotonic() > end
            if is_late and self._withdraw(call):
                raise _LoopBlocked
            try:
                call.done.wait(WAKE_INTERVAL)
            except BaseException as error:  # raised by a signal handler
                call.ended_by = error
                call.interrupts += 1
                if call.interrupts > MAX_INTERRUPTS:
                    raise
                cancel_all = partial(self._cancel_all, call.loop, error)
                call.loop.call_soon_threadsafe(call.cancel if call.interrupts == 1 else cancel_all)

    # ── the end of the process ──────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """End all tasks, close all connections, and close the loop, within a few seconds."""
        loop, runner = self._loop, self._runner
        if loop is None or loop.is_closed():
            return
        if runner is not None and runner is not threading.current_thread():
            # It runs a call whose caller has stopped waiting.
            loop.call_soon_threadsafe(self._cancel_all, loop, SystemExit())
            runner.join(EXIT_SECONDS)
            if runner.is_alive():
                return
        ending = loop.create_task(_end_tasks(loop))
        ending._log_destroy_pending = False  # type: ignore[attr-defined]
        with suppress(BaseException):  # raised by a callback that a task left behind
            loop.run_until_complete(ending)
        self._executor.shutdown()
        loop.close()

    def abandon(self) -> None:
        """Leave the loop alone, in a process that was forked from its own.

        Closing it would remove its sockets from the selector, which the processes share.
        """
        if self._loop is not None:
            _inherited.extend([self._loop, *_silenced(asyncio.all_tasks(self._loop))])
            if hasattr(self._loop, "_selector"):
                _inherited.append(self._loop._selector)
                self._loop._selector = selectors.DefaultSelector()


async def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(_silenced(tasks), timeout=EXIT_SECONDS)
    with suppress(TimeoutError):  # this closes our own HTTP connections
        await asyncio.wait_for(loop.shutdown_asyncgens(), EXIT_SECONDS)
    # Those of a client that was not closed would be reported as leaked.
    for transport in tuple(getattr(loop, "_transports", {}).values()):
        transport.abort()
    await asyncio.sleep(0)


def _silenced(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Return the tasks, after asking asyncio to report neither their end nor their errors."""
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return tasks


@contextmanager
def _cancelled_by_sigint(call: _Call[Any]) -> Iterator[None]:
    """Handle Ctrl-C as `asyncio.run` does: the first one cancels the call, others interrupt it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def on_sigint(number: int, frame: object) -> None:
        if call.interrupts:
            raise KeyboardInterrupt
        call.interrupts = 1
        if call.task is not None:
            call.loop.call_soon_threadsafe(call.cancel)

    signal.signal(signal.SIGINT, on_sigint)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is on_sigint:
            signal.signal(signal.SIGINT, signal.default_int_handler)


_loops = [_SharedLoop()]
_inherited: list[object] = []  # what a forked process must not finalize


@atexit.register
def _close_loops() -> None:
    for each in reversed(_loops):
        each.close()


def _replace_loops_after_fork() -> None:
    for each in _loops:
        each.abandon()
    _loops[:] = [_SharedLoop()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_loops_after_fork)
