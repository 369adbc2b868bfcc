"""Sessions by id, and values by key, in the file of a run store."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from uuid import UUID

from ....errors import StoreError, short_repr
from ....runtime.session import Session, SessionSnapshot, SessionView
from ....runtime.session.session import snapshot_bytes
from ....secrets import redact_bytes
from .database import Database
from .encoding import compress, decode_id, decompress, encode_id


class SqliteValues:
    """The methods of a run store for sessions and values."""

    _database: Database

    def save(self, session_id: UUID | str, session: Session | SessionView | bytes) -> None:
        values = encode_id(str(session_id)), compress(redact_bytes(snapshot_bytes(session)))
        with self._database.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?)", values)

    def load(self, session_id: UUID | str) -> SessionSnapshot:
        query = "SELECT body FROM sessions WHERE session_id = ?"
        what = f"the session {short_repr(str(session_id))}"
        bodies = self._database.read(query, (encode_id(str(session_id)),))
        if not bodies:
            raise StoreError(f"expected {what}, found none ({self._database.path}) - save it first")
        with self._database.corruption_errors(what):
            return SessionSnapshot.from_bytes(decompress(bodies[0][0]))

    def find(self, key: str) -> bytes | None:
        bodies = self._database.read("SELECT body FROM kept WHERE key = ?", (encode_id(key),))
        if not bodies:
            return None
        with self._database.corruption_errors(f"the value of {short_repr(key)}"):
            return decompress(bodies[0][0])

    def find_all(self, keys: Collection[str]) -> Mapping[str, bytes]:
        chosen = json.dumps([encode_id(key).hex().upper() for key in keys])
        query = "SELECT key, body FROM kept WHERE hex(key) IN (SELECT value FROM json_each(?))"
        found = {}
        for key, body in self._database.read(query, (chosen,)):
            with suppress(ValueError):  # damaged
                found[decode_id(key)] = decompress(body)
        return found

    def keep(self, key: str, value: bytes) -> bytes:
        with self._database.transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO kept VALUES (?, ?)", (encode_id(key), compress(value))
            )
            ((body,),) = cursor.execute("SELECT body FROM kept WHERE key = ?", (encode_id(key),))
        with self._database.corruption_errors(f"the value of {short_repr(key)}"):
            return decompress(body)

    def replace(self, key: str, value: bytes) -> None:
        with self._database.transaction() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO kept VALUES (?, ?)", (encode_id(key), compress(value))
            )
