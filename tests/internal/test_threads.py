"""Synchronous code runs in threads, or in a process with `in_process`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from math import factorial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import from_thread

from tests.engine import LIMITS, TIMEOUT
from weakincentives.errors import UsageError
from weakincentives.evals import EvalConfig, EvalSuite, Sample, evaluate, exact_match
from weakincentives.evals.engine import in_process
from weakincentives.internal.threads import in_thread

pytestmark = pytest.mark.anyio


def process_id(_: Any) -> int:
    return os.getpid()


def write_pid_and_hang(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def fail(_: Any) -> None:
    raise ValueError("in another process")


def is_close(output: int, expected: int, *, tolerance: int = 0) -> bool:
    return abs(output - expected) <= tolerance


async def test_a_thread_returns_its_value_and_raises_its_error() -> None:
    caller = threading.get_ident()

    assert await in_thread(threading.get_ident) != caller
    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)


async def test_a_thread_may_return_an_awaitable() -> None:
    async def later() -> str:
        return "waited"

    assert await (await in_thread(lambda: later())) == "waited"


async def test_a_hundred_threads_run_concurrently_besides_a_hanging_one() -> None:
    barrier, unblock = threading.Barrier(100, timeout=TIMEOUT), threading.Event()
    try:
        with anyio.move_on_after(0.01):
            await in_thread(unblock.wait, TIMEOUT)
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(in_thread, barrier.wait)
    finally:
        unblock.set()


async def test_an_abandoned_thread_is_notified_of_the_cancellation() -> None:
    begun, ended = anyio.Event(), threading.Event()

    def work() -> None:
        from_thread.run_sync(begun.set)
        try:
            while True:
                time.sleep(0.005)
                from_thread.check_cancelled()
        finally:
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(in_thread, work)
        await begun.wait()
        group.cancel_scope.cancel()
    assert await in_thread(ended.wait, TIMEOUT)


async def test_a_thread_has_the_context_of_its_caller_and_no_event_loop() -> None:
    name: ContextVar[str] = ContextVar("name")
    name.set("caller")

    def work() -> tuple[str, str]:
        return name.get(), anyio.run(answers)

    async def answers() -> str:
        return "a loop of its own"

    assert await in_thread(work) == ("caller", "a loop of its own")


async def test_a_stop_iteration_becomes_a_runtime_error() -> None:
    with pytest.raises(RuntimeError):
        await in_thread(next, iter(()))


FORKS = """
import os, anyio
from weakincentives.evals import EvalSuite, Sample, exact_match

def passed():
    return EvalSuite(lambda number: number, [Sample("1", 1, 1)], exact_match).run().passed

assert passed() == 1  # now a thread is idle
child = os.fork()
if not child:
    os._exit(passed())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
async def test_a_forked_process_has_its_own_threads() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    await in_thread(partial(subprocess.run, command, check=True, timeout=TIMEOUT))


async def test_an_agent_can_run_in_another_process() -> None:
    samples = [Sample("1", 20, factorial(20)), Sample("2", 0, 1)]

    report = await evaluate(samples, EvalConfig(), exact_match, agent=in_process(factorial))

    assert report.pass_rate == 1.0
    (result,) = (
        await evaluate([Sample("1", 0)], EvalConfig(), exact_match, agent=in_process(process_id))
    ).results
    assert result.output != os.getpid()


async def test_an_evaluator_can_run_in_another_process() -> None:
    agent = lambda number: number + 1  # noqa: E731
    samples = [Sample("1", 1, 2), Sample("2", 1, 3)]

    report = await evaluate(samples, EvalConfig(), in_process(is_close), agent=agent)

    assert [result.passed for result in report.results] == [True, False]
    assert await in_process(is_close)(1, 3, tolerance=2)


async def test_an_error_in_another_process_is_the_error_of_the_sample() -> None:
    report = await evaluate([Sample("1", 1)], EvalConfig(), exact_match, agent=in_process(fail))

    assert report.results[0].error == "in another process"


async def test_a_timeout_kills_the_process(tmp_path: Path) -> None:
    pid_file, hanging_agent = tmp_path / "pid", in_process(write_pid_and_hang)
    pid_file.touch()
    await in_process(process_id)(None)  # now there is an idle process

    for limit in LIMITS:
        config = EvalConfig(timeout_per_sample_ms=limit)
        report = await evaluate(
            [Sample("1", str(pid_file))], config, exact_match, agent=hanging_agent
        )
        assert report.results[0].error_source == "agent"
        if pid_file.read_text():
            break

    assert await in_thread(_wait_for_exit, int(pid_file.read_text()))


def _wait_for_exit(pid: int) -> bool:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("function", [3, None, lambda number: number])
async def test_functions_that_another_process_cannot_import_are_refused(function: Any) -> None:
    with pytest.raises(UsageError, match="expected a function of a module for `in_process`"):
        in_process(function)
    with pytest.raises(UsageError, match="expected a function of a module"):
        in_process(_nested())


def _nested() -> Any:
    def inner(number: int) -> int:
        return number

    return inner


def test_worker_processes_are_reused_by_the_next_run() -> None:
    suite = EvalSuite(in_process(factorial), [Sample("1", 5, 120), Sample("2", 0, 1)], exact_match)

    with ThreadPoolExecutor(1) as thread:
        reports = [suite.run(), suite.run(), thread.submit(suite.run).result(), suite.run()]

    assert [(report.passed, report.errors) for report in reports] == [(2, 0)] * 4
