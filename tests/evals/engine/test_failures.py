"""A sample that fails, hangs or is retried gives one result, and does not affect the others."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.engine import LIMITS, LOOP_TIME, SAMPLES, TIMEOUT, in_jumping_time, ran, right
from weakincentives.errors import ProviderError, RunIncompleteError, UsageError
from weakincentives.evals import (
    EvalConfig,
    EvalSuite,
    Sample,
    all_of,
    any_of,
    evaluate,
    exact_match,
)
from weakincentives.evals.judges import judge_panel

pytestmark = pytest.mark.anyio


def agent_that_raises_once(error: BaseException) -> Callable[[int], str]:
    def agent(number: int) -> str:
        if number == 3:
            raise error
        return "ok"

    return agent


def timeout_message(seconds: float) -> str:
    advice = "raise --timeout or EvalConfig.timeout (of an EvalLoop: EvalLoopConfig.timeout)"
    return f"timed out after {seconds:g} s - {advice}"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("bad"), "bad"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "ancelled"),
        (StopIteration(), "coroutine raised StopIteration"),
        (
            BaseExceptionGroup("two", [ValueError("a"), ValueError("b")]),
            "two: ValueError: a; ValueError: b",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_an_exception_of_an_agent_is_the_result_of_its_sample(
    error: BaseException, expected: str, asynchronous: bool
) -> None:
    agent = agent_that_raises_once(error)

    async def async_agent(number: int) -> str:
        await checkpoint()
        return agent(number)

    run = await ran(SAMPLES, async_agent if asynchronous else agent, max_concurrent=2)

    assert len(run.results) == len(SAMPLES)
    (source, message), *others = run.errors.values()
    assert (source, others) == ("agent", [])
    assert expected in (message or "")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a special case of asyncio
async def test_an_agent_whose_inner_task_is_cancelled_loses_no_sample() -> None:
    async def agent(number: int) -> str:
        inner = asyncio.ensure_future(asyncio.sleep(10))
        if number == 3:
            inner.cancel()
            await inner
        inner.cancel()
        return "ok"

    run = await ran(SAMPLES, agent, max_concurrent=2)

    assert [run.errors["3"][0], len(run.errors)] == ["agent", 1]
    assert "cancelled from inside" in (run.errors["3"][1] or "")
    assert len(run.results) == len(SAMPLES)


@in_jumping_time
async def test_an_async_agent_that_hangs_ends_at_the_timeout() -> None:
    async def agent(number: int) -> str:
        if number == 3:
            await anyio.sleep_forever()
        return "ok"

    run = await ran(SAMPLES, agent, clock=LOOP_TIME, timeout_per_sample_ms=60, max_concurrent=3)

    assert len(run.results) == len(SAMPLES)
    assert run.errors == {"3": ("agent", timeout_message(0.06))}


@pytest.fixture
def hang() -> Iterator[Callable[[], object]]:
    """Yield a function that blocks its thread until the end of the test."""
    end = threading.Event()
    yield lambda: end.wait(TIMEOUT)
    end.set()


async def test_a_sync_agent_that_hangs_ends_at_the_timeout(hang: Callable[[], object]) -> None:
    def agent(number: int) -> str:
        if number == 3:
            hang()
        return "ok"

    for limit in LIMITS:
        run = await ran(SAMPLES, agent, timeout_per_sample_ms=limit, max_concurrent=3)
        if len(run.errors) == 1:
            break

    assert len(run.results) == len(SAMPLES)
    assert run.errors == {"3": ("agent", timeout_message(limit / 1000))}


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_an_evaluator_that_hangs_ends_at_the_timeout_and_the_output_is_kept(
    asynchronous: bool, hang: Callable[[], object]
) -> None:
    async def hang_async(output: str, expected: str) -> bool:
        await anyio.sleep_forever()
        return True

    def hang_sync(output: str, expected: str) -> bool:
        hang()
        return True

    for limit in LIMITS:
        evaluator = hang_async if asynchronous else hang_sync
        run = await ran(SAMPLES[:1], right, evaluator, timeout_per_sample_ms=limit)
        (result,) = run.results
        if result.error_source == "evaluator":
            break

    assert result.error_source == "evaluator"
    assert "timed out after" in (result.error or "")
    assert result.output == "ok"


@in_jumping_time
async def test_the_timeout_is_per_sample_and_not_per_run() -> None:
    async def agent(number: int) -> str:
        await anyio.sleep(0.15)
        return "ok"

    assert (await ran(SAMPLES, agent, clock=LOOP_TIME, timeout_per_sample_ms=200)).errors == {}


# ── retries ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ProviderError("busy", retryable=True), 3),
        (ConnectionError("lost"), 3),
        (ProviderError("no such model", retryable=False), 1),
        (UsageError("wrong"), 1),
    ],
)
async def test_only_transient_errors_are_retried(
    error: Exception, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: low)
    calls: list[int] = []

    async def agent(number: int) -> str:
        calls.append(number)
        raise error

    run = await ran(SAMPLES[:1], agent, max_retries=2)

    assert len(calls) == run.results[0].attempt == attempts
    assert len(run.results) == 1


async def test_an_evaluators_error_does_not_run_the_agent_again() -> None:
    calls: list[int] = []

    def agent(number: int) -> str:
        calls.append(number)
        return "ok"

    def crash(output: str, expected: str) -> bool:
        raise ConnectionError

    run = await ran(SAMPLES[:1], agent, crash, max_retries=3)

    assert (calls, run.results[0].error_source) == ([0], "evaluator")


async def test_an_agent_that_leaves_a_cancel_scope_open_does_not_end_the_run() -> None:
    generators: list[Any] = []

    async def leaky() -> AsyncIterator[None]:
        with anyio.CancelScope():
            yield

    async def agent(number: int) -> str:
        if number == 0:
            generators.append(leaky())
            await anext(generators[0])
        return "ok"

    samples = [Sample(str(number), number, "ok") for number in range(3)]
    report = await evaluate(samples, EvalConfig(), exact_match, agent=agent)

    assert [result.passed for result in report.results[1:]] == [True, True]


@in_jumping_time
async def test_only_samples_that_take_too_long_are_cancelled() -> None:
    async def agent(number: int) -> str:
        await anyio.sleep(30 if number % 3 == 0 else 0)
        return "ok"

    run = await ran(SAMPLES, agent, clock=LOOP_TIME, max_concurrent=2, timeout_per_sample_ms=50)

    assert sorted(run.ids) == list("0123456789")
    assert sorted(run.errors) == list("0369")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_source_that_cancels_its_reader_ends_the_run_with_an_error() -> None:
    async def source() -> AsyncIterator[Sample[int, str]]:
        for sample in SAMPLES:
            if sample.id == "3":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            yield sample

    with pytest.raises(RunIncompleteError, match="a cancellation after 3"):
        await evaluate(source(), EvalConfig(max_concurrent=1), exact_match, agent=right)


async def exits_process(output: object, expected: object) -> bool:
    await checkpoint()
    return sys.exit(3) if expected == 3 else True


async def cancels_itself(output: object, expected: object) -> bool:
    if expected == 3:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(60)
    return True


async def always_passes(output: object, expected: object) -> bool:
    return True


@pytest.mark.parametrize("combine", [all_of, any_of, judge_panel])
@pytest.mark.parametrize(
    ("evaluator", "message"), [(exits_process, "3"), (cancels_itself, "cancelled from inside")]
)
def test_a_failing_evaluator_of_several_costs_only_its_sample(
    evaluator: Any, message: str, combine: Any
) -> None:
    samples = [Sample(str(number), number, number) for number in range(6)]

    report = EvalSuite(lambda number: number, samples, combine(evaluator, always_passes)).run()

    (bad,) = (result for result in report.results if result.error)
    assert (report.total, bad.sample_id, bad.error_source) == (6, "3", "evaluator")
    assert message in str(bad.error)
