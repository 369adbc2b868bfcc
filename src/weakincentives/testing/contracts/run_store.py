"""What every run store promises: `RunStoreContract`.

class TestMyStore(RunStoreContract):
    def make(self, name: str) -> RunStore:
        return MyStore(f"my://{self.server}/{name}")
"""

from __future__ import annotations

from .run_store_people import PeopleSuite
from .run_store_rows import RowSuite
from .run_store_runs import RunSuite


class RunStoreContract(RowSuite, RunSuite, PeopleSuite):
    """The suites of runs, of rows, and of what is kept beside them; inherit and define `make`."""
