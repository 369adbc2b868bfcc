"""Where synchronous code runs: in a thread, or in a process where its user asks for one."""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import anyio
from anyio import to_process, to_thread
from anyio.lowlevel import RunVar

from ..errors import UsageError, shown

__all__ = ["in_process", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_limiter: RunVar[anyio.CapacityLimiter] = RunVar("weakincentives.evals.threads")


async def in_thread(fn: Callable[..., T], *args: Any) -> T:
    """What the function gives. When cancelled, it is left behind: a thread cannot be ended."""
    limiter = _limiter.get(None)
    if limiter is None:
        # The engine says how many run at once; one that hangs must not take another's place.
        _limiter.set(limiter := anyio.CapacityLimiter(math.inf))
    # In a tuple: trio would refuse a bare coroutine, which a lambda may well return.
    (value,) = await to_thread.run_sync(
        lambda: (fn(*args),), abandon_on_cancel=True, limiter=limiter
    )
    return value


def in_process(fn: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """The same agent or evaluator in a process of its own, for work that keeps a core busy.

    It must be a function of a module, with arguments that can be pickled. A deadline ends the
    process, and the work with it.

    >>> from math import factorial
    >>> in_process(factorial).__name__
    'factorial'
    """
    if not callable(fn) or "<" in getattr(fn, "__qualname__", "<"):
        raise UsageError(f"expected a function of a module for `in_process`, got {shown(fn)}")

    @functools.wraps(fn)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(fn, **kwargs) if kwargs else fn
        return await to_process.run_sync(call, *args, cancellable=True)

    return run
