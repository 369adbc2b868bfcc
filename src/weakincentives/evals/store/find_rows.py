"""Find rows of a run: the worst, those of a sample, and what is told of a sample without any."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from heapq import nsmallest

from ...errors import UsageError
from ..model.redacted_ids import redact_id
from ..runs.scope import Scope
from ..runs.table import RunTable
from .run_record import scope_of
from .run_store import RunStore
from .stored_row import RowKey, StoredRow

_MAX_LISTED = 5  # sample ids in an error message


def worst(store: RunStore, run_id: str, limit: int = 5) -> list[StoredRow]:
    """Return rows that count and did not pass: errors first, then failures by ascending value."""
    record = store.run(run_id)
    scope, run_id = scope_of(record), record.manifest.run_id
    return rows_of_keys(store, run_id, worst_keys(store.table(run_id, scope.keys), scope, limit))


def worst_keys(table: RunTable, scope: Scope, limit: int) -> list[RowKey]:
    """Return the keys of rows that count and did not pass, the worst first."""
    places = (at for at in scope.counted(table) if not table.passed[at])
    lowest = nsmallest(limit, places, key=lambda at: (not table.errors[at], table.values[at], at))
    return [table.key(at) for at in lowest]


def rows_of_keys(store: RunStore, run_id: str, keys: Iterable[RowKey]) -> list[StoredRow]:
    """Return the rows of a run with these keys, as far as they are there."""
    rows = (store.row(run_id, *key) for key in keys)
    return [row for row in rows if row is not None]


def rows_of_sample(store: RunStore, run_id: str, sample_id: str) -> list[StoredRow]:
    """Return the rows of one sample, by epoch and experiment; raise if its id is unknown."""
    run_id = store.find_run(run_id)
    if rows := list(store.rows(run_id, samples=[redact_id(sample_id)])):
        return rows
    raise UsageError(
        f"expected the id of a sample of run {run_id}, got {sample_id!r} - "
        f"{_hint(store, run_id, sample_id)}"
    )


def _hint(store: RunStore, run_id: str, sample_id: str) -> str:
    """Return what to say of an id without rows: that it was set aside, or which ids are near."""
    if any(state.key[1] == sample_id for state in store.stored_keys(run_id)):
        return "it is stored, but no longer in the dataset, and is not counted"
    ids = list(dict.fromkeys(store.table(run_id).samples))
    if not ids:
        return "it has no rows"
    near = [name for name in ids if name.startswith(sample_id)][:_MAX_LISTED]
    near = near or difflib.get_close_matches(sample_id, ids[:1000], _MAX_LISTED)
    names = ", ".join(map(repr, near or ids[:_MAX_LISTED]))
    return f"{'near it' if near else 'there are'}: {names}"
