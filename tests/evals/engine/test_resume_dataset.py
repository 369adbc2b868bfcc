"""A resumed run counts the dataset that is there: what was removed is kept, and left out."""

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
)
from weakincentives.evals.reporting.export import write_export
from weakincentives.evals.store.overview import overview, rows_of_sample, worst

SAMPLES = [Sample(str(n), n, "ok") for n in range(6)]
pytestmark = pytest.mark.anyio
asked: list[int] = []


def agent(number: int) -> str:
    asked.append(number)
    if number == 4:
        raise ConnectionError("lost")
    return "ok" if number % 2 == 0 else "no"


@pytest.fixture(autouse=True)
def _nobody_was_asked() -> None:
    asked.clear()


def pick(*numbers: int) -> list[Sample[int, str]]:
    return [SAMPLES[number] for number in numbers]


async def run(store: RunStore, samples: Any, **options: Any) -> EvalReport[Any]:
    """Run, and see that every reader of the store says what the report says."""
    names = "resume", "retry_errors", "on_note", "run_id"
    chosen = {name: options.pop(name) for name in names if name in options}
    report = await evaluate(
        samples,
        EvalConfig(**{"max_concurrent": 1, **options}),
        exact_match,
        agent=agent,
        store=store,
        **chosen,
    )
    record, found = store.run(report.run_id), overview(store, report.run_id)
    assert store.report(report.run_id) == report
    assert (record.total, record.passed, record.errors) == (
        report.total, report.passed, report.errors,
    )  # fmt: skip
    assert found.record == record
    assert {row.result.sample_id for row in worst(store, report.run_id, 99)} <= set(ids(report))
    return report


async def again(store: RunStore, samples: Any, **options: Any) -> EvalReport[Any]:
    asked.clear()
    return await run(store, samples, resume="latest", **options)


def ids(report: EvalReport[Any]) -> str:
    return "".join(result.sample_id for result in report.results)


KINDS: list[Any] = [list, tuple, Dataset, iter]


