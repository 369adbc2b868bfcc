"""The engine: every sample gives exactly one result, and concurrency is limited."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.engine import LOOP_TIME, SAMPLES, Busy, in_jumping_time, planned, ran, right
from weakincentives.chat import TokenUsage
from weakincentives.errors import ProviderError, UsageError
from weakincentives.evals import Sample, Trajectory
from weakincentives.evals.engine.engine import MAX_OVERCOMMIT, Engine, sample_digest
from weakincentives.internal.slots import slot_released
from weakincentives.testing import FakeClock

pytestmark = pytest.mark.anyio

# ── concurrency ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("max_concurrent", [1, 3, 20])
async def test_as_many_samples_run_concurrently_as_allowed(max_concurrent: int) -> None:
    busy, full, expected = Busy(), anyio.Event(), min(max_concurrent, len(SAMPLES))

    async def agent(number: int) -> str:
        with busy:
            if busy.now == expected:
                full.set()
            await full.wait()
            await checkpoint()
        return "ok"

    run = await ran(SAMPLES, agent, max_concurrent=max_concurrent)

    assert sorted(run.ids) == sorted(sample.id for sample in SAMPLES)
    assert busy.peak == expected
    assert run.engine.running == {}


async def test_a_waiting_sample_lends_its_slot_and_concurrency_stays_limited() -> None:
    busy, in_flight = Busy(), Busy()

    async def agent(number: int) -> str:
        with in_flight:
            with busy:
                await checkpoint()
            async with slot_released():
                for _ in range(number + 1):
                    await checkpoint()
            with busy:
                await checkpoint()
        return "ok"

    run = await ran([*SAMPLES], agent, max_concurrent=2)

    assert sorted(run.ids) == sorted(sample.id for sample in SAMPLES)
    assert busy.peak == 2
    assert 2 < in_flight.peak <= 2 * MAX_OVERCOMMIT


@in_jumping_time
async def test_a_slot_that_is_lost_to_a_timeout_is_acquired_again() -> None:
    busy, tries = Busy(), Counter[int]()

    async def agent(number: int) -> str:
        tries[number] += 1
        if number == 0 and tries[number] == 1:
            async with slot_released():  # another sample holds the slot until after the timeout
                await anyio.sleep(0.02)
        with busy:
            await anyio.sleep(0.2 if number == 1 else 0.001)
        return "ok"

    run = await ran(SAMPLES, agent, clock=LOOP_TIME, timeout_per_sample_ms=100, max_retries=1)

    assert Counter(run.ids) == Counter(sample.id for sample in SAMPLES)
    assert busy.peak == 1
    assert list(run.errors) == ["1"]


@in_jumping_time
async def test_a_sample_that_waits_for_a_retry_holds_no_slot() -> None:
    started: list[int] = []

    async def agent(number: int) -> str:
        started.append(number)
        if started == [0]:
            raise ProviderError("busy", retryable=True, status=429, retry_after=0.05)
        return "ok"

    run = await ran(SAMPLES[:3], agent, clock=LOOP_TIME, max_retries=1)

    assert started == [0, 1, 2, 0]
    assert [(result.sample_id, result.attempt) for result in run.results] == [
        ("1", 1),
        ("2", 1),
        ("0", 2),
    ]


# ── sources of samples ──────────────────────────────────────────────────────────────────────────


def endless(pulled: list[int]) -> Iterator[Sample[int, str]]:
    for number in itertools.count():
        pulled.append(number)
        yield Sample(str(number), number, "ok")


async def endless_async(pulled: list[int]) -> AsyncIterator[Sample[int, str]]:
    for sample in endless(pulled):
        await checkpoint()
        yield sample


async def close_source(samples: Any) -> None:
    """Close an async source that was not read to its end, as trio requires."""
    if hasattr(samples, "aclose"):
        await samples.aclose()


@pytest.mark.parametrize("source", [endless, endless_async])
async def test_no_sample_is_read_ahead_from_an_endless_source(
    source: Callable[[list[int]], Any],
) -> None:
    pulled: list[int] = []
    read_ahead: list[int] = []

    async def agent(number: int) -> str:
        await checkpoint()
        read_ahead.append(len(pulled) - len(run.results))
        return "ok"

    run = planned(agent, max_concurrent=4, max_samples=50)
    samples = source(pulled)
    await run.engine.run(samples)
    await close_source(samples)

    assert len(pulled) == len(run.results) == 50
    assert max(read_ahead) <= 4


@pytest.mark.parametrize("source", [[], iter(()), endless([])])
async def test_an_empty_source_is_a_valid_run(source: Any) -> None:
    assert (await ran(source, right, max_samples=0)).results == []


async def test_every_epoch_of_every_sample_has_its_result() -> None:
    run = await ran(iter(SAMPLES), right, epochs=3, max_samples=4, max_concurrent=5)

    assert Counter((r.sample_id, r.epoch) for r in run.results) == Counter(
        (str(number), epoch) for number in range(4) for epoch in (1, 2, 3)
    )


def failing_source(after: int) -> Iterator[Sample[int, str]]:
    yield from SAMPLES[:after]
    raise OSError("the disk is gone")


async def failing_async_source(after: int) -> AsyncIterator[Sample[int, str]]:
    for sample in SAMPLES[:after]:
        yield sample
    raise OSError("the disk is gone")


@pytest.mark.parametrize("source", [failing_source, failing_async_source])
async def test_a_source_that_raises_ends_the_run_after_the_samples_in_flight(
    source: Callable[[int], Any],
) -> None:
    async def agent(number: int) -> str:
        await anyio.sleep(0.02)
        return "ok"

    run = planned(agent, max_concurrent=4)
    with pytest.raises(OSError, match="the disk is gone"):
        await run.engine.run(source(3))

    assert sorted(run.ids) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([SAMPLES[0], SAMPLES[1], Sample("0", 5, "ok")], "got '0' twice - sample 3"),
        ([SAMPLES[0], "text"], "expected a `Sample`, got 'text' - sample 2"),
        (3, "expected samples, got 3"),
    ],
)
async def test_invalid_samples_are_refused(samples: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        await ran(samples, right)


async def test_the_engine_closes_async_iterators_that_it_opened_and_no_others() -> None:
    closed: list[bool] = []

    class Source:
        async def __aiter__(self) -> AsyncIterator[Sample[int, str]]:
            try:
                for sample in SAMPLES:
                    yield sample
            finally:
                await checkpoint()
                closed.append(True)

    await ran(Source(), right, max_samples=3)
    assert closed == [True]
    await ran(Source(), lambda number: 1 / 0, stop_on_error=True)
    assert closed == [True, True]

    iterator = aiter(Source())
    first, second = [await ran(iterator, right, max_samples=3) for _ in range(2)]
    assert (first.ids, second.ids) == (["0", "1", "2"], ["3", "4", "5"])
    await close_source(iterator)


# ── stopping ────────────────────────────────────────────────────────────────────────────────────


@in_jumping_time
async def test_after_an_error_no_sample_starts_and_those_in_flight_finish() -> None:
    started: list[int] = []

    async def agent(number: int) -> str:
        started.append(number)
        if number == 2:
            raise ValueError("bad")
        await anyio.sleep(0.05)
        return "ok"

    run = await ran(SAMPLES, agent, clock=LOOP_TIME, max_concurrent=3, stop_on_error=True)

    assert sorted(started) == [0, 1, 2]
    assert sorted(run.ids) == ["0", "1", "2"]
    assert run.engine.stopped == "stopped by the error of sample '2'"


async def test_a_sample_that_arrives_after_the_stop_does_not_start() -> None:
    started: list[int] = []
    failed = anyio.Event()

    async def source() -> AsyncIterator[Sample[int, str]]:
        yield SAMPLES[0]
        await failed.wait()
        for _ in range(5):
            await checkpoint()
        yield SAMPLES[1]

    async def agent(number: int) -> str:
        started.append(number)
        failed.set()
        raise ValueError("bad")

    samples = source()
    await ran(samples, agent, max_concurrent=2, stop_on_error=True)
    await close_source(samples)

    assert started == [0]


def agent_that_spends(
    tokens: int = 0, cost: float | None = None
) -> Callable[[int], Trajectory[str]]:
    return lambda number: Trajectory(output="ok", usage=TokenUsage(tokens, 0), cost=cost)


@pytest.mark.parametrize(
    ("agent", "budget", "why"),
    [
        (agent_that_spends(tokens=40), {"max_total_tokens": 100}, "100 tokens"),
        (agent_that_spends(tokens=1500), {"max_total_tokens": 4_000}, "4,000 tokens"),
        (agent_that_spends(cost=0.2), {"max_total_cost": 0.5}, r"\$0.5"),
    ],
)
async def test_no_sample_starts_after_the_budget_is_spent(
    agent: Any, budget: dict[str, Any], why: str
) -> None:
    run = await ran(SAMPLES, agent, **budget)

    assert len(run.results) == 3
    assert run.engine.stopped == f"stopped by the budget of {why}".replace("\\", "")


async def test_no_sample_starts_after_the_time_budget_even_if_the_source_is_slow() -> None:
    clock = FakeClock()

    async def agent(number: int) -> str:
        clock.advance(4)
        return "ok"

    def slow_source() -> Iterator[Sample[int, str]]:
        for sample in SAMPLES:
            yield sample
            clock.advance(7)

    run = await ran(SAMPLES, agent, clock=clock, max_total_seconds=10, timeout_per_sample_ms=None)
    assert len(run.results) == 3
    assert run.engine.stopped == "stopped by the budget of 10 s"

    run = await ran(
        slow_source(), agent, clock=clock, max_total_seconds=10, timeout_per_sample_ms=None
    )
    assert len(run.results) == 1


# ── cancellation ────────────────────────────────────────────────────────────────────────────────


async def test_agents_that_never_await_can_be_cancelled() -> None:
    pulled: list[int] = []
    run = planned(right, max_concurrent=2)

    with anyio.move_on_after(0.1) as scope:
        await run.engine.run(itertools.islice(endless(pulled), 1_000_000))

    assert scope.cancelled_caught
    assert len(pulled) < 1_000_000


async def test_an_error_caused_by_cancellation_is_not_a_result() -> None:
    async def agent(number: int) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            raise ConnectionError("closed")  # as some clients do

    run = planned(agent, max_concurrent=3)
    with anyio.move_on_after(0.05):
        await run.engine.run(SAMPLES)

    assert run.results == []


async def test_an_error_of_the_result_callback_is_raised_unchanged() -> None:
    async def raise_disk_full(task: Any, done: Any) -> None:
        raise OSError("disk full")

    engine = Engine(planned(right, max_concurrent=3).engine._spec, raise_disk_full)

    with pytest.raises(OSError, match="disk full"):
        await engine.run(SAMPLES)


# ── observing a run ─────────────────────────────────────────────────────────────────────────────


async def test_running_samples_are_known_with_their_start_times() -> None:
    clock = FakeClock()
    running: list[dict[str, float]] = []

    async def agent(number: int) -> str:
        clock.advance(1)
        running.append({task.sample.id: since for task, since in run.engine.running.items()})
        return "ok"

    run = planned(agent, clock=clock, timeout_per_sample_ms=None)
    await run.engine.run(SAMPLES[:3])

    assert running == [{"0": 0.0}, {"1": 1.0}, {"2": 2.0}]


@in_jumping_time
async def test_a_sample_that_runs_unusually_long_is_logged_once_with_the_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(number: int) -> str:
        await anyio.sleep({0: 4000, 1: 200}.get(number, 20))
        return "ok"

    run = planned(agent, clock=LOOP_TIME, max_concurrent=2)
    await run.engine.run(SAMPLES)

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "running for more than 5:00 min: sample '0' (median of finished samples: 20 s) - there is "
        "no timeout; set --timeout or EvalConfig(timeout=...)"
    )


@in_jumping_time
@pytest.mark.parametrize(
    ("seconds", "timeout", "logged"),
    [
        ((310, 310, 310), None, 1),  # two ran for five minutes before any had finished
        ((100, 900), None, 0),  # less than ten times the median
        ((1, 299), None, 0),  # less than five minutes
        ((1, 900), 1000, 0),  # it has a timeout
    ],
)
async def test_only_five_minutes_and_ten_times_the_median_are_logged_as_unusual(
    seconds: tuple[int, ...], timeout: float | None, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(number: int) -> str:
        await anyio.sleep(seconds[number])
        return "ok"

    concurrent = 2 if logged else 1
    run = planned(agent, clock=LOOP_TIME, timeout=timeout, max_concurrent=concurrent)
    await run.engine.run(SAMPLES[: len(seconds)])

    assert [record.getMessage()[:46] for record in caplog.records] == [
        "running for more than 5:00 min: sample '0', '1'"[:46]
    ] * logged


async def test_the_tally_agrees_with_the_report() -> None:
    def agent(number: int) -> Trajectory[str]:
        if number == 0:
            raise ValueError
        return Trajectory(output="ok" if number < 4 else "no", usage=TokenUsage(5, 2), cost=0.25)

    tally = (await ran(SAMPLES, agent)).engine.tally

    assert (tally.done, tally.passed, tally.mean_score, tally.failed) == (10, 3, 3 / 9, 1)
    assert (tally.tokens, tally.errors) == (9 * 7, {"agent": 1})
    assert tally.cost == 9 * 0.25


def test_the_digest_of_a_sample_depends_on_its_content() -> None:
    sample = Sample("1", {"a": 1, "b": 2}, "x", {"level": 1})

    assert sample_digest(sample) == sample_digest(Sample("1", {"b": 2, "a": 1}, "x", {"level": 1}))
    assert sample_digest(sample) != sample_digest(Sample("1", {"a": 1, "b": 3}, "x", {"level": 1}))
    assert sample_digest(sample) != sample_digest(Sample("1", {"a": 1, "b": 2}, "x", {"level": 2}))
    assert sample_digest(Sample("z", object(), None)) == ""
