"""Run a synchronous agent or evaluator in another process."""

from __future__ import annotations

import asyncio
import functools
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import anyio
from anyio import to_process

from ...errors import UsageError, short_repr
from ...internal.event_loop import on_shared_loop

P = ParamSpec("P")
T = TypeVar("T")


def in_process(fn: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Return an async function that calls `fn` in another process, for CPU-bound work.

    `fn` must be a function of a module, with arguments that can be pickled. A timeout ends the
    process.

    >>> from math import factorial
    >>> in_process(factorial).__name__
    'factorial'
    """
    if not callable(fn) or "<" in getattr(fn, "__qualname__", "<"):
        raise UsageError(f"expected a function of a module for `in_process`, got {short_repr(fn)}")

    @functools.wraps(fn)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(fn, **kwargs) if kwargs else fn
        if on_shared_loop():
            _share_processes()
        return await to_process.run_sync(call, *args, cancellable=True)

    return run


def _share_processes() -> None:
    """Let worker processes live as long as the event loop.

    anyio kills them with the call that started the first one, even while other calls use them, and
    still offers them to the next call. There is no public API to change that.
    """
    try:
        found, idle = to_process._process_pool_workers, to_process._process_pool_idle_workers
    except AttributeError:  # another version of anyio
        return
    if found.get(None) is None:
        workers: set[Any] = set()
        found.set(workers)
        idle.set(deque())
        workers_task = asyncio.get_running_loop().create_task(_end_at_exit(workers))
        _tasks.add(workers_task)
        workers_task.add_done_callback(_tasks.discard)


_tasks: set[asyncio.Task[None]] = set()  # asyncio itself holds only weak references


async def _end_at_exit(workers: set[Any]) -> None:
    """Kill the worker processes when the event loop ends, which cancels all tasks."""
    try:
        await anyio.sleep(math.inf)
    finally:
        for process in workers:
            if process.returncode is None:
                process.kill()
        for process in workers:
            await process.aclose()
        workers.clear()
