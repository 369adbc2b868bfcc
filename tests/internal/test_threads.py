"""Synchronous code runs in threads, and in a process where its user asks for one."""

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

from tests.engine import LIMITS, PATIENCE
from weakincentives.errors import UsageError
from weakincentives.evals import (
    EvalConfig,
    EvalSuite,
    Sample,
    evaluate,
    exact_match,
    in_process,
)
from weakincentives.internal.threads import in_thread

pytestmark = pytest.mark.anyio


def whereabouts(_: Any) -> int:
    return os.getpid()


def says_who_and_hangs(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def breaks(_: Any) -> None:
    raise ValueError("in another process")


def alike(output: int, expected: int, *, tolerance: int = 0) -> bool:
    return abs(output - expected) <= tolerance


async def test_a_thread_gives_its_value_and_its_error() -> None:
    here = threading.get_ident()

    assert await in_thread(threading.get_ident) != here
    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)


async def test_a_thread_may_return_something_to_wait_for() -> None:
    async def later() -> str:
        return "waited"

    assert await (await in_thread(lambda: later())) == "waited"


async def test_many_threads_run_at_once_and_one_that_hangs_takes_no_place() -> None:
    meeting, hung = threading.Barrier(100, timeout=PATIENCE), threading.Event()
    try:
        with anyio.move_on_after(0.01):
            await in_thread(hung.wait, PATIENCE)
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(in_thread, meeting.wait)
    finally:
        hung.set()


async def test_a_thread_that_nobody_waits_for_any_more_learns_it() -> None:
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
    assert await in_thread(ended.wait, PATIENCE)


async def test_a_thread_has_the_context_of_its_caller_and_no_event_loop() -> None:
    name: ContextVar[str] = ContextVar("name")
    name.set("caller")

    def work() -> tuple[str, str]:
        return name.get(), anyio.run(answers)

    async def answers() -> str:
        return "a loop of its own"

    assert await in_thread(work) == ("caller", "a loop of its own")


async def test_what_stops_an_iteration_is_an_error_like_any_other() -> None:
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
async def test_a_forked_process_has_threads_of_its_own() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    await in_thread(partial(subprocess.run, command, check=True, timeout=PATIENCE))


async def test_an_agent_in_a_process_of_its_own() -> None:
    samples = [Sample("1", 20, factorial(20)), Sample("2", 0, 1)]

    report = await evaluate(samples, EvalConfig(), exact_match, agent=in_process(factorial))

    assert report.pass_rate == 1.0
    (elsewhere,) = (
        await evaluate([Sample("1", 0)], EvalConfig(), exact_match, agent=in_process(whereabouts))
    ).results
    assert elsewhere.output != os.getpid()


async def test_an_evaluator_in_a_process_of_its_own() -> None:
    agent = lambda number: number + 1  # noqa: E731
    samples = [Sample("1", 1, 2), Sample("2", 1, 3)]

    report = await evaluate(samples, EvalConfig(), in_process(alike), agent=agent)

    assert [result.passed for result in report.results] == [True, False]
    assert await in_process(alike)(1, 3, tolerance=2)


async def test_its_error_is_the_samples_own() -> None:
    report = await evaluate([Sample("1", 1)], EvalConfig(), exact_match, agent=in_process(breaks))

    assert report.results[0].error == "in another process"


async def test_a_deadline_ends_the_process_and_the_work_with_it(tmp_path: Path) -> None:
    note, hangs = tmp_path / "pid", in_process(says_who_and_hangs)
    note.touch()
    await in_process(whereabouts)(None)  # now a process is there, and idle

    for limit in LIMITS:
        config = EvalConfig(timeout_per_sample_ms=limit)
        report = await evaluate([Sample("1", str(note))], config, exact_match, agent=hangs)
        assert report.results[0].error_source == "agent"
        if note.read_text():
            break

    assert await in_thread(_is_gone, int(note.read_text()))


def _is_gone(pid: int) -> bool:
    patience = time.monotonic() + PATIENCE
    while time.monotonic() < patience:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("wrong", [3, None, lambda number: number])
async def test_what_another_process_could_not_find_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="expected a function of a module for `in_process`"):
        in_process(wrong)
    with pytest.raises(UsageError, match="expected a function of a module"):
        in_process(_nested())


def _nested() -> Any:
    def inner(number: int) -> int:
        return number

    return inner


def test_worker_processes_are_there_for_the_next_run_too() -> None:
    suite = EvalSuite(in_process(factorial), [Sample("1", 5, 120), Sample("2", 0, 1)], exact_match)

    with ThreadPoolExecutor(1) as thread:
        reports = [suite.run(), suite.run(), thread.submit(suite.run).result(), suite.run()]

    assert [(report.passed, report.errors) for report in reports] == [(2, 0)] * 4
