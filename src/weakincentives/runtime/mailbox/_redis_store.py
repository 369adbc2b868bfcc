"""A store that many machines share: sessions, and values of which the first one stays."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any
from uuid import UUID

from ...errors import SnapshotError, StoreError, UsageError, shown
from ...secrets import scrub_bytes
from ..session import Session, SessionSnapshot, SessionView
from ._redis import seconds_of
from ._redis_client import check_client, translated
from ._redis_scripts import Script

__all__ = ["RedisStore"]

_WEEK = timedelta(days=7)

# Repeated, it finds what it wrote itself: a lost answer does no harm.
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
    """Sessions and values on a Redis server, compressed, for `ttl` each; None keeps them.

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
        """Keep a session as it is now, for another process to `load`. The last one stays."""
        if isinstance(session, bytes):
            session = SessionSnapshot.from_bytes(session)
        if isinstance(session, Session):
            session = session.view()
        if not isinstance(session, SessionSnapshot):
            raise UsageError(f"expected a session or its snapshot, got {shown(session)}")
        body = _packed(scrub_bytes(session.to_bytes()))
        with self._translated():
            self._client.set(self._session(session_id), body, ex=self._ttl or None)

    def load(self, session_id: UUID | str) -> SessionSnapshot:
        """The session that was saved under this id."""
        key = self._session(session_id)
        data = self._get(key)
        if data is None:
            raise StoreError(
                f"expected the session {shown(str(session_id))}, found none in {self!r} - "
                "save it first; it may also have outlived its `ttl`"
            )
        try:
            return SessionSnapshot.from_bytes(data)
        except SnapshotError as error:
            raise StoreError(f"expected a session at {key!r}, got other data: {error}") from None

    def find(self, key: str) -> bytes | None:
        """What is kept under a key; None where nothing is."""
        return self._get(self._kept(key))

    def keep(self, key: str, value: bytes) -> bytes:
        """Keep the value where the key is free. What is kept then: this value or an earlier one."""
        name, body = self._kept(key), _packed(value)
        with self._translated():
            winner = _KEEP.run(self._client, (name,), body, self._ttl)
        return value if winner == body else _unpacked(winner, name)

    def _session(self, session_id: UUID | str) -> str:
        return f"{self._prefix}:session:{session_id}"

    def _kept(self, key: str) -> str:
        return f"{self._prefix}:kept:{key}"

    def _get(self, key: str) -> bytes | None:
        with self._translated():
            found = self._client.execute_command("GET", key, NEVER_DECODE=True)
        return None if found is None else _unpacked(found, key)

    def _translated(self) -> Any:
        return translated(repr(self), self._client, StoreError)


def _packed(data: bytes) -> bytes:
    return zlib.compress(data, 1)  # whose checksum tells a changed byte


def _unpacked(stored: bytes, key: str) -> bytes:
    try:
        return zlib.decompress(stored)
    except zlib.error as error:
        raise StoreError(f"expected data as it was stored at {key!r}, got other: {error}") from None
