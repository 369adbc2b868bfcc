"""The run store on SQLite keeps the contract of run stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from weakincentives.evals import open_store
from weakincentives.evals.store import RunStore
from weakincentives.testing import RunStoreContract


class TestSqlite(RunStoreContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self, name: str) -> RunStore:
        return open_store(self.folder / f"{name}.db")
