"""What the files of runs, of mailboxes and of cached replies have in common."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from weakincentives.internal.sqlite import marks_of, write_ahead


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[sqlite3.Connection]]:
    """Two connections to a file with one table, as two processes have them."""
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as one:
        one.execute("CREATE TABLE things (name)")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            yield [one, other]


def test_who_writes_ahead_waits_for_the_other_process(two: list[sqlite3.Connection]) -> None:
    one, other = two
    other.execute("BEGIN IMMEDIATE")
    tries: list[str] = []

    def tried(statement: str) -> None:
        tries.append(statement)
        if len(tries) == 2:
            other.execute("COMMIT")

    one.set_trace_callback(tried)
    write_ahead(one, 600)
    assert len(tries) >= 2
    assert one.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_who_writes_ahead_does_not_wait_for_ever(two: list[sqlite3.Connection]) -> None:
    one, other = two
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        write_ahead(one, 0)


def test_a_file_says_whose_it_is(two: list[sqlite3.Connection]) -> None:
    one, other = two
    one.execute("PRAGMA application_id = 7")
    one.execute("PRAGMA user_version = 3")
    assert marks_of(other) == (7, 3, 1)
