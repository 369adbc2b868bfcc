"""Two small stores in the same file: sessions by id, and the first outcome of each key."""

from __future__ import annotations

from uuid import UUID

from ...errors import StoreError, short_repr
from ...runtime.session import Session, SessionSnapshot, SessionView
from ...runtime.session.session import snapshot_bytes
from ...secrets import redact_bytes
from .rows import compress, decompress, encode_id
from .schema import Database

# Keys of what is kept for a run: the prefix and its id.
SUBMISSION = "submission:"
QUEUE_STATE = "queue-state:"
OUTCOME = "eval:"  # the prefix of a worker's result, and a hash of its key


class SessionStore:
    """Sessions by id; the last one saved under an id stays."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, session_id: UUID | str, session: Session | SessionView | bytes) -> None:
        """Save a snapshot of a session, for another process to `load`."""
        values = encode_id(str(session_id)), compress(redact_bytes(snapshot_bytes(session)))
        with self._database.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?)", values)

    def load(self, session_id: UUID | str) -> SessionSnapshot:
        """Return the session that was saved under an id."""
        query = "SELECT body FROM sessions WHERE session_id = ?"
        what = f"the session {short_repr(str(session_id))}"
        bodies = self._database.read(query, (encode_id(str(session_id)),))
        if not bodies:
            raise StoreError(f"expected {what}, found none ({self._database.path}) - save it first")
        with self._database.corruption_errors(what):
            return SessionSnapshot.from_bytes(decompress(bodies[0][0]))


class OutcomeStore:
    """Values by key; the first one stored under a key stays."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, key: str) -> bytes | None:
        """Return the value that this or another process stored under a key; None if none did."""
        bodies = self._database.read("SELECT body FROM kept WHERE key = ?", (encode_id(key),))
        if not bodies:
            return None
        with self._database.corruption_errors(f"the value of {short_repr(key)}"):
            return decompress(bodies[0][0])

    def keep(self, key: str, value: bytes) -> bytes:
        """Store a value unless the key has one; return the value that stays."""
        with self._database.transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO kept VALUES (?, ?)", (encode_id(key), compress(value))
            )
            ((body,),) = cursor.execute("SELECT body FROM kept WHERE key = ?", (encode_id(key),))
        with self._database.corruption_errors(f"the value of {short_repr(key)}"):
            return decompress(body)
