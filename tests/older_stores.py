"""Run stores as an earlier version wrote them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from weakincentives.evals.store.sqlite.checksums import columns_checksum
from weakincentives.evals.store.sqlite.database import APPLICATION
from weakincentives.evals.store.sqlite.schema import MIGRATIONS

__all__ = ["write_older_store"]

_TABLES = (
    *("runs", "rows", "bodies"),
    *("label_draws", "human_labels", "calibrations", "judge_tests", "failure_categories"),
)


def write_older_store(new: Path, path: Path, version: int) -> None:
    """Copy a store to a file of an earlier version."""
    old = sqlite3.connect(path, isolation_level=None)
    old.create_function("run_checksum", -1, columns_checksum)
    for statement in (statement for migration in MIGRATIONS[:version] for statement in migration):
        old.execute(statement)
    old.execute(f"PRAGMA application_id = {APPLICATION}")
    old.execute(f"PRAGMA user_version = {version}")
    old.execute("ATTACH ? AS new", (str(new),))
    for table in _TABLES:
        names = ", ".join(name for _, name, *_ in old.execute(f"PRAGMA main.table_info({table})"))
        if names:
            old.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM new.{table}")
    old.close()
