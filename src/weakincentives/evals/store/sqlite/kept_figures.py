"""The figures of stored runs. Those of runs that have ended are kept, to list many of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from hashlib import blake2b

from .... import serde
from ....errors import SerializationError, StoreError
from ....internal.version import __version__
from ...runs.figures import Figures
from ...runs.scope import Scope
from .database import Database
from .encoding import compress, decompress


def kept_figures(
    database: Database, run_key: int, scope: Scope, compute: Callable[[], Figures]
) -> Figures:
    """Return the figures of a run that has ended: the kept ones, or what `compute` returns."""
    state = _state(database, run_key, scope)
    kept = database.read("SELECT state, body FROM figures WHERE run = ?", (run_key,))
    if kept and kept[0][0] == state:
        with suppress(SerializationError, ValueError, TypeError):
            return serde.decode(decompress(kept[0][1]), Figures)
    found = compute()
    if scope.confidence == 0.95 and state == _state(database, run_key, scope):
        with suppress(StoreError), database.transaction() as cursor:  # it may be read-only
            values = run_key, state, compress(serde.encode(found))
            cursor.execute("INSERT OR REPLACE INTO figures VALUES (?, ?, ?)", values)
    return found


def _state(database: Database, run_key: int, scope: Scope) -> bytes:
    """Return what differs once the rows, or anything else that the figures depend on, has."""
    rows = database.read("SELECT * FROM tallies WHERE run = ?", (run_key,))
    facts = (getattr(scope, field.name) for field in fields(scope))
    state = [sorted(fact) if isinstance(fact, frozenset) else fact for fact in facts]
    return blake2b(repr((__version__, rows, state)).encode(), digest_size=16).digest()
