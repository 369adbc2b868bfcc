"""The engine: every sample ends in exactly one result, and no more run at once than may."""

from __future__ import annotations

import itertools
import math
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

# ── how many at once ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("most", [1, 3, 20])
async def test_as_many_run_at_once_as_may_and_never_more(most: int) -> None:
    busy, full, together = Busy(), anyio.Event(), min(most, len(SAMPLES))

    async def agent(number: int) -> str:
        with busy:
            if busy.now == together:
                full.set()
            await full.wait()
            await checkpoint()
        return "ok"

    run = await ran(SAMPLES, agent, max_concurrent=most)

    assert sorted(run.ids) == sorted(sample.id for sample in SAMPLES)
    assert busy.most == together
    assert run.engine.running == {}


async def test_whoever_waits_lends_its_place_and_still_no_more_run_at_once() -> None:
    busy, begun = Busy(), Busy()

    async def agent(number: int) -> str:
        with begun:
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
    assert busy.most == 2
    assert 2 < begun.most <= 2 * MAX_OVERCOMMIT


@in_jumping_time
async def test_a_place_that_is_lost_to_the_time_limit_is_asked_for_again() -> None:
    busy, tries = Busy(), Counter[int]()

    async def agent(number: int) -> str:
        tries[number] += 1
        if number == 0 and tries[number] == 1:
            async with slot_released():  # and the place is taken until after the time limit
                await anyio.sleep(0.02)
        with busy:
            await anyio.sleep(0.2 if number == 1 else 0.001)
        return "ok"

    run = await ran(SAMPLES, agent, clock=LOOP_TIME, timeout_per_sample_ms=100, max_retries=1)

    assert Counter(run.ids) == Counter(sample.id for sample in SAMPLES)
    assert busy.most == 1
    assert list(run.errors) == ["1"]


@in_jumping_time
async def test_a_call_that_waits_for_another_try_holds_no_place() -> None:
    begun: list[int] = []

    async def agent(number: int) -> str:
        begun.append(number)
        if begun == [0]:
            raise ProviderError("busy", retryable=True, status=429, retry_after=0.05)
        return "ok"

    run = await ran(SAMPLES[:3], agent, clock=LOOP_TIME, max_retries=1)

    assert begun == [0, 1, 2, 0]
    assert [(result.sample_id, result.attempt) for result in run.results] == [
        ("1", 1),
        ("2", 1),
        ("0", 2),
    ]


# ── samples come as they are needed ─────────────────────────────────────────────────────────────


def endless(pulled: list[int]) -> Iterator[Sample[int, str]]:
    for number in itertools.count():
        pulled.append(number)
        yield Sample(str(number), number, "ok")


async def endless_async(pulled: list[int]) -> AsyncIterator[Sample[int, str]]:
    for sample in endless(pulled):
        await checkpoint()
        yield sample


async def closed(samples: Any) -> None:
    """Whoever gives samples that are not all needed closes them; trio insists."""
    if hasattr(samples, "aclose"):
        await samples.aclose()


@pytest.mark.parametrize("source", [endless, endless_async])
async def test_of_an_endless_source_not_one_sample_more_is_pulled(
    source: Callable[[list[int]], Any],
) -> None:
    pulled: list[int] = []
    ahead: list[int] = []

    async def agent(number: int) -> str:
        await checkpoint()
        ahead.append(len(pulled) - len(run.results))
        return "ok"

    run = planned(agent, max_concurrent=4, max_samples=50)
    samples = source(pulled)
    await run.engine.run(samples)
    await closed(samples)

    assert len(pulled) == len(run.results) == 50
    assert max(ahead) <= 4


@pytest.mark.parametrize("none", [[], iter(()), endless([])])
async def test_nothing_to_do_is_a_run_as_well(none: Any) -> None:
    assert (await ran(none, right, max_samples=0)).results == []


async def test_every_epoch_of_every_sample_has_its_result() -> None:
    run = await ran(iter(SAMPLES), right, epochs=3, max_samples=4, max_concurrent=5)

    assert Counter((r.sample_id, r.epoch) for r in run.results) == Counter(
        (str(number), epoch) for number in range(4) for epoch in (1, 2, 3)
    )


def breaks_off(after: int) -> Iterator[Sample[int, str]]:
    yield from SAMPLES[:after]
    raise OSError("the disk is gone")


async def breaks_off_async(after: int) -> AsyncIterator[Sample[int, str]]:
    for sample in SAMPLES[:after]:
        yield sample
    raise OSError("the disk is gone")


