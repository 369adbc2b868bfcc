"""The figures of stored runs. Those of runs that have ended are kept, to list many of them."""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b

from ... import serde
from ...errors import SerializationError, StoreError
from ...internal.version import __version__
from ..runs.figures import Figures, run_figures, slice_figures
from ..runs.scope import Scope
from .records import RunRecord, scope_of
from .rows import compress, decompress
from .schema import Storage
from .tables import run_table


def stored_figures(store: Storage, record: RunRecord, *, confidence: float = 0.95) -> Figures:
    """Return the figures of a stored run, with intervals of this confidence."""
    scope, run_id = scope_of(record, confidence=confidence), record.manifest.run_id
    if record.damaged or record.status == "running":
        return run_figures(run_table(store, run_id, scope.keys), scope)
    run_key = store._run_key(run_id)
    state = _state(store, run_key, scope)
    kept = store._database.read("SELECT state, body FROM figures WHERE run = ?", (run_key,))
    if kept and kept[0][0] == state:
        with suppress(SerializationError, ValueError, TypeError):
            return serde.decode(decompress(kept[0][1]), Figures)
    found = run_figures(run_table(store, run_id, scope.keys), scope)
    if confidence == 0.95 and state == _state(store, run_key, scope):
        with suppress(StoreError), store._database.transaction() as cursor:  # may be read-only
            values = run_key, state, compress(serde.encode(found))
            cursor.execute("INSERT OR REPLACE INTO figures VALUES (?, ?, ?)", values)
    return found


def stored_slices(
    store: Storage, record: RunRecord, key: str, *, confidence: float = 0.95
) -> dict[str, Figures]:
    """Return the figures of each slice of a stored run by a key of the metadata."""
    scope = scope_of(record, confidence=confidence)
    table = run_table(store, record.manifest.run_id, (*scope.keys, key))
    return slice_figures(table, scope, key)


def _state(store: Storage, run_key: int, scope: Scope) -> bytes:
    """Return what differs once the rows, or anything else that the figures depend on, has."""
    rows = store._database.read("SELECT * FROM tallies WHERE run = ?", (run_key,))
    quarantined = sorted(scope.quarantined)
    facts = repr((__version__, rows, quarantined, scope.cluster_by, scope.rule, scope.selection))
    return blake2b(f"{facts} {scope.confidence}".encode(), digest_size=16).digest()
