"""Find rows of a run: by what came of them, by sample, or by key."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from heapq import nsmallest
from typing import Any

from ...errors import UsageError
from ..model.redacted_ids import redact_id
from .checksums import INTACT
from .reading import ORDER, ROW, read_pages, read_rows, to_row
from .records import scope_of
from .rows import decode_id, encode_id
from .run_store import RunStore, StoredRow
from .tables import run_table

_MAX_LISTED = 5  # sample ids in an error message
# A row whose columns are damaged is an error, whatever they say.
_KINDS = {
    "passed": f"passed AND {INTACT}",
    "failed": f"NOT passed AND NOT error AND {INTACT}",
    "errors": f"(error OR NOT {INTACT})",
}


def rows_where(store: RunStore, run_id: str, *kinds: str) -> Iterator[StoredRow]:
    """Yield the rows of these kinds ("passed", "failed", "errors") in dataset order; or all."""
    where = " OR ".join(_KINDS[kind] for kind in kinds) or "1"
    return read_rows(store._database, store._run_key(run_id, prefix=True), where=where)


def worst(store: RunStore, run_id: str, limit: int = 5) -> list[StoredRow]:
    """Return rows that count and did not pass: errors first, then failures by ascending value."""
    record = store.run(run_id)
    scope, run_id = scope_of(record), record.manifest.run_id
    table = run_table(store, run_id, scope.keys)
    places = (at for at in scope.counted(table) if not table.passed[at])
    lowest = nsmallest(limit, places, key=lambda at: (not table.errors[at], table.values[at], at))
    rows = (row_of_key(store, run_id, *table.key(at)) for at in lowest)
    return [row for row in rows if row is not None]


def rows_of_sample(store: RunStore, run_id: str, sample_id: str) -> list[StoredRow]:
    """Return the rows of one sample, by epoch and experiment; raise if its id is unknown."""
    run_key = store._run_key(run_id, prefix=True)
    rows = _select(store, run_key, "sample = ?", (encode_id(redact_id(sample_id)),), ORDER, -1)
    if rows:
        return rows
    raise UsageError(
        f"expected the id of a sample of run {store.run(run_id).manifest.run_id}, "
        f"got {sample_id!r} - {_hint(store, run_key, sample_id)}"
    )


def row_of_key(
    store: RunStore, run_id: str, experiment: str, sample_id: str, epoch: int
) -> StoredRow | None:
    """Return the row of a key, with the ids as they are stored; None if there is none."""
    if epoch.bit_length() > 63:  # SQLite has no such number
        return None
    key = encode_id(experiment), encode_id(sample_id), epoch
    where = "experiment = ? AND sample = ? AND epoch = ?"
    return next(iter(_select(store, store._run_key(run_id), where, key, ORDER, 1)), None)


def row_keys(store: RunStore, run_id: str) -> set[tuple[str, str, int]]:
    """Return the keys of all rows of a run, also of those that a damaged index does not find."""
    pages = read_pages(store._database, store._run_key(run_id), "passed", bodies=False, size=2000)
    with store._database.corruption_errors(f"the keys of the run {run_id!r}"):
        return {
            (decode_id(experiment), decode_id(sample), epoch)
            for page in pages
            for _, epoch, experiment, sample, _ in page
        }


def _select(
    store: RunStore, run_key: int, where: str, values: tuple[Any, ...], order: str, limit: int
) -> list[StoredRow]:
    # The long values are joined after the limit, so that only those of the result are read.
    query = (
        f"SELECT {ORDER}, {ROW} FROM (SELECT * FROM rows WHERE run = ? AND {where} "
        f"ORDER BY {order} LIMIT {limit}) LEFT JOIN bodies ON bodies.id = body ORDER BY {order}"
    )
    rows = store._database.read(query, (run_key, *values))
    return [to_row(columns, store._database, run_key) for columns in rows]


def _hint(store: RunStore, run_key: int, sample_id: str) -> str:
    """Return what is known about an id that has no row."""
    start = encode_id(sample_id)
    select = "SELECT DISTINCT sample FROM rows WHERE run = ?"

    def ids(condition: str, *values: Any) -> list[str]:
        rows = store._database.read(f"{select} {condition}", values)
        return [decode_id(stored) for (stored,) in rows]

    if ids("AND sample = ?", -run_key, start):
        return "it is stored, but no longer in the dataset, and is not counted"
    between = f"AND sample BETWEEN ? AND ? LIMIT {_MAX_LISTED}"
    near = ids(between, run_key, start, start + b"\xff")
    some = ids("LIMIT 1000", run_key)
    near = near or difflib.get_close_matches(sample_id, some, _MAX_LISTED)
    if not some:
        return "it has no rows"
    names = ", ".join(map(repr, near or some[:_MAX_LISTED]))
    return f"{'near it' if near else 'there are'}: {names}"
