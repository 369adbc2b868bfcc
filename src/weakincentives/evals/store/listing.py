"""List all runs of a store repeatedly, at the cost of those that have changed.

A record counts the rows of its run (`records.py`), which takes time for large runs. The sums that
the store keeps of each run (`tallies`) show whether any row has changed since. Its record is read
again only then, and while a process may be running it.
"""

from __future__ import annotations

import threading
from hashlib import blake2b
from typing import Any

from .records import RunRecord, read_records
from .run_store import RunStore

_STATES = """
SELECT id, status, note, stop_reason, finished, manifest, count, passed, errors, figures, checksums
FROM runs LEFT JOIN tallies ON tallies.run = id ORDER BY created DESC, id DESC
"""
_MAX_AT_ONCE = 500  # runs in one query


def row_state(store: RunStore, run_id: str) -> tuple[Any, ...]:
    """Return a value that differs once a row of the run has changed; it is cheap."""
    query = "SELECT count, passed, errors, figures, checksums FROM tallies WHERE run = ?"
    return tuple(store._database.read(query, (store._run_key(run_id),)))


class RunListing:
    """The records of all runs of a store, newest first. Threads may share it."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[int, tuple[Any, RunRecord]] = {}

    def records(self) -> list[RunRecord]:
        """Return the records as they are now."""
        with self._lock:
            states = {row[0]: _state(row) for row in self._store._database.read(_STATES)}
            changed = [
                run_key
                for run_key, state in states.items()
                if run_key not in self._known
                or self._known[run_key][0] != state
                or self._known[run_key][1].status == "running"
            ]
            self._known = {key: known for key, known in self._known.items() if key in states}
            for start in range(0, len(changed), _MAX_AT_ONCE):
                self._read(changed[start : start + _MAX_AT_ONCE], states)
            return [self._known[run_key][1] for run_key in states if run_key in self._known]

    def _read(self, run_keys: list[int], states: dict[int, Any]) -> None:
        marks = ", ".join("?" * len(run_keys))
        ids = f"SELECT id FROM runs WHERE id IN ({marks}) ORDER BY created DESC, id DESC"
        found = self._store._database.read(ids, run_keys)
        records = read_records(self._store._database, f"WHERE id IN ({marks})", run_keys)
        if len(found) != len(records):  # a run was deleted meanwhile: the next call sees it
            return
        for (run_key,), record in zip(found, records, strict=True):
            self._known[run_key] = states[run_key], record


def _state(row: Any) -> Any:
    columns = row[1:]
    manifest = columns[4]
    digest = blake2b(manifest, digest_size=8).digest() if isinstance(manifest, bytes) else manifest
    return (*columns[:4], digest, *columns[5:])
