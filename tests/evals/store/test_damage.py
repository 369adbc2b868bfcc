"""A bit that changed on disk is reported: one row is lost, and a resumed run runs it again."""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chaos.sim_disk import flip, table_pages, used_byte
from weakincentives.errors import StoreError
from weakincentives.evals import EvalConfig, EvalReport, Sample, evaluate, exact_match, open_store
from weakincentives.evals.store.overview import overview

SAMPLES = [Sample(f"sample {number}", number, "ok") for number in range(30)]
FLIPS = 250
agent_calls: list[int] = []
pytestmark = pytest.mark.anyio


def agent(number: int) -> str:
    agent_calls.append(number)
    if number == 7:
        raise ConnectionError("lost")
    return "ok" if number % 3 else f"no {number}" * number


async def run(path: Path, **options: Any) -> EvalReport[Any]:
    agent_calls.clear()
    with open_store(path) as store:
        return await evaluate(
            SAMPLES, EvalConfig(epochs=2), exact_match, agent=agent, store=store, **options
        )


def edit(path: Path, *statements: str) -> None:
    """Change the file without the triggers of the store."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in (*statements, *(sql for _, sql in triggers)):
        connection.execute(statement)
    connection.close()


def swap_in_index(path: Path, run_id: bytes, *, old: int, new: int) -> None:
    """Change the number of a run in the index of ids, not in the table."""
    data = path.read_bytes()
    (page,) = (at for at in table_pages(path, "runs") if data[(at - 1) * 4096] == 10)
    begin = data.index(run_id + bytes([old]), (page - 1) * 4096)
    with path.open("r+b") as file:
        file.seek(begin + len(run_id))
        file.write(bytes([new]))


def remove_copies(folder: Path) -> None:
    for file in folder.glob("b*"):
        file.unlink()


def read_run(path: Path) -> Any:
    """Return all figures of a run, or "reported" if the store reports damage."""
    with open_store(path) as store:
        summary, listed = overview(store, "r"), store.runs()
        rows = list(store.rows("r"))
        if summary.record.status == "damaged" or any(row.problem for row in rows):
            return "reported"
        return summary, listed, rows


async def test_no_row_is_missing_from_a_report_after_a_bit_flipped(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    whole, path, random = (tmp_path / "a").read_bytes(), tmp_path / "b", Random(11)
    pages, counted = table_pages(tmp_path / "a", "rows"), set()
    for _ in range(FLIPS):
        path.write_bytes(whole)
        flip(path, used_byte(path, random.choice(pages), random), random)
        with suppress(StoreError), open_store(path) as store:
            rows, table = list(store.rows("r")), store.table("r")
            counted |= {len(rows), len(table), len(store.report("r"))}
            if any(row.problem for row in rows):
                assert table.unreadable or store.unreadable("r")
        remove_copies(tmp_path)
    assert counted == {2 * len(SAMPLES)}


@pytest.mark.slow
async def test_a_flipped_bit_never_changes_figures_unnoticed(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    whole, expected = (tmp_path / "a").read_bytes(), read_run(tmp_path / "a")
    random, noticed, same = Random(7), 0, 0
    for _ in range(FLIPS):
        offset, bit = random.randrange(len(whole)), 1 << random.randrange(8)
        path = tmp_path / "b"
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ bit]) + whole[offset + 1 :])
        try:
            figures = read_run(path)
        except StoreError:  # no other exception
            figures = "reported"
        assert figures in ("reported", expected), (offset, bit)
        noticed, same = noticed + (figures == "reported"), same + (figures == expected)
        remove_copies(tmp_path)
    assert noticed > FLIPS / 10
    assert same > 0  # bits in free pages, or that nothing reads


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


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_row_is_an_error_and_runs_again_on_resume(
    tmp_path: Path, damage: str
) -> None:
    first = await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", damage)

    with open_store(tmp_path / "a") as store:
        summary = overview(store, "r")
    assert (summary.record.status, summary.record.total, summary.record.damaged) == (
        "damaged",
        60,
        1,
    )
    assert "the file is damaged: 1 of 60 rows cannot be read - keep a copy" in str(summary)
    assert {**summary.figures.errors} == {"agent": 2, "infrastructure": 1}

    resumed = await run(tmp_path / "a", resume="r")
    assert agent_calls == [4]
    assert [r.passed for r in resumed.results] == [r.passed for r in first.results]
    with open_store(tmp_path / "a") as store:
        summary = overview(store, "r")
        assert (summary.record.status, summary.record.total, summary.record.note) == (
            "complete",
            60,
            "",
        )
        assert store.report("r") == resumed


async def test_a_row_with_a_damaged_body_runs_again(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(
        tmp_path / "a",
        "UPDATE bodies SET result = CAST(result || 'x' AS BLOB) WHERE id = "
        "(SELECT body FROM rows WHERE position = 9 AND epoch = 2)",
    )
    notes: list[str] = []

    report = await run(tmp_path / "a", resume="r", on_note=notes.append)

    assert (agent_calls, report.total) == ([9], 60)
    assert "1 stored row cannot be read: run again" in notes


async def test_a_table_counts_the_rows_whose_metadata_cannot_be_read(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", "UPDATE bodies SET result = CAST(result || 'x' AS BLOB) WHERE id = 9")

    with open_store(tmp_path / "a") as store:
        assert store.table("r", ["topic"]).unreadable == 1
        assert store.table("r", verdicts=True).unreadable == 1


async def test_a_damaged_index_hides_no_row_of_a_sample(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(
        tmp_path / "a",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = sql || ' WHERE position <> 4' WHERE name = "
        "'one_row_per_key'",
        "PRAGMA writable_schema = RESET",
        "REINDEX one_row_per_key",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, ' WHERE position <> 4', '')",
    )

    with open_store(tmp_path / "a") as store:
        assert len(list(store.rows("r", samples=["sample 4"]))) == 2
        assert store.row("r", "baseline", "sample 4", 2) is not None
        assert store.row("r", "baseline", "sample 4", 3) is None


async def test_a_damaged_index_never_leads_to_another_run(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    await run(tmp_path / "a", run_id="other")
    swap_in_index(tmp_path / "a", b"other", old=2, new=1)

    with open_store(tmp_path / "a") as store:
        for read in (store.table, store.keys, lambda name: list(store.rows(name))):
            with pytest.raises(StoreError, match=r"'other'.*its id is missing in the index"):
                read("other")


async def test_a_row_with_the_body_of_another_row_is_detected(tmp_path: Path) -> None:
    before = (await run(tmp_path / "a", run_id="r")).figures
    other = "(SELECT body FROM rows WHERE position = 5 AND epoch = 1)"
    edit(tmp_path / "a", f"UPDATE rows SET body = {other} WHERE position = 4 AND epoch = 1")

    with open_store(tmp_path / "a") as store:
        (problem,) = (row.problem for row in store.rows("r") if row.problem)
        assert store.report("r").figures == before
    assert problem == "other values than their checksum says"


async def test_missing_rows_are_reported_and_run_again(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", "DELETE FROM rows WHERE position >= 28")

    with open_store(tmp_path / "a") as store:
        (record,) = store.runs()
    assert (record.status, record.total, record.damaged) == ("damaged", 56, 4)
    assert record.note.startswith("the file is damaged: 4 of 60 rows cannot be read")
    assert (await run(tmp_path / "a", resume="r")).total == 60
    assert sorted(agent_calls) == [28, 28, 29, 29]
    with open_store(tmp_path / "a") as store:
        assert store.run("r").status == "complete"


@pytest.mark.parametrize(
    "change", ["finished = 1 << 62", "status = 'complfte'", "finished = finished + 4096"]
)
async def test_a_damaged_run_record_is_reported(tmp_path: Path, change: str) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", f"UPDATE runs SET {change}")

    with (
        open_store(tmp_path / "a") as store,
        pytest.raises(StoreError, match="expected the run 'r' as it was written"),
    ):
        store.runs()


async def test_a_run_that_is_missing_in_the_index_is_reported(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="rrrrrrrrrrrrrrrr")
    whole = (tmp_path / "a").read_bytes()
    name, other = b"rrrrrrrrrrrrrrrr", b"rrrrrrrrrrrrrrrs"
    offsets = [m.start() for m in re.finditer(name, whole)]

    reported = 0
    for offset in offsets:
        (tmp_path / "b").write_bytes(whole[:offset] + other + whole[offset + len(name) :])
        with open_store(tmp_path / "b") as store:
            try:
                store.run("rrrrrrrrrrrrrrrr")
            except StoreError as error:
                reported += "its id is missing in the index" in str(error)
        remove_copies(tmp_path)
    assert reported == 1


async def test_an_impossible_time_is_reported_in_a_run_without_a_checksum(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")
    edit(tmp_path / "a", "UPDATE runs SET finished = 1 << 62, checksum = NULL")

    with (
        open_store(tmp_path / "a") as store,
        pytest.raises(StoreError, match="expected the run 'r' as it was written"),
    ):
        store.run("r")


async def test_a_row_that_was_set_aside_replaces_a_damaged_one(tmp_path: Path) -> None:
    samples = SAMPLES[:2]
    other = [samples[0], Sample(samples[1].id, 1, "other")]
    for dataset in (samples, other):
        with open_store(tmp_path / "a") as store:
            option = {"resume": "r"} if store.runs() else {"run_id": "r"}
            await evaluate(dataset, EvalConfig(), exact_match, agent=agent, store=store, **option)
    edit(tmp_path / "a", "UPDATE rows SET latency_ms = latency_ms + 64 WHERE run > 0")

    agent_calls.clear()
    with open_store(tmp_path / "a") as store:
        report = await evaluate(
            samples, EvalConfig(), exact_match, agent=agent, store=store, resume="r"
        )
        assert (agent_calls, report.total, store.report("r")) == ([0], 2, report)
        assert store.run("r").status == "complete"


async def test_ctrl_c_during_a_checksum_is_not_a_store_error(tmp_path: Path) -> None:
    await run(tmp_path / "a", run_id="r")

    def interrupt(*columns: object) -> bool:
        raise KeyboardInterrupt

    with open_store(tmp_path / "a") as store:
        store._database._connection.create_function("intact", -1, interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.keys("r")
