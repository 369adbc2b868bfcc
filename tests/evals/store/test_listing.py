"""The list of runs reads only runs that have changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.view.runs import attempt, put
from weakincentives.evals import open_store
from weakincentives.evals.store import StoredRow
from weakincentives.evals.store.browse import RowFilter
from weakincentives.evals.store.listing import RunListing
from weakincentives.evals.store.sqlite.sqlite_store import SqliteRunStore


def test_only_runs_that_changed_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(self: Any, limit: Any = None, *, ids: Any = None) -> Any:
        read.extend([] if ids is None else [len(ids)])
        return original(self, limit, ids=ids)

    original = SqliteRunStore.runs
    monkeypatch.setattr(SqliteRunStore, "runs", counted)
    with open_store(tmp_path / "runs.db") as store:
        for number in range(5):
            put(store, f"r{number}", [attempt(n, n > 1) for n in range(4)], minutes=number)
        runs = RunListing(store)
        assert runs.records() == store.runs()
        assert runs.records() == store.runs()
        assert read == [5]
        store.tag("r1", {"a": "b"})
        store.put(StoredRow(result=replace(attempt(9, True), run_id="r2"), position=9))
        store.flush()
        store.delete("r3")
        assert runs.records() == store.runs()
        assert read == [5, 2]


def test_counts_are_updated_when_rows_change(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        put(store, "r", [attempt(n, n > 1) for n in range(6)], status="running")
        browser = store.browser()
        browser.update("r")
        failed = RowFilter(verdict="fail")
        assert browser.rows("r", failed).total == 2
        assert browser.slices("r", "level")["easy"].passed == 2
        store.put(StoredRow(result=replace(attempt(8, False), run_id="r"), position=8))
        store.flush()
        assert browser.rows("r", failed).total == 3
        assert browser.update("r") == (7, 7)
        assert browser.facets("r").verdicts == {"fail": 3, "pass": 4}
        assert browser.columns("r") == (("exact", "brief"), False)
        browser.close()


@pytest.mark.parametrize("order", ["position", "latency", "verdict", "value", "criterion:exact"])
@pytest.mark.parametrize("descending", [False, True])
def test_the_offset_of_a_row_is_its_index_in_the_table(
    tmp_path: Path, order: str, descending: bool
) -> None:
    with open_store(tmp_path / "runs.db") as store:
        put(store, "r", [attempt(n % 4, n % 3 > 0, epoch=n // 4 + 1) for n in range(12)])
        browser = store.browser()
        rows = browser.rows("r", order=order, descending=descending).rows
        offsets = [
            browser.offset_of(
                "r", (row.experiment, row.sample, row.epoch), order=order, descending=descending
            )
            for row in rows
        ]
        assert offsets == [*range(12)]
        browser.close()
