"""Agents: a sample goes in, a trajectory (and perhaps a session) comes out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from anyio import to_thread

from ..errors import UsageError, shown
from ..rollouts import Trajectory
from ..runtime.session import SessionView
from ._types import Sample

__all__ = ["Agent", "function_agent"]

Leavings = tuple[Trajectory[Any], SessionView | None]
Agent = Callable[[Sample[Any, Any]], Leavings | Awaitable[Leavings]]


def function_agent(fn: Callable[[Any], Any]) -> Agent:
    """A plain function `input -> output`, sync or async, as an agent that leaves no session.

    A synchronous one runs in a thread, so that several samples can run at once. A function that
    returns a `Trajectory` is taken at its word.
    """
    if not callable(fn):
        raise UsageError(f"expected a function as agent, got {shown(fn)}")
    waits = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)

    async def agent(sample: Sample[Any, Any]) -> Leavings:
        if waits:
            output = fn(sample.input)
        else:
            # In a tuple: trio would refuse a bare coroutine, which a lambda may well return.
            (output,) = await to_thread.run_sync(
                lambda: (fn(sample.input),), abandon_on_cancel=True
            )
        if inspect.isawaitable(output):
            output = await output
        return output if isinstance(output, Trajectory) else Trajectory(output=output), None

    return agent
