"""Concurrent calls, and exception groups."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

import anyio

from .isolation import run_isolated

T = TypeVar("T")


async def gather(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run user code concurrently and return the results in order.

    The first call to fail cancels the others, and its error is raised as it is. Each call is
    isolated: in a task group alone, a `SystemExit` would end the event loop as it leaves its task,
    and code that cancels itself would look as if it had returned.
    """
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    async def run(index: int, call: Callable[[], Awaitable[T]]) -> None:
        async def keep_result() -> None:
            results[index] = await call()

        failure = await run_isolated(keep_result)
        if failure is not None:
            failures.append(failure)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for index, call in enumerate(calls):
            group.start_soon(run, index, call)
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(results))]


async def for_each(
    run: Callable[[T], Awaitable[object]], items: Iterable[T], max_concurrent: float = math.inf
) -> None:
    """Run a function for every item, at most this many at the same time."""
    limiter = anyio.CapacityLimiter(max_concurrent)

    async def limited(item: T) -> None:
        async with limiter:
            await run(item)

    async with anyio.create_task_group() as group:
        for item in items:
            group.start_soon(limited, item)


def unwrap_exception_group(error: BaseException) -> BaseException:
    """Return the error to raise for a group: the first one that is not a cancellation.

    A cancellation in a group is mostly a consequence of another error in it. An error that is not
    a group is returned as it is.
    """
    return errors_of(error)[0]


def errors_of(error: BaseException) -> list[BaseException]:
    """Return all errors of a group, at any depth: without cancellations, unless there is nothing
    else."""
    errors = list(_leaves(error))
    trio = sys.modules.get("trio")
    cancelled = (asyncio.CancelledError, *([trio.Cancelled] if trio is not None else []))
    return [each for each in errors if not isinstance(each, cancelled)] or errors[:1]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
