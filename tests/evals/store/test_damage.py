"""A bit that changed on disk is told: it costs a row, which a resumed run runs again."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest

from weakincentives.errors import StoreError
from weakincentives.evals import EvalConfig, EvalReport, RunStore, Sample, evaluate, exact_match
from weakincentives.evals.store.overview import overview

SAMPLES = [Sample(f"sample {number}", number, "ok") for number in range(30)]
FLIPS = 250
asked: list[int] = []
pytestmark = pytest.mark.anyio


def agent(number: int) -> str:
    asked.append(number)
    if number == 7:
        raise ConnectionError("lost")
    return "ok" if number % 3 else f"no {number}" * number


async def run(path: Path, **options: Any) -> EvalReport[Any]:
    asked.clear()
    with RunStore(path) as store:
        return await evaluate(
            SAMPLES, EvalConfig(epochs=2), exact_match, agent=agent, store=store, **options
        )


def edit(path: Path, *statements: str) -> None:
    """Change the file behind the back of the store: no trigger sees it."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in (*statements, *(sql for _, sql in triggers)):
        connection.execute(statement)
    connection.close()


def remove(folder: Path) -> None:
    for left in folder.glob("b*"):
        left.unlink()


def figures(path: Path) -> Any:
    """All that a run comes to, or "told" where the store says that it is damaged."""
    with RunStore(path) as store:
        found, listed = overview(store, "r"), store.runs()
        rows = list(store.rows("r"))
        if found.record.status == "damaged" or any(row.problem for row in rows):
            return "told"
        return found, listed, rows


