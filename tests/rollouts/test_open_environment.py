"""An open environment is closed exactly once, however its use ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.lowlevel import checkpoint

from weakincentives.errors import UsageError
from weakincentives.rollouts import CloseError, open_environment

pytestmark = pytest.mark.anyio


class Closing:
    """Counts how often it was closed; `how` is called on each close."""

    def __init__(self, how: Callable[[], Any] | None = None) -> None:
        self.closed = 0
        self._how = how

    async def close(self) -> None:
        await checkpoint()  # without a shield, a cancellation would end it here
        self.closed += 1
        if self._how is not None:
            await self._how()


class ClosingInAThread(Closing):
    def close(self) -> None:  # type: ignore[override]
        assert threading.current_thread() is not threading.main_thread()
        self.closed += 1


both = pytest.mark.parametrize("kind", [Closing, ClosingInAThread])


@both
async def test_success_closes(kind: type[Closing]) -> None:
    async with open_environment(kind) as env:
        assert env.closed == 0

    assert env.closed == 1


@both
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
async def test_a_failure_closes_and_passes_through(
    kind: type[Closing], error: type[BaseException]
) -> None:
    env = kind()
    with pytest.raises(error, match="mine"):
        async with open_environment(lambda: env):
            raise error("mine")

    assert env.closed == 1


@both
async def test_a_timeout_closes(kind: type[Closing]) -> None:
    env = kind()
    with anyio.CancelScope() as scope:
        async with open_environment(lambda: env):
            scope.deadline = anyio.current_time()
            await anyio.sleep_forever()

    assert scope.cancelled_caught
    assert env.closed == 1


@both
async def test_cancellation_closes_even_if_it_comes_again(kind: type[Closing]) -> None:
    env, inside = kind(), anyio.Event()

    async def use() -> None:
        async with open_environment(lambda: env):
            inside.set()
            await anyio.sleep_forever()

    with anyio.CancelScope() as outer:
        async with anyio.create_task_group() as group:
            group.start_soon(use)
            await inside.wait()
            group.cancel_scope.cancel()
            outer.cancel()

    assert env.closed == 1


async def test_concurrent_attempts_each_close_their_own_environment() -> None:
    environments: list[Closing] = []

    def make(number: int) -> Closing:
        environments.append(Closing())
        return environments[-1]

    async def use(number: int) -> None:
        async with open_environment(make, number):
            await checkpoint()
            if number % 3 == 0:
                raise ValueError(number)

    async def attempt(number: int) -> None:
        with pytest.raises(ValueError) if number % 3 == 0 else anyio.CancelScope():  # noqa: PT011
            await use(number)

    async with anyio.create_task_group() as group:
        for number in range(60):
            group.start_soon(attempt, number)

    assert [env.closed for env in environments] == [1] * 60


@pytest.mark.parametrize("how", ["sync", "async", "lambda"])
async def test_a_factory_may_be_sync_or_async(how: str) -> None:
    async def make(sample: str) -> Closing:
        await checkpoint()
        env = Closing()
        env.sample = sample  # type: ignore[attr-defined]
        return env

    def make_sync(sample: str) -> Closing:
        env = Closing()
        env.sample = sample  # type: ignore[attr-defined]
        return env

    factory: Any = {"sync": make_sync, "async": make, "lambda": lambda sample: make(sample)}[how]
    async with open_environment(factory, "s-1") as env:
        assert env.sample == "s-1"

    assert env.closed == 1


async def test_the_environment_of_a_cancelled_factory_is_closed() -> None:
    started, go_on, environments = threading.Event(), threading.Event(), []

    def slow() -> Closing:
        started.set()
        assert go_on.wait(60)
        environments.append(Closing())
        return environments[-1]

    async def use() -> None:
        async with open_environment(slow):
            await checkpoint()
            pytest.fail("cancelled long ago")

    async with anyio.create_task_group() as group:
        group.start_soon(use)
        await anyio.to_thread.run_sync(started.wait)
        group.cancel_scope.cancel()
        go_on.set()

    assert [env.closed for env in environments] == [1]


async def test_a_factory_that_raises_leaves_nothing_to_close() -> None:
    def broken() -> Closing:
        raise OSError("no container")

    with pytest.raises(OSError, match="no container"):
        async with open_environment(broken):
            pytest.fail("there is none")


async def test_a_factory_that_returns_none_is_refused() -> None:
    with pytest.raises(UsageError, match="got None - return it"):
        async with open_environment(lambda: None):
            pytest.fail("there is none")


async def test_without_a_factory_or_a_close_there_is_nothing_to_close() -> None:
    async with open_environment(None, "sample") as env:
        assert env is None
    async with open_environment(object) as bare:
        assert type(bare) is object


async def broken_close() -> None:
    raise OSError("still running")


async def test_a_close_that_raises_is_a_separate_error() -> None:
    env = Closing(broken_close)
    with pytest.raises(CloseError, match="closing `Closing` raised OSError: still running") as no:
        async with open_environment(lambda: env):
            pass

    assert env.closed == 1
    assert isinstance(no.value.__cause__, OSError)


async def test_a_close_that_raises_hides_no_error() -> None:
    with pytest.raises(ValueError, match="mine") as failed:
        async with open_environment(lambda: Closing(broken_close)):
            raise ValueError("mine")

    assert failed.value.__notes__ == ["closing `Closing` raised OSError: still running"]


async def test_a_close_that_raises_does_not_stop_a_cancellation() -> None:
    with anyio.CancelScope() as scope:
        async with open_environment(lambda: Closing(broken_close)):
            scope.cancel()
            await anyio.sleep_forever()

    assert scope.cancelled_caught


async def test_a_close_that_hangs_is_cancelled() -> None:
    class Stuck(Closing):
        async def close(self) -> None:
            self.closed += 1
            await anyio.sleep_forever()

    env = Stuck()
    with anyio.fail_after(60), pytest.raises(CloseError, match=r"close within 0\.05 s"):
        async with open_environment(lambda: env, close_timeout=0.05):
            pass

    assert env.closed == 1


async def test_a_close_that_hangs_in_a_thread_is_abandoned() -> None:
    done = threading.Event()

    class Stuck:
        def close(self) -> None:
            done.wait(120)

    try:
        with anyio.fail_after(60), pytest.raises(CloseError, match="Stuck` to close"):
            async with open_environment(Stuck, close_timeout=0.05):
                pass
    finally:
        done.set()


INTERRUPTED = """
import signal, sys, anyio
from weakincentives.rollouts import open_environment

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

class Env:
    async def close(self):
        await anyio.sleep(0.01)
        print("closed", flush=True)

async def main():
    async with open_environment(Env):
        print("open", flush=True)
        while True:  # a signal just before asyncio waits is handled at the next turn
            await anyio.sleep(0.05)

async def together():
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(main)

try:
    anyio.run(together if sys.argv[2] == "3" else main, backend=sys.argv[1])
except BaseException as error:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.name == "nt", reason="a signal to one process")
@pytest.mark.parametrize("count", [1, 3])
def test_ctrl_c_closes_what_is_open(anyio_backend_name: str, count: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, anyio_backend_name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        for _ in range(count):
            assert running.stdout.readline() == "open\n"
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=60)

    assert output.split() == ["closed"] * count + ["KeyboardInterrupt"]
