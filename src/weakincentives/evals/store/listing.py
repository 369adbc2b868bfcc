"""List all runs of a store repeatedly, at the cost of those that have changed.

A record counts the rows of its run, which takes time for large runs. `RunStore.states` shows
whether a run has changed since. Its record is read again only then, and while a process may be
running it.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable

from .run_record import RunRecord
from .run_store import RunStore

_MAX_AT_ONCE = 500  # runs in one query


class RunListing:
    """The records of all runs of a store, newest first. Threads may share it."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Hashable, RunRecord]] = {}

    def records(self) -> list[RunRecord]:
        """Return the records as they are now."""
        with self._lock:
            states = self._store.states()
            changed = [
                run_id
                for run_id, state in states.items()
                if run_id not in self._known
                or self._known[run_id][0] != state
                or self._known[run_id][1].status == "running"
            ]
            self._known = {name: known for name, known in self._known.items() if name in states}
            for start in range(0, len(changed), _MAX_AT_ONCE):
                for record in self._store.runs(ids=changed[start : start + _MAX_AT_ONCE]):
                    run_id = record.manifest.run_id
                    self._known[run_id] = states[run_id], record
            return [self._known[run_id][1] for run_id in states if run_id in self._known]
