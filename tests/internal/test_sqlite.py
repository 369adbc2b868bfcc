"""SQLite helpers shared by the files of runs, mailboxes and cached replies."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from weakincentives.internal.sqlite import marks_of, write_ahead


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[list[sqlite3.Connection]]:
    """Yield two connections to a file with one table, as if from two processes."""
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as one:
        one.execute("CREATE TABLE things (name)")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            yield [one, other]


def test_write_ahead_waits_for_the_other_process(connections: list[sqlite3.Connection]) -> None:
    one, other = connections
    other.execute("BEGIN IMMEDIATE")
    statements: list[str] = []

    def record_and_unlock(statement: str) -> None:
        statements.append(statement)
        if len(statements) == 2:
            other.execute("COMMIT")

    one.set_trace_callback(record_and_unlock)
    write_ahead(one, 600)
    assert len(statements) >= 2
    assert one.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_write_ahead_fails_after_the_timeout(connections: list[sqlite3.Connection]) -> None:
    one, other = connections
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        write_ahead(one, 0)


def test_the_application_id_and_versions_of_a_file_are_read(
    connections: list[sqlite3.Connection],
) -> None:
    one, other = connections
    one.execute("PRAGMA application_id = 7")
    one.execute("PRAGMA user_version = 3")
    assert marks_of(other) == (7, 3, 1)
