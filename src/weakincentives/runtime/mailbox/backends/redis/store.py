"""A store that many machines share: sessions, and values that are written once."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any
from uuid import UUID

from .....errors import SnapshotError, StoreError, short_repr
from .....secrets import redact_bytes
from ....session import Session, SessionSnapshot, SessionView
from ....session.session import snapshot_bytes
from .client import check_client, translated
from .mailbox import seconds_of
from .scripts import Script

_WEEK = timedelta(days=7)

# A retry finds the value that it wrote itself, so a lost response is harmless.
_KEEP = Script.of(
    """
    local here = redis.call('GET', KEYS[1])
    if here then return here end
    if tonumber(ARGV[2]) > 0 then
        redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
    else
        redis.call('SET', KEYS[1], ARGV[1])
    end
    return ARGV[1]
    """
)


class RedisStore:
    """Sessions and values on a Redis server, compressed; they expire after `ttl`, or never.

    store = RedisStore(redis.Redis())
    store.save(session.session_id, session)  # in one process
    store.load(session_id)                   # in another
    """

    def __init__(
        self, client: Any, prefix: str = "wink", ttl: float | timedelta | None = _WEEK
    ) -> None:
        check_client(client)
        self._client = client
        self._prefix = prefix
        self._ttl = seconds_of(ttl)

    def __repr__(self) -> str:
        return f"<RedisStore {self._prefix!r}>"

    def save(self, session_id: UUID | str, session: Session | SessionView | bytes) -> None:
        """Store a session as it is now, for another process to `load`; replace an earlier one."""
        body = _compressed(redact_bytes(snapshot_bytes(session)))
        with self._translated():
            self._client.set(self._session(session_id), body, ex=self._ttl or None)

    def load(self, session_id: UUID | str) -> SessionSnapshot:
        """Return the session that was saved under this id."""
        key = self._session(session_id)
        data = self._get(key)
        if data is None:
            raise StoreError(
                f"expected the session {short_repr(str(session_id))}, found none in {self!r} - "
                "save it first; it may also have expired (`ttl`)"
            )
        try:
            return SessionSnapshot.from_bytes(data)
        except SnapshotError as error:
            raise StoreError(f"expected a session at {key!r}, got other data: {error}") from None

    def find(self, key: str) -> bytes | None:
        """Return the value of a key; None if there is none."""
        return self._get(self._kept(key))

    def keep(self, key: str, value: bytes) -> bytes:
        """Store the value if the key is free; return the stored one, this or an earlier one."""
        name, body = self._kept(key), _compressed(value)
        with self._translated():
            winner = _KEEP.run(self._client, (name,), body, self._ttl)
        return value if winner == body else _decompressed(winner, name)

    def _session(self, session_id: UUID | str) -> str:
        return f"{self._prefix}:session:{session_id}"

    def _kept(self, key: str) -> str:
        return f"{self._prefix}:kept:{key}"

    def _get(self, key: str) -> bytes | None:
        with self._translated():
            stored = self._client.execute_command("GET", key, NEVER_DECODE=True)
        return None if stored is None else _decompressed(stored, key)

    def _translated(self) -> Any:
        return translated(repr(self), self._client, StoreError)


def _compressed(data: bytes) -> bytes:
    return zlib.compress(data, 1)  # with a checksum


def _decompressed(stored: bytes, key: str) -> bytes:
    try:
        return zlib.decompress(stored)
    except zlib.error as error:
        raise StoreError(f"expected data as it was stored at {key!r}, got other: {error}") from None