@pytest.mark.parametrize("kind", KINDS)
async def test_samples_that_were_removed_are_left_out_and_that_is_said(
    store: RunStore, kind: Any
) -> None:
    await run(store, kind(SAMPLES))
    notes: list[str] = []

    report = await again(store, kind(pick(0, 2)), on_note=notes.append)

    assert (ids(report), report.passed, asked) == ("02", 2, [])
    line = "4 stored samples are no longer in the dataset and are not counted"
    assert line in notes
    assert line in str(overview(store, "latest"))
    assert store.run("latest").not_counted == 4
    with pytest.raises(UsageError, match="it is stored, but no longer in the dataset"):
        rows_of_sample(store, "latest", "4")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_sample_that_is_put_back_counts_again(store: RunStore, kind: Any) -> None:
    first = await run(store, kind(SAMPLES))
    await again(store, kind(pick(1, 0)))
    assert asked == []

    report = await again(store, kind(SAMPLES))

    assert (report, asked) == (first, [])
    assert store.run("latest").not_counted == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_another_order_is_that_of_report_and_exports(
    store: RunStore, kind: Any, tmp_path: Path
) -> None:
    await run(store, kind(pick(0, 1, 2, 3)))

    report = await again(store, kind(pick(3, 5, 0, 2)))

    assert (ids(report), asked) == ("3502", [5])
    write_export(store, "latest", tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()[1:]
    assert [line.split(",")[lines[0].split(",").index("3")] for line in lines] == list("3502")


async def test_fewer_and_more_epochs(store: RunStore) -> None:
    first = await run(store, SAMPLES[:2], epochs=3)

    report = await again(store, SAMPLES[:2], epochs=1)
    assert [(r.sample_id, r.epoch) for r in report.results] == [("0", 1), ("1", 1)]
    assert "4 stored results are no longer in the dataset" in str(overview(store, "latest"))

    report = await again(store, SAMPLES[:2], epochs=4)
    assert (len(report.results), sorted(asked)) == (8, [0, 1])
    assert tuple(r for r in report.results if r.epoch < 4) == first.results


async def test_a_limit_that_is_lowered_and_raised(store: RunStore) -> None:
    await run(store, SAMPLES, max_samples=5)

    assert ids(await again(store, SAMPLES, max_samples=2)) == "01"
    assert ids(await again(store, SAMPLES, max_samples=6)) == "012345"
    assert asked == [5]


async def test_another_experiment_leaves_out_the_rows_of_the_first(store: RunStore) -> None:
    await run(store, SAMPLES[:3], experiment_name="a")

    report = await again(store, SAMPLES[:3], experiment_name="b")
    assert (report.total, len(asked), store.run("latest").not_counted) == (3, 3, 3)

    assert (await again(store, SAMPLES[:3], experiment_name="a")).total == 3
    assert asked == []


async def test_a_sample_that_changed_and_changes_back(store: RunStore) -> None:
    other = [SAMPLES[0], Sample("1", 1, "no"), SAMPLES[2]]
    first = await run(store, SAMPLES[:3])
    changed = await again(store, other)
    assert (changed.passed, asked, store.run("latest").not_counted) == (3, [1], 0)

    assert await again(store, SAMPLES[:3]) == first
    assert await again(store, other) == changed
    assert asked == []
    third = [SAMPLES[0], Sample("1", 1, "?"), SAMPLES[2]]
    assert (await again(store, third)).passed == 2
    assert asked == [1]


async def test_a_run_that_stops_reports_what_the_store_counts(store: RunStore) -> None:
    await run(store, pick(0, 1, 2, 3))

    report = await again(store, pick(4, 5, 3, 2), stop_on_error=True, max_concurrent=1)

    assert (ids(report), asked) == ("432", [4])
    report = await again(store, iter(pick(4, 5, 3, 0)), stop_on_error=True)
    assert store.run("latest").total == report.total


async def test_a_removed_error_is_not_tried_again(store: RunStore) -> None:
    await run(store, SAMPLES)
    assert (await again(store, pick(0, 2), retry_errors=True)).errors == 0
    assert asked == []

    report = await again(store, SAMPLES, retry_errors=True)
    assert (asked, report.results[4].attempt) == ([4], 2)


def test_a_suite_counts_the_same(store: RunStore) -> None:
    def suite(samples: Iterable[Sample[int, str]]) -> EvalSuite[Any, Any]:
        return EvalSuite(agent, Dataset(samples, "d"), exact_match)

    suite(SAMPLES).run(store=store)
    report = suite(pick(2, 0)).run(store=store, resume="latest")

    assert (ids(report), store.report("latest")) == ("20", report)


async def test_deleting_a_run_deletes_what_was_set_aside(store: RunStore) -> None:
    await run(store, SAMPLES)
    report = await again(store, SAMPLES[:1])
    store.delete(report.run_id)

    assert store._database.read("SELECT count(*) FROM rows") == [(0,)]
    assert store._database.read("SELECT count(*) FROM bodies") == [(0,)]


@pytest.mark.no_cover
@pytest.mark.parametrize("late", [False, True])
async def test_a_fault_at_any_step_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, late: bool, anyio_backend: str
) -> None:
    failed = 0
    changed = [*pick(3, 5, 0), Sample("2", 2, "changed")]
    with RunStore(tmp_path / "first.db") as store:
        await run(store, SAMPLES[:4])
    for at in range(1 + (anyio_backend == "trio"), 500, 2):  # each backend has every other step
        path = Path(shutil.copy(tmp_path / "first.db", tmp_path / f"{at}.db"))
        with failing_statement(at, late=late) as fault:
            try:
                with RunStore(path) as store:
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
        with RunStore(path) as store:
            assert ids(await again(store, changed)) == "3502"
            assert ids(await again(store, SAMPLES[:4])) == "0123"
            assert asked == []
    assert failed > 7
