"""The contract of run stores asks for nothing that only a database has."""

from __future__ import annotations

import pytest

from tests.evals.store.memory_store import Data, MemoryRunStore
from weakincentives.testing import RunStoreContract


class TestMemory(RunStoreContract):
    @pytest.fixture(autouse=True)
    def _stores(self) -> None:
        self.stores: dict[str, Data] = {}

    def make(self, name: str) -> MemoryRunStore:
        return MemoryRunStore(self.stores.setdefault(name, Data()))
