"""Concurrent calls, and exception groups."""

from __future__ import annotations

import asyncio
from functools import partial

import anyio
import pytest
import trio

from weakincentives.internal.concurrency import gather, unwrap_exception_group
from weakincentives.internal.isolation import CancelledFromInside


async def failing(message: str) -> int:
    raise ValueError(message)


@pytest.mark.anyio
async def test_results_are_gathered_in_order() -> None:
    async def later(number: int) -> int:
        await anyio.sleep(0.01 * (3 - number))
        return number

    assert await gather(partial(later, number) for number in range(3)) == [0, 1, 2]
    assert await gather([]) == []


@pytest.mark.anyio
async def test_the_first_error_cancels_the_others_and_is_raised_unwrapped() -> None:
    with anyio.fail_after(10), pytest.raises(ValueError, match="first"):
        await gather([anyio.sleep_forever, partial(failing, "first")])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_code_that_cancels_itself_is_an_error(anyio_backend: str) -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.lowlevel.checkpoint()

    with pytest.raises(CancelledFromInside):
        await gather([cancels_itself])


def group(*errors: BaseException) -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("several", errors)


def test_an_exception_group_is_unwrapped_to_one_error() -> None:
    error, other, cancelled = ValueError("a"), KeyError("b"), asyncio.CancelledError()

    assert unwrap_exception_group(error) is error
    assert unwrap_exception_group(group(error, other)) is error
    assert unwrap_exception_group(group(cancelled, group(cancelled, other))) is other
    assert unwrap_exception_group(group(cancelled)) is cancelled


def test_a_cancellation_of_trio_is_not_taken_for_the_error() -> None:
    errors: list[BaseException] = []

    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                errors.append(unwrap_exception_group(group(cancelled, ValueError("a"))))
                raise

    trio.run(main)

    assert [type(error) for error in errors] == [ValueError]
