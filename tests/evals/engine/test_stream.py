"""`stream` yields results as they finish and keeps none; the store keeps them if a run fails."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.engine import TIMEOUT
from tests.soak import soak_size
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import (
    EvalConfig,
    EvalResult,
    RunStore,
    Sample,
    evaluate,
    exact_match,
    open_store,
    stream,
)
from weakincentives.evals.engine.row_writer import MAX_UNWRITTEN_ROWS

pytestmark = pytest.mark.anyio


def numbers(count: int | None = None) -> Iterator[Sample[int, str]]:
    for number in itertools.islice(itertools.count(), count):
        yield Sample(str(number), number, "ok")


async def right(number: int) -> str:
    await checkpoint()
    return "ok"


# ── results as they finish ──────────────────────────────────────────────────────────────────────


async def test_results_are_yielded_as_they_finish() -> None:
    others_finished, ids = anyio.Event(), []

    async def agent(number: int) -> str:
        if number == 0:
            await others_finished.wait()
        return "ok"

    config = EvalConfig(max_concurrent=2)
    with anyio.fail_after(TIMEOUT):
        async for result in stream(numbers(5), config, exact_match, agent=agent):
            ids.append(result.sample_id)
            if result.sample_id == "4":
                others_finished.set()

    assert ids == ["1", "2", "3", "4", "0"]


async def test_leaving_the_stream_early_cancels_samples_in_flight(store: RunStore) -> None:
    ended: list[int] = []

    async def agent(number: int) -> str:
        try:
            if number > 0:
                await anyio.sleep_forever()
        finally:
            ended.append(number)
        return "ok"

    config = EvalConfig(max_concurrent=3)
    with anyio.fail_after(TIMEOUT):
        async with stream(numbers(), config, exact_match, agent=agent, store=store) as results:
            async for result in results:
                assert result.sample_id == "0"
                break
        assert await anext(results, None) is None

    assert 0 in ended
    assert len(ended) <= 4
    record = store.run("latest")
    assert (record.status, record.total) == ("interrupted", 1)


async def test_an_error_of_the_reader_is_raised_unchanged() -> None:
    async def read() -> None:
        async with stream(numbers(), EvalConfig(), exact_match, agent=right) as results:
            async for _ in results:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()


async def test_an_error_of_the_source_is_raised_after_the_results_before_it() -> None:
    def failing_source() -> Iterator[Sample[int, str]]:
        yield from numbers(3)
        raise OSError("gone")

    ids: list[str] = []

    async def read() -> None:
        async for result in stream(failing_source(), EvalConfig(), exact_match, agent=right):
            ids.append(result.sample_id)  # noqa: PERF401  # the results before the error

    with pytest.raises(OSError, match="gone"):
        await read()
    assert ids == ["0", "1", "2"]


async def test_cancellation_propagates() -> None:
    with anyio.move_on_after(0.05) as scope:
        async with aclosing(_forever()) as results:
            async for _ in results:
                await anyio.sleep(0.01)

    assert scope.cancelled_caught


async def _forever() -> Any:
    async with stream(numbers(), EvalConfig(), exact_match, agent=right) as results:
        async for result in results:
            yield result


async def test_samples_wait_for_a_slow_reader() -> None:
    started: list[int] = []

    async def agent(number: int) -> str:
        started.append(number)
        return "ok"

    config, read = EvalConfig(max_concurrent=4), 0
    async with stream(numbers(), config, exact_match, agent=agent) as results:
        async for _ in results:
            read += 1
            await anyio.sleep(0.002)
            assert len(started) - read <= 2 * 4 + 1
            if read == 20:
                break


# ── stored results ──────────────────────────────────────────────────────────────────────────────


async def test_rows_are_kept_if_the_source_fails(store: RunStore) -> None:
    def failing_source() -> Iterator[Sample[int, str]]:
        yield from numbers(7)
        raise OSError("gone")

    config = EvalConfig(max_concurrent=3)
    with pytest.raises(OSError, match="gone"):
        await evaluate(failing_source(), config, exact_match, agent=right, store=store)

    assert [row.result.sample_id for row in store.rows("latest")] == list("0123456")
    assert store.run("latest").status == "interrupted"


async def test_a_sample_that_cannot_be_stored_is_left_out_and_its_verdict_counts(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    samples = [*numbers(2), Sample("odd one", object(), "ok")]

    await evaluate(iter(samples), EvalConfig(), exact_match, agent=right, store=store)

    assert (store.run("latest").total, store.run("latest").passed) == (3, 3)
    assert "left out what JSON cannot represent of sample 'odd one'" in caplog.text


async def test_an_output_that_cannot_be_stored_is_left_out_and_its_verdict_counts(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    report = await evaluate(
        numbers(3), EvalConfig(), lambda o, e: True, agent=lambda n: object(), store=store
    )

    assert report.pass_rate == 1.0
    assert (store.run("latest").total, store.run("latest").passed) == (3, 3)
    assert "left out what JSON cannot represent of sample '0'" in caplog.text


async def test_an_error_of_the_store_ends_the_run(tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs.db")

    async def agent(number: int) -> str:
        if number == 3:
            store.close()
        return "ok"

    with pytest.raises((StoreError, UsageError), match="closed"):
        await evaluate(numbers(9), EvalConfig(), exact_match, agent=agent, store=store)


async def test_a_run_id_can_be_used_once(store: RunStore) -> None:
    await evaluate(numbers(1), EvalConfig(), exact_match, agent=right, store=store, run_id="mine")

    with pytest.raises(UsageError, match="got 'mine', which is stored - continue it with resume="):
        await evaluate(
            numbers(1), EvalConfig(), exact_match, agent=right, store=store, run_id="mine"
        )
    await evaluate(numbers(1), EvalConfig(), exact_match, agent=right, store=store, run_id="min")
    assert [run.total for run in store.runs()] == [1, 1]


@pytest.mark.parametrize(
    ("config", "status", "note"),
    [
        (EvalConfig(), "complete", ""),
        (EvalConfig(1, stop_on_error=True), "stopped", "stopped by the error of sample '3'"),
        (EvalConfig(max_samples=3), "complete", ""),
    ],
)
async def test_the_store_says_how_a_run_ended(
    store: RunStore, config: EvalConfig, status: str, note: str
) -> None:
    def agent(number: int) -> str:
        if number == 3:
            raise ValueError
        return "ok"

    await evaluate(numbers(6), config, exact_match, agent=agent, store=store)

    record = store.run("latest")
    assert (record.status, record.note) == (status, note)


@pytest.mark.soak
@pytest.mark.no_cover
async def test_memory_does_not_grow_with_the_number_of_samples(store: RunStore) -> None:
    usage: dict[int, tuple[int, int]] = {}
    count = 0
    first_check, second_check = soak_size((2_000, 5_000), (4_000, 10_000))
    config = EvalConfig(max_concurrent=8)
    before = _count_live_results()  # results of other tests
    async with stream(
        numbers(second_check), config, exact_match, agent=right, store=store
    ) as results:
        async for _ in results:
            count += 1
            if count in (first_check, second_check):
                alive = _count_live_results() - before
                store.flush()
                usage[count] = alive, sys.getallocatedblocks()

    assert store.run("latest").total == second_check
    assert usage[second_check][0] <= MAX_UNWRITTEN_ROWS + 100  # unwritten rows, and a few more
    # A result that is kept would have dozens of blocks.
    assert usage[second_check][1] - usage[first_check][1] < 2 * (second_check - first_check)


@pytest.mark.soak
@pytest.mark.no_cover
async def test_memory_does_not_grow_with_an_endless_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def agent(number: int) -> str:
        return "ok"

    known_ids = 5_000  # enough to stand out from other allocations
    monkeypatch.setattr("weakincentives.evals.engine.tasks._MAX_KNOWN_IDS", known_ids)
    # The known ids are rotated once between the checks.
    first_check, second_check = 16 * known_ids // 5, 21 * known_ids // 5
    count, blocks = 0, {}
    config = EvalConfig(max_concurrent=8)
    async with stream(numbers(second_check + 500), config, exact_match, agent=agent) as results:
        async for _ in results:
            count += 1
            if count in (first_check, second_check):
                gc.collect()
                blocks[count] = sys.getallocatedblocks()

    # An id that is kept would take a block or more.
    assert blocks[second_check] - blocks[first_check] < known_ids / 2


@pytest.mark.parametrize(
    ("count", "duplicate"),
    [(10, 9), (10, 0), (199, 0), (199, 198), (199, 120), (340, 260), (950, 0), (950, 900)],
)
async def test_a_duplicate_id_is_refused_in_a_source_of_any_length(
    count: int, duplicate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def source() -> AsyncIterator[Sample[int, str]]:
        for sample in itertools.chain(numbers(count), [Sample(str(duplicate), 0, "ok")], numbers()):
            yield sample

    async def read() -> None:
        nonlocal passed
        async for result in stream(source(), EvalConfig(), exact_match, agent=right):
            passed += result.passed

    monkeypatch.setattr("weakincentives.evals.engine.tasks._MAX_KNOWN_IDS", 100)
    passed = 0
    with pytest.raises(UsageError, match=f"got '{duplicate}' twice - sample {count + 1}$"):
        await read()
    assert passed == count


async def test_ids_with_the_same_hash_are_different() -> None:
    class SameHash(str):
        def __hash__(self) -> int:
            return 1

    samples = [Sample(SameHash(number), number, "ok") for number in range(50)]
    for source in (samples, iter(samples)):
        report = await evaluate(source, EvalConfig(), exact_match, agent=right)
        assert report.passed == 50


def _count_live_results() -> int:
    gc.collect()
    return sum(type(each) is EvalResult for each in gc.get_objects())
