"""The contract of run stores asks for nothing that only a database has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evals.store.memory_store import Data, MemoryRunStore
from weakincentives.errors import UsageError
from weakincentives.evals import EvalSuite, Sample
from weakincentives.evals.store import BaseRunStore
from weakincentives.testing import RunStoreContract


class TestMemory(RunStoreContract):
    @pytest.fixture(autouse=True)
    def _stores(self) -> None:
        self.stores: dict[str, Data] = {}

    def make(self, name: str) -> MemoryRunStore:
        return MemoryRunStore(self.stores.setdefault(name, Data()))


def test_a_store_that_lacks_a_method_is_refused_before_it_loses_a_row() -> None:
    class Half(BaseRunStore):
        def close(self) -> None:
            """Nothing is open."""

    with pytest.raises(TypeError, match=r"abstract class Half with abstract methods .*\bput\b"):
        Half()  # type: ignore[abstract]


@pytest.mark.parametrize("store", [False, object()])
def test_what_is_no_store_is_refused(store: Any) -> None:
    suite = EvalSuite(lambda text: text, [Sample("a", "a", "a")], "exact_match")
    with pytest.raises(UsageError, match="expected a run store, its path or None, got"):
        suite.run(store=store)
