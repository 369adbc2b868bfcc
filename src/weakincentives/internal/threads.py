"""Daemon threads for synchronous code, which never keep a process alive.

A thread that hangs cannot be ended. Python waits at exit for every thread that is not a daemon, and
on asyncio the threads of anyio are not, so one agent that hangs would block the exit forever. On
trio they are daemons. Inside our threads `anyio.from_thread` works as in those of anyio.

An agent may also start threads itself. `asyncio.to_thread` takes them from the event loop, which
waits for them when it ends, so our own event loop gets an executor that waits a few seconds only.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait as wait_for
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from anyio import to_thread

from .forks import end_if_forked, fork_count

T = TypeVar("T")

IDLE_SECONDS = 10.0  # an idle thread ends after this time
GRACE_SECONDS = 5.0  # for calls of `asyncio.to_thread` that still run when their event loop ends

_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar(
    "weakincentives.threads"
)


async def in_thread(fn: Callable[..., T], *args: Any, abandon: bool = True) -> T:
    """Run the function in a thread, and return its result.

    On cancellation the thread is abandoned; with `abandon=False`, the cancellation waits for it.
    The number of threads is not limited, so that one that hangs does not block another.
    """
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError and _claim() is not None:
        return await _in_daemon_thread(fn, args, abandon)
    limiter = _limiter.get(None)
    if limiter is None:
        _limiter.set(limiter := anyio.CapacityLimiter(math.inf))
    # In a tuple: trio would refuse a bare coroutine, which a lambda may well return.
    (value,) = await to_thread.run_sync(
        lambda: (fn(*args),), abandon_on_cancel=abandon, limiter=limiter
    )
    return value


async def _in_daemon_thread(fn: Callable[..., T], args: tuple[Any, ...], abandon: bool) -> T:
    await anyio.lowlevel.checkpoint_if_cancelled()
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = copy_context()
    if sniffio := sys.modules.get("sniffio"):  # the thread itself runs no event loop
        context.run(sniffio.current_async_library_cvar.set, None)
    with anyio.CancelScope(shield=not abandon) as scope:
        _idle_thread().jobs.put(_Job(context, fn, args, loop, future, scope))
        value, error = await future
    if error is None:
        return value  # type: ignore[no-any-return]
    try:
        raise error
    finally:
        del error, future  # break the reference cycle with the traceback


class _Job:
    """One call, and the task that waits for it."""

    __slots__ = ("_args", "_context", "_fn", "_future", "_loop", "_scope")

    def __init__(
        self,
        context: Context,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[tuple[Any, BaseException | None]],
        scope: anyio.CancelScope,
    ) -> None:
        self._context, self._fn, self._args = context, fn, args
        self._loop, self._future, self._scope = loop, future, scope

    def run(self, thread: _Thread) -> None:
        """Call the function, offer the thread to others, and report to the event loop."""
        value, error = None, None
        if not self._future.cancelled():
            try:
                value = self._context.run(self._call)
            except BaseException as raised:
                error = raised
        _idle.append(thread)
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._report, value, error)
        del error  # its traceback holds this frame

    def _call(self) -> Any:
        claim = _claim()
        assert claim is not None
        claim_worker_thread, backend, threadlocals = claim
        with claim_worker_thread(backend, self._loop):
            threadlocals.current_cancel_scope = self._scope
            try:
                return self._fn(*self._args)
            finally:
                del threadlocals.current_cancel_scope

    def _report(self, value: Any, error: BaseException | None) -> None:
        future = self._future
        del self._future  # the traceback of an error holds this job, which must not hold the error
        if not future.done():
            future.set_result((value, error))


class DaemonExecutor(ThreadPoolExecutor):
    """Run calls in our daemon threads, without a limit; `shutdown` waits `GRACE_SECONDS`."""

    def __init__(self) -> None:
        super().__init__()  # it starts no thread before its own `submit` is called
        self._unfinished: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        _idle_thread().jobs.put(_ExecutorJob(future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            wait_for(tuple(self._unfinished), timeout=GRACE_SECONDS)


class _ExecutorJob:
    """One call of an executor."""

    __slots__ = ("_call", "_future")

    def __init__(self, future: Future[Any], call: Callable[[], Any]) -> None:
        self._future, self._call = future, call

    def run(self, thread: _Thread) -> None:
        """Call the function, set the future, and offer the thread to others."""
        if self._future.set_running_or_notify_cancel():
            try:
                value = self._call()
            except BaseException as error:
                self._future.set_exception(error)
            else:
                self._future.set_result(value)
        _idle.append(thread)


@cache
def _claim() -> tuple[Any, Any, Any] | None:
    """Return the parts of anyio that make `anyio.from_thread` work in a thread of ours.

    There is no public API. If anyio does not have these names, its own threads are used.
    """
    try:
        from anyio._backends._asyncio import AsyncIOBackend
        from anyio._core._eventloop import claim_worker_thread, threadlocals
    except ImportError:
        return None
    return claim_worker_thread, AsyncIOBackend, threadlocals


class _Thread(threading.Thread):
    """Run one job after another, for any event loop of the process."""

    def __init__(self) -> None:
        super().__init__(name="wink-thread", daemon=True)
        self.jobs: SimpleQueue[_Job | _ExecutorJob] = SimpleQueue()

    def run(self) -> None:
        forks = fork_count()
        while (job := self._next_job()) is not None:
            job.run(self)
            end_if_forked(forks)
            del job  # release its references before waiting for the next

    def _next_job(self) -> _Job | _ExecutorJob | None:
        try:
            return self.jobs.get(timeout=IDLE_SECONDS)
        except Empty:
            try:
                _idle.remove(self)
            except ValueError:  # it was just taken, and a job is about to arrive
                return self.jobs.get()
            return None


_idle: deque[_Thread] = deque()  # any thread may append and pop
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads do not survive a fork


def _idle_thread() -> _Thread:
    try:
        return _idle.pop()
    except IndexError:
        thread = _Thread()
        thread.start()
        return thread