@pytest.mark.parametrize("source", [breaks_off, breaks_off_async])
async def test_a_source_that_breaks_ends_the_run_after_what_is_under_way(
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
async def test_what_is_wrong_with_the_samples_is_said(samples: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        await ran(samples, right)


async def test_an_async_source_of_ours_is_closed_and_one_of_the_user_goes_on() -> None:
    ends: list[bool] = []

    class Source:
        async def __aiter__(self) -> AsyncIterator[Sample[int, str]]:
            try:
                for sample in SAMPLES:
                    yield sample
            finally:
                await checkpoint()
                ends.append(True)

    await ran(Source(), right, max_samples=3)
    assert ends == [True]
    await ran(Source(), lambda number: 1 / 0, stop_on_error=True)
    assert ends == [True, True]

    going = aiter(Source())
    first, second = [await ran(going, right, max_samples=3) for _ in range(2)]
    assert (first.ids, second.ids) == (["0", "1", "2"], ["3", "4", "5"])
    await closed(going)


# ── stopping ────────────────────────────────────────────────────────────────────────────────────


@in_jumping_time
async def test_an_error_begins_nothing_new_and_what_is_under_way_ends() -> None:
    begun: list[int] = []

    async def agent(number: int) -> str:
        begun.append(number)
        if number == 2:
            raise ValueError("bad")
        await anyio.sleep(0.05)
        return "ok"

    run = await ran(SAMPLES, agent, clock=LOOP_TIME, max_concurrent=3, stop_on_error=True)

    assert sorted(begun) == [0, 1, 2]
    assert sorted(run.ids) == ["0", "1", "2"]
    assert run.engine.stopped == "stopped by the error of sample '2'"


async def test_a_sample_that_comes_after_the_stop_is_not_begun() -> None:
    begun: list[int] = []
    failed = anyio.Event()

    async def source() -> AsyncIterator[Sample[int, str]]:
        yield SAMPLES[0]
        await failed.wait()
        for _ in range(5):
            await checkpoint()
        yield SAMPLES[1]

    async def agent(number: int) -> str:
        begun.append(number)
        failed.set()
        raise ValueError("bad")

    samples = source()
    await ran(samples, agent, max_concurrent=2, stop_on_error=True)
    await closed(samples)

    assert begun == [0]


def spends(tokens: int = 0, cost: float | None = None) -> Callable[[int], Trajectory[str]]:
    return lambda number: Trajectory(output="ok", usage=TokenUsage(tokens, 0), cost=cost)


@pytest.mark.parametrize(
    ("agent", "budget", "why"),
    [
        (spends(tokens=40), {"max_total_tokens": 100}, "100 tokens"),
        (spends(tokens=1500), {"max_total_tokens": 4_000}, "4,000 tokens"),
        (spends(cost=0.2), {"max_total_cost": 0.5}, r"\$0.5"),
    ],
)
async def test_a_budget_that_is_used_up_begins_nothing_new(
    agent: Any, budget: dict[str, Any], why: str
) -> None:
    run = await ran(SAMPLES, agent, **budget)

    assert len(run.results) == 3
    assert run.engine.stopped == f"stopped by the budget of {why}".replace("\\", "")


async def test_so_is_time_also_while_the_source_is_slow() -> None:
    clock = FakeClock()

    async def agent(number: int) -> str:
        clock.advance(4)
        return "ok"

    def slow() -> Iterator[Sample[int, str]]:
        for sample in SAMPLES:
            yield sample
            clock.advance(7)

    run = await ran(SAMPLES, agent, clock=clock, max_total_seconds=10, timeout_per_sample_ms=None)
    assert len(run.results) == 3
    assert run.engine.stopped == "stopped by the budget of 10 s"

    run = await ran(slow(), agent, clock=clock, max_total_seconds=10, timeout_per_sample_ms=None)
    assert len(run.results) == 1


# ── cancelling ──────────────────────────────────────────────────────────────────────────────────


async def test_agents_that_never_wait_can_be_cancelled_and_let_others_have_their_turn() -> None:
    pulled: list[int] = []
    run = planned(right, max_concurrent=2)

    with anyio.move_on_after(0.1) as scope:
        await run.engine.run(itertools.islice(endless(pulled), 1_000_000))

    assert scope.cancelled_caught
    assert len(pulled) < 1_000_000


async def test_an_error_that_only_came_of_being_cancelled_is_no_result() -> None:
    async def agent(number: int) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            raise ConnectionError("closed")  # as some clients do

    run = planned(agent, max_concurrent=3)
    with anyio.move_on_after(0.05):
        await run.engine.run(SAMPLES)

    assert run.results == []


async def test_what_breaks_behind_a_result_is_raised_as_it_is() -> None:
    async def full(task: Any, done: Any) -> None:
        raise OSError("disk full")

    engine = Engine(planned(right, max_concurrent=3).engine._spec, full)

    with pytest.raises(OSError, match="disk full"):
        await engine.run(SAMPLES)


# ── what can be seen of it ──────────────────────────────────────────────────────────────────────


async def test_who_is_under_way_and_since_when() -> None:
    clock = FakeClock()
    seen: list[dict[str, float]] = []

    async def agent(number: int) -> str:
        clock.advance(1)
        seen.append({task.sample.id: since for task, since in run.engine.running.items()})
        return "ok"

    run = planned(agent, clock=clock, timeout_per_sample_ms=None)
    await run.engine.run(SAMPLES[:3])

    assert seen == [{"0": 0.0}, {"1": 1.0}, {"2": 2.0}]


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
async def test_only_five_minutes_and_ten_times_the_median_are_unusual(
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


async def test_the_tally_counts_as_the_report_does() -> None:
    def agent(number: int) -> Trajectory[str]:
        if number == 0:
            raise ValueError
        return Trajectory(output="ok" if number < 4 else "no", usage=TokenUsage(5, 2), cost=0.25)

    tally = (await ran(SAMPLES, agent)).engine.tally

    assert (tally.done, tally.passed, tally.value, tally.failed) == (10, 3, 3.0, 1)
    assert (tally.tokens, tally.errors) == (9 * 7, {"agent": 1})
    assert math.isclose(tally.cost, 9 * 0.25)


def test_a_sample_is_known_by_its_content() -> None:
    sample = Sample("1", {"a": 1, "b": 2}, "x", {"level": 1})

    assert sample_digest(sample) == sample_digest(Sample("1", {"b": 2, "a": 1}, "x", {"level": 1}))
    assert sample_digest(sample) != sample_digest(Sample("1", {"a": 1, "b": 3}, "x", {"level": 1}))
    assert sample_digest(sample) != sample_digest(Sample("1", {"a": 1, "b": 2}, "x", {"level": 2}))
    assert sample_digest(Sample("z", object(), None)) == ""
