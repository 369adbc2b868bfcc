"""A run that changes while it is read is read right, or the reader is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weakincentives.errors import StoreError
from weakincentives.evals.store import RunStore, open_store
from weakincentives.evals.store.overview import overview
from weakincentives.testing.contracts.run_store_setup import MANIFEST, put, row

ROWS = 2_500  # more than a page of columns, and many of long values


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as store:
        store.begin(MANIFEST)
        put(store, *(row(str(number), position=number) for number in range(ROWS)))
        store.finish("run", "complete")
        yield store


def elsewhere(store: RunStore, change: Callable[[RunStore], object]) -> None:
    with open_store(store.location) as other:
        change(other)


def reverse(store: RunStore) -> None:
    """Move all rows, as `resume` does for a dataset in reverse order."""
    states = store.stored_keys("run")
    store.move_rows("run", [(each, ROWS - 1 - each.position) for each in states])


def after_first_page(store: RunStore, change: Callable[[RunStore], object]) -> None:
    """Change the run between the first page and the second one."""
    pages = 0

    def traced(query: str) -> None:
        nonlocal pages
        pages += "ORDER BY position" in query
        if pages == 2:
            pages += 1
            elsewhere(store, change)

    connection: Any = store._database._connection  # type: ignore[attr-defined]
    connection.set_trace_callback(traced)


def test_rows_that_move_while_they_are_read_are_an_error_and_no_damage(store: RunStore) -> None:
    rows = store.rows("run")
    next(rows)
    elsewhere(store, reverse)

    with pytest.raises(StoreError, match=r"resumed with another dataset meanwhile.*read it again"):
        list(rows)
    assert len({each.key for each in store.rows("run")}) == ROWS


def test_a_table_whose_rows_move_is_read_again(store: RunStore) -> None:
    after_first_page(store, reverse)

    assert [*store.table("run").samples] == [str(number) for number in reversed(range(ROWS))]


def test_a_run_that_is_removed_while_it_is_read_does_not_end_early(store: RunStore) -> None:
    rows = store.rows("run")
    next(rows)
    elsewhere(store, lambda other: other.delete("run"))

    with pytest.raises(StoreError, match="it was removed meanwhile"):
        list(rows)


def test_rows_that_are_put_meanwhile_are_no_damage(store: RunStore) -> None:
    rows = store.rows("run")
    next(rows)
    elsewhere(store, lambda other: put(other, row("new", position=ROWS)))

    assert len(list(rows)) == ROWS  # the first one was read above


def test_rows_that_are_set_aside_between_record_and_table_are_no_damage(store: RunStore) -> None:
    def shorten(other: RunStore) -> None:
        (last,) = (each for each in other.stored_keys("run") if each.position == ROWS - 1)
        other.move_rows("run", [(last, None)])

    after_first_page(store, shorten)
    shown = overview(store, "run")

    assert (shown.record.status, shown.figures.total) == ("complete", ROWS - 1)


def test_a_damaged_tally_hides_no_rows_and_no_other_run(store: RunStore) -> None:
    store.begin(replace(MANIFEST, run_id="other"))
    with closing(sqlite3.connect(store.location)) as file, file:
        file.execute("UPDATE tallies SET count = count - 64 WHERE run = 1")

    listed = {each.manifest.run_id: each.status for each in store.runs()}
    assert listed == {"run": "damaged", "other": "running"}
    assert len(list(store.rows("run"))) == len(store.table("run")) == ROWS
