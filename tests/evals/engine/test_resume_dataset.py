"""A resumed run counts the samples of the current dataset; rows of others are kept aside."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.faulty_sqlite import failing_statement
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    EvalSuite,
    RunStore,
    Sample,
    evaluate,
    exact_match,
    open_store,
)
from weakincentives.evals.reporting.export import write_export
from weakincentives.evals.store.find_rows import rows_of_sample, worst
from weakincentives.evals.store.overview import overview

SAMPLES = [Sample(str(n), n, "ok") for n in range(6)]
pytestmark = pytest.mark.anyio
calls: list[int] = []


def agent(number: int) -> str:
    calls.append(number)
    if number == 4:
        raise ConnectionError("lost")
    return "ok" if number % 2 == 0 else "no"


@pytest.fixture(autouse=True)
def _clear_calls() -> None:
    calls.clear()


def pick(*numbers: int) -> list[Sample[int, str]]:
    return [SAMPLES[number] for number in numbers]


async def run(store: RunStore, samples: Any, **options: Any) -> EvalReport[Any]:
    """Run, and check that every reader of the store agrees with the report."""
    names = "resume", "retry_errors", "on_note", "run_id"
    run_options = {name: options.pop(name) for name in names if name in options}
    report = await evaluate(
        samples,
        EvalConfig(**{"max_concurrent": 1, **options}),
        exact_match,
        agent=agent,
        store=store,
        **run_options,
    )
    record, summary = store.run(report.run_id), overview(store, report.run_id)
    assert store.report(report.run_id) == report
    assert (record.total, record.passed, record.errors) == (
        report.total, report.passed, report.errors,
    )  # fmt: skip
    assert summary.record == record
    assert {row.result.sample_id for row in worst(store, report.run_id, 99)} <= set(ids(report))
    return report


async def resume(store: RunStore, samples: Any, **options: Any) -> EvalReport[Any]:
    calls.clear()
    return await run(store, samples, resume="latest", **options)


def ids(report: EvalReport[Any]) -> str:
    return "".join(result.sample_id for result in report.results)


KINDS: list[Any] = [list, tuple, Dataset, iter]


@pytest.mark.parametrize("kind", KINDS)
async def test_removed_samples_are_not_counted_and_a_note_says_so(
    store: RunStore, kind: Any
) -> None:
    await run(store, kind(SAMPLES))
    notes: list[str] = []

    report = await resume(store, kind(pick(0, 2)), on_note=notes.append)

    assert (ids(report), report.passed, calls) == ("02", 2, [])
    line = "4 stored samples are no longer in the dataset and are not counted"
    assert line in notes
    assert line in str(overview(store, "latest"))
    assert store.run("latest").not_counted == 4
    with pytest.raises(UsageError, match="it is stored, but no longer in the dataset"):
        rows_of_sample(store, "latest", "4")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_sample_that_is_added_back_counts_again(store: RunStore, kind: Any) -> None:
    first = await run(store, kind(SAMPLES))
    await resume(store, kind(pick(1, 0)))
    assert calls == []

    report = await resume(store, kind(SAMPLES))

    assert (report, calls) == (first, [])
    assert store.run("latest").not_counted == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_report_and_exports_follow_a_changed_order(
    store: RunStore, kind: Any, tmp_path: Path
) -> None:
    await run(store, kind(pick(0, 1, 2, 3)))

    report = await resume(store, kind(pick(3, 5, 0, 2)))

    assert (ids(report), calls) == ("3502", [5])
    write_export(store, "latest", tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()[1:]
    assert [line.split(",")[lines[0].split(",").index("3")] for line in lines] == list("3502")


async def test_epochs_can_be_lowered_and_raised(store: RunStore) -> None:
    first = await run(store, SAMPLES[:2], epochs=3)

    report = await resume(store, SAMPLES[:2], epochs=1)
    assert [(r.sample_id, r.epoch) for r in report.results] == [("0", 1), ("1", 1)]
    assert "4 stored results are no longer in the dataset" in str(overview(store, "latest"))

    report = await resume(store, SAMPLES[:2], epochs=4)
    assert (len(report.results), sorted(calls)) == (8, [0, 1])
    assert tuple(r for r in report.results if r.epoch < 4) == first.results


async def test_the_maximum_number_of_samples_can_be_lowered_and_raised(store: RunStore) -> None:
    await run(store, SAMPLES, max_samples=5)

    assert ids(await resume(store, SAMPLES, max_samples=2)) == "01"
    assert ids(await resume(store, SAMPLES, max_samples=6)) == "012345"
    assert calls == [5]


async def test_rows_of_another_experiment_are_not_counted(store: RunStore) -> None:
    await run(store, SAMPLES[:3], experiment_name="a")

    report = await resume(store, SAMPLES[:3], experiment_name="b")
    assert (report.total, len(calls), store.run("latest").not_counted) == (3, 3, 3)

    assert (await resume(store, SAMPLES[:3], experiment_name="a")).total == 3
    assert calls == []


async def test_a_sample_that_changes_back_gets_its_old_row(store: RunStore) -> None:
    other = [SAMPLES[0], Sample("1", 1, "no"), SAMPLES[2]]
    first = await run(store, SAMPLES[:3])
    changed = await resume(store, other)
    assert (changed.passed, calls, store.run("latest").not_counted) == (3, [1], 0)

    assert await resume(store, SAMPLES[:3]) == first
    assert await resume(store, other) == changed
    assert calls == []
    third = [SAMPLES[0], Sample("1", 1, "?"), SAMPLES[2]]
    assert (await resume(store, third)).passed == 2
    assert calls == [1]


async def test_the_report_of_a_stopped_run_agrees_with_the_store(store: RunStore) -> None:
    await run(store, pick(0, 1, 2, 3))

    report = await resume(store, pick(4, 5, 3, 2), stop_on_error=True, max_concurrent=1)

    assert (ids(report), calls) == ("432", [4])
    report = await resume(store, iter(pick(4, 5, 3, 0)), stop_on_error=True)
    assert store.run("latest").total == report.total


async def test_the_error_of_a_removed_sample_is_not_retried(store: RunStore) -> None:
    await run(store, SAMPLES)
    assert (await resume(store, pick(0, 2), retry_errors=True)).errors == 0
    assert calls == []

    report = await resume(store, SAMPLES, retry_errors=True)
    assert (calls, report.results[4].attempt) == ([4], 2)


def test_a_suite_counts_like_evaluate(store: RunStore) -> None:
    def suite(samples: Iterable[Sample[int, str]]) -> EvalSuite[Any, Any]:
        return EvalSuite(agent, Dataset(samples, "d"), exact_match)

    suite(SAMPLES).run(store=store)
    report = suite(pick(2, 0)).run(store=store, resume="latest")

    assert (ids(report), store.report("latest")) == ("20", report)


async def test_deleting_a_run_deletes_rows_that_were_set_aside(store: RunStore) -> None:
    await run(store, SAMPLES)
    report = await resume(store, SAMPLES[:1])
    store.delete(report.run_id)

    assert store._database.read("SELECT count(*) FROM rows") == [(0,)]
    assert store._database.read("SELECT count(*) FROM bodies") == [(0,)]


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("late", [False, True])
async def test_a_fault_at_any_step_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, late: bool, anyio_backend: str
) -> None:
    failed = 0
    changed = [*pick(3, 5, 0), Sample("2", 2, "changed")]
    with open_store(tmp_path / "first.db") as store:
        await run(store, SAMPLES[:4])
    for step in range(1 + (anyio_backend == "trio"), 500, 2):  # each backend runs every other step
        path = Path(shutil.copy(tmp_path / "first.db", tmp_path / f"{step}.db"))
        with failing_statement(step, late=late) as fault:
            try:
                with open_store(path) as store:
                    await evaluate(
                        changed,
                        EvalConfig(),
                        exact_match,
                        agent=agent,
                        store=store,
                        resume="latest",
                    )
            except StoreError:
                failed += 1
        if not fault.reached:
            break
        with open_store(path) as store:
            assert ids(await resume(store, changed)) == "3502"
            assert ids(await resume(store, SAMPLES[:4])) == "0123"
            assert calls == []
    assert failed > 7