async def test_a_flipped_bit_never_gives_other_figures_without_a_word(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    whole, expected = (tmp_path / "a").read_bytes(), figures(tmp_path / "a")
    random, noticed, same = Random(7), 0, 0
    for _ in range(FLIPS):
        place, bit = random.randrange(len(whole)), 1 << random.randrange(8)
        path = tmp_path / "b"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        try:
            found = figures(path)
        except StoreError:  # and nothing else
            found = "told"
        assert found in ("told", expected), (place, bit)
        noticed, same = noticed + (found == "told"), same + (found == expected)
        remove(tmp_path)
    assert noticed > FLIPS / 10
    assert same > 0  # what is free, or not read


DAMAGE = {
    "a verdict": "UPDATE rows SET passed = 1 - passed WHERE position = 4 AND epoch = 1",
    "a latency": "UPDATE rows SET latency_ms = latency_ms + 64 WHERE position = 4 AND epoch = 1",
    "an id": "UPDATE rows SET sample = CAST('sample 99' AS BLOB) WHERE position = 4 AND epoch = 1",
    "an id that became a text": "UPDATE rows SET sample = CAST(sample AS TEXT) "
    "WHERE position = 4 AND epoch = 1",
    "a value of another type": "UPDATE rows SET tokens = 'x' WHERE position = 4 AND epoch = 1",
    "the name of a criterion": "UPDATE rows SET scores = replace(CAST(scores AS TEXT), 'e', 'f') "
    "WHERE position = 4 AND epoch = 1",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_row_is_an_error_and_is_run_again(tmp_path: Path, damage: str) -> None:
    first = await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", damage)

    with RunStore(tmp_path / "a") as store:
        found = overview(store, "r")
    assert (found.record.status, found.record.total, found.record.damaged) == ("damaged", 60, 1)
    assert "the file is damaged: 1 of 60 rows cannot be read - keep a copy" in str(found)
    assert {**found.errors} == {"agent": 2, "infrastructure": 1}

    again = await run(tmp_path / "a", resume="r")
    assert asked == [4]
    assert [r.passed for r in again.results] == [r.passed for r in first.results]
    with RunStore(tmp_path / "a") as store:
        found = overview(store, "r")
        assert (found.record.status, found.record.total, found.record.note) == ("complete", 60, "")
        assert store.report("r") == again


async def test_a_damaged_body_is_run_again(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(
        tmp_path / "a",
        "UPDATE bodies SET result = CAST(result || 'x' AS BLOB) WHERE id = "
        "(SELECT body FROM rows WHERE position = 9 AND epoch = 2)",
    )
    notes: list[str] = []

    report = await run(tmp_path / "a", resume="r", on_note=notes.append)

    assert (asked, report.total) == ([9], 60)
    assert "1 stored row cannot be read: run again" in notes


async def test_the_body_of_another_row_is_noticed(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    other = "(SELECT body FROM rows WHERE position = 5 AND epoch = 1)"
    edit(tmp_path / "a", f"UPDATE rows SET body = {other} WHERE position = 4 AND epoch = 1")

    with RunStore(tmp_path / "a") as store:
        bad = [result for result in store.report("r").results if result.error_source != "agent"]
    (error,) = (result.error for result in bad if result.error)
    assert error.startswith("this row could not be read: other values than their checksum says")


async def test_missing_rows_are_told_and_run_again(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", "DELETE FROM rows WHERE position >= 28")

    with RunStore(tmp_path / "a") as store:
        (record,) = store.runs()
    assert (record.status, record.total, record.damaged) == ("damaged", 56, 4)
    assert record.note.startswith("the file is damaged: 4 of 60 rows cannot be read")
    assert (await run(tmp_path / "a", resume="r")).total == 60
    assert sorted(asked) == [28, 28, 29, 29]
    with RunStore(tmp_path / "a") as store:
        assert store.run("r").status == "complete"


@pytest.mark.parametrize(
    "change", ["finished = 1 << 62", "status = 'complfte'", "finished = finished + 4096"]
)
async def test_a_damaged_run_is_told(tmp_path: Path, change: str) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", f"UPDATE runs SET {change}")

    with (
        RunStore(tmp_path / "a") as store,
        pytest.raises(StoreError, match="expected the run 'r' as it was written"),
    ):
        store.runs()


async def test_a_run_that_is_missing_in_the_index_is_told(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="rrrrrrrrrrrrrrrr")
    whole = (tmp_path / "a").read_bytes()
    name, other = b"rrrrrrrrrrrrrrrr", b"rrrrrrrrrrrrrrrs"
    places = [m.start() for m in re.finditer(name, whole)]

    told = 0
    for place in places:
        (tmp_path / "b").write_bytes(whole[:place] + other + whole[place + len(name) :])
        with RunStore(tmp_path / "b") as store:
            try:
                store.run("rrrrrrrrrrrrrrrr")
            except StoreError as error:
                told += "its id is missing in the index" in str(error)
        remove(tmp_path)
    assert told == 1


async def test_a_time_beyond_all_times_is_told_in_a_run_without_a_checksum(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", "UPDATE runs SET finished = 1 << 62, checksum = NULL")

    with (
        RunStore(tmp_path / "a") as store,
        pytest.raises(StoreError, match="expected the run 'r' as it was written"),
    ):
        store.run("r")


async def test_a_damaged_row_makes_way_for_the_one_that_was_set_aside(tmp_path: Path) -> None:
    samples = SAMPLES[:2]
    other = [samples[0], Sample(samples[1].id, 1, "other")]
    for dataset in (samples, other):
        with RunStore(tmp_path / "a") as store:
            how = {"resume": "r"} if store.runs() else {"run_id": "r"}
            await evaluate(dataset, EvalConfig(), exact_match, agent=agent, store=store, **how)
    edit(tmp_path / "a", "UPDATE rows SET latency_ms = latency_ms + 64 WHERE run > 0")

    asked.clear()
    with RunStore(tmp_path / "a") as store:
        report = await evaluate(
            samples, EvalConfig(), exact_match, agent=agent, store=store, resume="r"
        )
        assert (asked, report.total, store.report("r")) == ([0], 2, report)
        assert store.run("r").status == "complete"


async def test_ctrl_c_in_a_checksum_is_no_error_of_the_store(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")

    def interrupted(*columns: object) -> bool:
        raise KeyboardInterrupt

    with RunStore(tmp_path / "a") as store:
        store._database._connection.create_function("intact", -1, interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.keys("r")
