"""User code runs in an isolated task: its errors and cancellations affect no other task."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
import trio.lowlevel

from tests.engine import JumpingLoop, in_jumping_time
from weakincentives.internal.isolation import CancelledFromInside, run_isolated

pytestmark = pytest.mark.anyio
asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"])
asyncio_in_jumping_time = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"loop_factory": JumpingLoop})], ids=["asyncio"]
)


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def fn() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    return fn


class Panic(BaseException):
    """Like the exception that pyo3 raises for a Rust panic."""


async def test_code_that_returns_has_no_failure() -> None:
    assert await run_isolated(anyio.lowlevel.checkpoint) is None


@pytest.mark.parametrize(
    "error", [ValueError("bad"), SystemExit(3), GeneratorExit(), Panic("unwrap on None")]
)
async def test_any_exception_is_returned(error: BaseException) -> None:
    assert await run_isolated(raising(error)) is error


async def test_a_keyboard_interrupt_is_raised() -> None:
    # asyncio ends the whole event loop with it, so it gets a separate one
    def run_in_new_loop() -> None:
        async def main() -> None:
            await run_isolated(raising(KeyboardInterrupt()))

        anyio.run(main)

    with pytest.raises(KeyboardInterrupt):
        await anyio.to_thread.run_sync(run_in_new_loop)


@asyncio_only
async def test_a_task_that_cancels_itself_is_an_error() -> None:
    async def fn() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.sleep(60)

    assert isinstance(await run_isolated(fn), CancelledFromInside)
    await anyio.lowlevel.checkpoint()  # our own task is not cancelled


@asyncio_only
async def test_a_task_that_is_cancelled_before_its_first_step_is_an_error() -> None:
    began = []

    async def fn() -> None:
        began.append(True)

    def cancel_new_tasks() -> None:
        for task in asyncio.all_tasks() - known:
            task.cancel()

    known = asyncio.all_tasks()
    asyncio.get_running_loop().call_soon(cancel_new_tasks)
    assert isinstance(await run_isolated(fn), CancelledFromInside)
    assert not began


async def test_trio_as_a_guest_of_asyncio_runs_code_in_a_nursery() -> None:
    in_trio = []

    async def fn() -> None:
        in_trio.append(trio.lowlevel.in_trio_task())
        await trio.lowlevel.checkpoint()

    async def host() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        trio.lowlevel.start_guest_run(
            run_isolated,
            fn,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=lambda outcome: done.set_result(outcome.unwrap()),
        )
        await done

    await anyio.to_thread.run_sync(asyncio.run, host())
    assert in_trio == [True]


@asyncio_only
async def test_a_swallowed_cancellation_does_not_reach_other_tasks() -> None:
    async def fn() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async def awaits_a_cancelled_future() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    assert await run_isolated(fn) is None
    assert isinstance(await run_isolated(awaits_a_cancelled_future), CancelledFromInside)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_task_that_cancels_its_nursery_is_an_error() -> None:
    import trio

    async def fn() -> None:
        nursery = trio.lowlevel.current_task().parent_nursery
        assert nursery is not None
        nursery.cancel_scope.cancel()
        await trio.sleep(60)

    assert isinstance(await run_isolated(fn), CancelledFromInside)


async def test_a_cancel_scope_left_open_does_not_affect_other_tasks() -> None:
    kept: list[Any] = []

    async def fn() -> None:
        scope = anyio.CancelScope()
        scope.__enter__()
        kept.append(scope)

    for _ in range(3):
        await run_isolated(fn)
        with anyio.move_on_after(60):
            await anyio.lowlevel.checkpoint()


@in_jumping_time
async def test_code_that_takes_too_long_is_a_timeout() -> None:
    failure = await run_isolated(anyio.sleep_forever, 30.0)

    assert isinstance(failure, TimeoutError)
    assert str(failure).startswith("timed out after 30 s")


@asyncio_in_jumping_time  # trio repeats a cancellation that was swallowed
async def test_code_that_returns_when_it_is_cancelled_has_returned() -> None:
    async def fn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

    assert await run_isolated(fn, 30.0) is None


@asyncio_in_jumping_time
async def test_code_that_ignores_its_cancellation_is_abandoned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1

    failure = await run_isolated(stubborn, 1.0)

    assert "ignored its cancellation and was left running" in str(failure)
    assert swallowed == 5
    assert "left running" in caplog.text
    assert len(asyncio.all_tasks()) <= 2  # the loop does not wait for it at its end


@asyncio_in_jumping_time
async def test_code_that_ignores_one_cancellation_ends_with_the_next() -> None:
    async def once_stubborn() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)

    failure = await run_isolated(once_stubborn, 1.0)

    assert str(failure).startswith("timed out after 1 s - ")


@in_jumping_time
async def test_cancelling_the_caller_cancels_the_code_and_waits_for_its_cleanup() -> None:
    events: list[str] = []

    async def fn() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.5)
            events.append("cleaned up")

    with anyio.move_on_after(1) as scope:
        await run_isolated(fn)
        events.append("continued")

    assert scope.cancelled_caught
    assert events == ["cleaned up"]


async def test_context_variables_are_copied_into_the_task_and_not_back() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("outside")
    values = []

    async def fn() -> None:
        values.append(variable.get())
        variable.set("inside")

    await run_isolated(fn)

    assert (values, variable.get()) == (["outside"], "outside")
