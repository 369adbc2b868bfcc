"""A response cache on disk: the same request is sent once, in this run and in later ones.

Rules of this file:
1. Never a wrong reply: every part of a request is in its key, and a row that fails its checksum is
   a miss.
2. Only replies are stored, under a hash. No request, key or header is in the file, and no reply
   that contains a secret: redacted, it would be another reply.
3. A reply is returned even if it cannot be stored.

Put it outermost, so that a hit does not wait for limits:
`adapter.around(limiter).around(retrying()).around(cached(cache, provider="openai"))`.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path

import anyio
from anyio.lowlevel import RunVar

from .. import serde
from ..errors import SerializationError, UsageError, short_repr
from ..internal.closing import Closing
from ..internal.sqlite import make_private, marks_of, write_ahead
from ..internal.threads import in_thread
from ..secrets import logger_for, redact_bytes
from .model import Model, ModelReply, ModelRequest

logger = logger_for(__name__)

_FORMAT = 1  # version of keys and file: increase it when either changes
_APPLICATION = 0x57494E4B  # "WINK": SQLite's application id
_CREATE = (
    "CREATE TABLE IF NOT EXISTS replies "
    "(key BLOB PRIMARY KEY, reply BLOB NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID"
)


@dataclass(slots=True, eq=False)
class _InFlight:
    """A request in flight, which equal requests wait for."""

    done: anyio.Event = field(default_factory=anyio.Event)
    reply: ModelReply | None = None
    error: Exception | None = None


_in_flight: RunVar[dict[tuple[int, bytes], _InFlight]] = RunVar("weakincentives.adapters.cache")


class ResponseCache(Closing):
    """A file of replies, which several threads and processes may use at the same time.

    A hit is the stored reply with `cached=True` and its recorded latency. An equal request while
    the first is in flight waits for its reply, and counts as a hit.
    """

    def __init__(self, path: str | PathLike[str], *, busy_timeout: float = 30.0) -> None:
        self.path = Path(path)
        self.hits = self.misses = self.stored = 0
        self._counting, self._lock = threading.Lock(), threading.Lock()
        self._connection = _open(self.path, busy_timeout)
        self._finish = weakref.finalize(self, self._connection.close)

    def __str__(self) -> str:
        hits = f"{self.hits} hit{'' if self.hits == 1 else 's'}"
        return f"{hits}, {self.misses} miss{'' if self.misses == 1 else 'es'}"

    def __repr__(self) -> str:
        return f"<ResponseCache {str(self.path)!r}: {self}>"

    def close(self) -> None:
        """Close the file; the cache cannot be used any more."""
        with self._lock:
            self._finish()

    def around(self, model: Model, *, provider: str) -> Model:
        """Return the model with this cache in front of it.

        `provider` is part of the key. If one name stands for several servers, include the address:
        `provider="openai@http://localhost:8000/v1"`.
        """
        if not isinstance(provider, str) or not provider:
            raise UsageError(f"expected a name for `provider`, got {short_repr(provider)}")

        async def ask(request: ModelRequest) -> ModelReply:
            if not self._finish.alive:
                raise UsageError(f"expected an open cache, got a closed one ({self.path})")
            key = _key(provider, request)
            in_flight = _in_flight.get(None)
            if in_flight is None:
                _in_flight.set(in_flight := {})
            mine = id(self), key
            while (call := in_flight.get(mine)) is not None:
                await call.done.wait()
                if call.reply is not None:
                    self._count("hits")
                    return replace(call.reply, cached=True)
                if call.error is not None:
                    raise call.error
                # The first caller was cancelled; the first waiter to notice takes over.
            call = in_flight[mine] = _InFlight()
            try:
                call.reply = await self._fetch(model, request, key)
                return call.reply
            except Exception as error:
                call.error = error
                raise
            finally:
                del in_flight[mine]
                call.done.set()

        return ask

    async def _fetch(self, model: Model, request: ModelRequest, key: bytes) -> ModelReply:
        stored = await in_thread(self._load, key, abandon=False)
        self._count("misses" if stored is None else "hits")
        if stored is not None:
            return stored
        reply = await model(request)
        with anyio.CancelScope(shield=True):
            await in_thread(self._store, key, reply, abandon=False)
        return reply

    def _load(self, key: bytes) -> ModelReply | None:
        query = "SELECT reply, digest FROM replies WHERE key = ?"
        try:
            with self._lock:
                row = self._connection.execute(query, (key,)).fetchone()
            if row is None:
                return None
            data, digest = row
            if digest != _digest(key, data):
                raise SerializationError("the row is not what was written")
            return replace(serde.decode(data, ModelReply), cached=True)
        except (sqlite3.Error, SerializationError, TypeError) as error:
            logger.warning("cannot read a reply in %s, asking again: %s", self.path, error)
            return None

    def _store(self, key: bytes, reply: ModelReply) -> None:
        try:
            data = serde.encode(reply)
            if redact_bytes(data) is not data:
                return
            if serde.decode(data, ModelReply) != reply:
                raise SerializationError("it would not be read back equal")
            with self._lock:
                self._connection.execute(
                    "INSERT OR REPLACE INTO replies VALUES (?, ?, ?)",
                    (key, data, _digest(key, data)),
                )
        except (sqlite3.Error, SerializationError) as error:
            logger.warning("cannot store a reply in %s: %s", self.path, error)
        else:
            self._count("stored")

    def _count(self, name: str) -> None:
        with self._counting:
            setattr(self, name, getattr(self, name) + 1)


def cached(cache: ResponseCache, *, provider: str) -> Callable[[Model], Model]:
    """Return the cache as a wrapper: `adapter.around(cached(cache, provider="openai"))`."""
    return partial(cache.around, provider=provider)


def _key(provider: str, request: ModelRequest) -> bytes:
    settings = request.settings
    # 1 and 1.0 (and -0.0 and 0.0) are equal temperatures, but different JSON.
    plain = replace(
        settings,
        temperature=None if settings.temperature is None else float(settings.temperature) + 0.0,
        top_p=None if settings.top_p is None else float(settings.top_p) + 0.0,
    )
    whole = [_FORMAT, provider, replace(request, settings=plain)]
    return hashlib.sha256(serde.encode(whole, sort=True)).digest()


def _digest(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=16).digest()


def _open(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Open the file, or create it; refuse any other database."""
    connection: sqlite3.Connection | None = None
    try:
        make_private(path)
        connection = sqlite3.connect(
            path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
        )
        connection.execute("BEGIN IMMEDIATE")  # only one process creates the table
        owner, version, tables = marks_of(connection)
        if tables and (owner, version) != (_APPLICATION, _FORMAT):
            raise sqlite3.DatabaseError("it is a database of something else, or of another version")
        connection.execute(_CREATE)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")
        write_ahead(connection, busy_timeout)
        connection.execute("PRAGMA synchronous = NORMAL")
    except (sqlite3.Error, OSError) as error:
        if connection is not None:
            connection.close()
        raise UsageError(
            f"expected a file for cached replies, got: {error} ({path}) - "
            "pass another path, or move that file"
        ) from error
    return connection
