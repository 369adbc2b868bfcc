"""The file of the run store: damage is detected, foreign files are unchanged, and it stays fast."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.older_stores import write_older_store
from weakincentives.adapters.cache import ResponseCache
from weakincentives.errors import StoreError, UsageError
from weakincentives.evals import EvalResult, Score, Trajectory
from weakincentives.evals.store import open_store
from weakincentives.evals.store.manifest import RunManifest
from weakincentives.evals.store.overview import overview
from weakincentives.evals.store.sqlite.schema import MIGRATIONS
from weakincentives.evals.store.stored_row import StoredRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MANIFEST = RunManifest(run_id="run", created_at=NOW)


def row(index: int, session: bytes | None = None) -> StoredRow:
    trajectory = Trajectory(output=f"answer {index}" * (index % 50))
    result = EvalResult(str(index), Score(index / 100), trajectory=trajectory, run_id="run")
    return StoredRow(result=result, position=index, session=session)


def write_rows(path: Path, count: int) -> list[StoredRow]:
    with open_store(path) as store:
        store.begin(MANIFEST)
        for index in range(count):
            store.put(row(index))
        store.flush()
        return list(store.rows("run"))


# ── damage ──────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_header_is_reported(tmp_path: Path) -> None:
    write_rows(tmp_path / "runs.db", 3)
    with (tmp_path / "runs.db").open("r+b") as file:
        file.write(b"not SQLite")

    with pytest.raises(StoreError, match=r"runs.db.*its header is damaged.*restore a backup"):
        open_store(tmp_path / "runs.db")


def test_a_damaged_page_is_reported(tmp_path: Path) -> None:
    write_rows(tmp_path / "runs.db", 200)
    whole = (tmp_path / "runs.db").read_bytes()
    with (tmp_path / "runs.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (len(whole) - 8192))

    with (
        pytest.raises(StoreError, match=r"malformed.*the file is damaged: keep a copy.*recover"),
        open_store(tmp_path / "runs.db") as store,
    ):
        list(store.rows("run"))


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_changed_byte_never_changes_a_score(tmp_path: Path) -> None:
    written = {row.result.sample_id: row.result for row in write_rows(tmp_path / "a", 60)}
    whole = (tmp_path / "a").read_bytes()
    noticed = unaffected = 0
    for offset in range(100, len(whole), 127):
        path = tmp_path / "b"
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x10]) + whole[offset + 1 :])
        try:
            with open_store(path) as store:
                rows = list(store.rows("run"))
        except StoreError:  # no other exception
            noticed += 1
        else:
            good = [row.result for row in rows if not row.problem]
            assert all(result == written[result.sample_id] for result in good), offset
            noticed += len(good) < len(rows)
            unaffected += len(good) == len(rows)
        path.unlink()
    assert noticed > 100
    assert unaffected > 0  # bytes in free pages, or that nothing reads


def test_a_damaged_manifest_is_reported_with_its_run(tmp_path: Path) -> None:
    write_rows(tmp_path / "runs.db", 3)
    edit(tmp_path / "runs.db", "UPDATE runs SET manifest = CAST(manifest || x'00' AS BLOB)")

    with (
        pytest.raises(
            StoreError, match=r"expected the run 'run' as it was written.*damaged: keep a copy"
        ),
        open_store(tmp_path / "runs.db") as store,
    ):
        store.report("run")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE bodies SET result = CAST(result || x'00' AS BLOB) WHERE id = 2",
        "UPDATE bodies SET result = x'' WHERE id = 2",
        "DELETE FROM bodies WHERE id = 2",
    ],
)
def test_a_row_whose_texts_are_damaged_keeps_its_verdict(tmp_path: Path, damage: str) -> None:
    write_rows(tmp_path / "runs.db", 3)
    with open_store(tmp_path / "runs.db") as store:
        before = store.figures("run")
    edit(tmp_path / "runs.db", damage)

    with open_store(tmp_path / "runs.db") as store:
        first, second, third = store.rows("run")
        report = store.report("run")
        assert store.figures("run") == report.figures == before

    assert (first.problem, third.problem) == ("", "")
    assert second.problem in second.result.score.reason
    assert (second.result.sample_id, second.result.error) == ("1", None)


def test_a_row_whose_columns_are_damaged_is_an_error_and_the_only_one(tmp_path: Path) -> None:
    write_rows(tmp_path / "runs.db", 3)
    edit(tmp_path / "runs.db", "UPDATE rows SET value = value + 1 WHERE body = 2")

    with open_store(tmp_path / "runs.db") as store:
        first, second, third = store.rows("run")
        report = store.report("run")
        assert store.figures("run") == report.figures

    assert (first.problem, third.problem) == ("", "")
    assert second.problem in str(second.result.error)
    assert (second.result.sample_id, second.result.error_source) == ("1", "infrastructure")
    assert second.result.run_id == "run"
    assert (report.total, report.errors) == (3, 1)


def edit(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


# ── other files ─────────────────────────────────────────────────────────────────────────────────


def test_a_new_store_has_no_runs(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "runs.db")) as store:
        assert repr(store) == f"<SqliteRunStore '{tmp_path / 'runs.db'}'>"
        assert store.runs() == []
        with pytest.raises(UsageError, match="there are no runs"):
            store.run("latest")


def test_a_file_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database\n" * 300)
    edit(tmp_path / "database", "CREATE TABLE t (x)")
    edit(tmp_path / "owned", "PRAGMA application_id = 7")
    ResponseCache(tmp_path / "cache").close()
    (tmp_path / "folder").mkdir()
    before = {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}

    for name in ("text", "database", "owned", "cache", "folder"):
        with pytest.raises(StoreError, match=f"{name}.*give another path"):
            open_store(tmp_path / name)
    assert {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


def test_a_path_below_a_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="check that its folder exists"):
        open_store(tmp_path / "file" / "runs.db")


@pytest.mark.skipif(sys.platform == "win32", reason="users and rights as Unix has them")
def test_a_read_only_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "runs.db", 3)
        (folder / "runs.db").chmod(0o444)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:  # root may write everything
            os.seteuid(65534)
        try:
            with (
                pytest.raises(StoreError, match=r"runs.db\) - it cannot be (written|opened)"),
                open_store(folder / "runs.db") as store,
            ):
                store.begin(MANIFEST)
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


# ── versions ────────────────────────────────────────────────────────────────────────────────────


def test_a_file_of_a_newer_version_is_refused_and_unchanged(tmp_path: Path) -> None:
    write_rows(tmp_path / "runs.db", 3)
    edit(tmp_path / "runs.db", f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = (tmp_path / "runs.db").read_bytes()

    with pytest.raises(StoreError, match=rf"got version {len(MIGRATIONS) + 1}.*update this one"):
        open_store(tmp_path / "runs.db")
    assert (tmp_path / "runs.db").read_bytes() == before


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_a_file_of_an_older_version_is_migrated(tmp_path: Path, version: int) -> None:
    written = write_rows(tmp_path / "new.db", 3)
    write_older_store(tmp_path / "new.db", tmp_path / "old.db", version)

    with open_store(tmp_path / "old.db") as store:
        assert list(store.rows("run")) == written
        assert (store.run("run").status, store.run("run").total) == ("running", 3)
        store.put(row(3))
        store.finish("run", "complete")
        assert (overview(store, "run").record.status, store.run("run").total) == ("complete", 4)
        assert store._database.read("PRAGMA user_version") == [(len(MIGRATIONS),)]
        assert store._database.read("PRAGMA journal_mode") == [(b"wal",)]
        with pytest.raises(StoreError, match="found none"):
            store.load("a session")


# ── size ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_reading_a_run_keeps_few_rows_in_memory(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        store.begin(MANIFEST)
        for index in range(1000):
            store.put(row(index, session=os.urandom(20_000)))
        store.flush()
        tracemalloc.start()
        try:
            read = sum(len(stored.session or b"") for stored in store.rows("run"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert read == 20_000_000
    assert peak < 5_000_000


def test_long_bodies_are_compressed(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        store.begin(MANIFEST)
        store.put(row(1, session=b"x" * 1_000_000))
        store.flush()

        assert next(store.rows("run")).session == b"x" * 1_000_000
    assert (tmp_path / "runs.db").stat().st_size < 200_000


@pytest.mark.slow
def test_a_thousand_runs_and_a_hundred_thousand_rows_open_quickly(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        for index in range(1000):
            created = NOW + timedelta(seconds=index)
            store.begin(RunManifest(run_id=f"run-{index}", created_at=created))
        with store._database.transaction() as cursor:  # the same rows as by `put`, but faster
            for first, last in ((1, 1), (2, 1000)):
                cursor.execute(
                    "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                    "INSERT INTO rows SELECT runs.id, i, 1, x'61', 'sample ' || i, i, 1, "
                    "randomblob(32), randomblob(32), i % 2, 0, NULL, 0.5, 10, 20, 0.25, '{}', "
                    "NULL, NULL, NULL, 0, NULL FROM n, runs WHERE runs.id BETWEEN ? AND ?",
                    (99_999 if first == 1 else 49, first, last),
                )
    took: list[float] = []
    for _ in range(3):
        start = time.process_time()  # does not count time of other processes
        with open_store(tmp_path / "runs.db") as store:
            record, listed = store.run("run-0"), store.runs()
        took.append(time.process_time() - start)

    assert (record.total, record.passed) == (100_000, 50_000)
    assert (len(listed), listed[0].total, listed[-1].total) == (1000, 50, 100_000)
    assert min(took) < 1.0  # it takes about 0.1 s
