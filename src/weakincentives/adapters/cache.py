"""Answers on disk: the same question is asked once, in this run and in later ones.

Rules of this file:
1. Never a wrong answer: every part of a request is in its key, and a row that is not exactly what
   was written is a miss.
2. Only replies are stored, under a hash. No request, key or header is in the file, and no reply
   that holds a secret: without it, it would be another answer.
3. A reply that was paid for is passed on, also where it cannot be stored.

Put it outermost, so that a hit waits for nothing:
`adapter.around(limiter).around(retrying()).around(cached(cache, provider="openai"))`.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType

import anyio
from anyio.lowlevel import RunVar

from .. import serde
from .._sqlite import marks_of, write_ahead
from ..errors import SerializationError, UsageError, shown
from ..secrets import logger_for, scrub_bytes
from ._model import Model, ModelReply, ModelRequest

__all__ = ["ResponseCache", "cached"]

logger = logger_for(__name__)

_FORMAT = 1  # of keys and of the file: raise it when either changes
_APPLICATION = 0x57494E4B  # "WINK", where SQLite keeps whose file it is
_CREATE = (
    "CREATE TABLE IF NOT EXISTS replies "
    "(key BLOB PRIMARY KEY, reply BLOB NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID"
)


class _Flight:
    """One question that is being asked now, and those who wait for the same answer."""

    __slots__ = ("done", "error", "reply")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.reply: ModelReply | None = None
        self.error: Exception | None = None


_flights: RunVar[dict[tuple[int, bytes], _Flight]] = RunVar("weakincentives.adapters.cache")


class ResponseCache:
    """A file of replies, which several threads and processes may use at the same time.

    A hit is the stored reply with `cached=True` and the latency that was recorded. The same
    request again while the first is under way waits for that answer, and is a hit as well.
    """

    def __init__(self, path: str | PathLike[str], *, busy_timeout: float = 30.0) -> None:
        self.path = Path(path)
        self.hits = self.misses = self.stored = 0
        self._counting, self._lock = threading.Lock(), threading.Lock()
        self._connection = _opened(self.path, busy_timeout)
        self._finish = weakref.finalize(self, self._connection.close)

    def __str__(self) -> str:
        hits = f"{self.hits} hit{'' if self.hits == 1 else 's'}"
        return f"{hits}, {self.misses} miss{'' if self.misses == 1 else 'es'}"

    def __repr__(self) -> str:
        return f"<ResponseCache {str(self.path)!r}: {self}>"

    def __enter__(self) -> ResponseCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; nothing can be asked through this cache any more."""
        with self._lock:
            self._finish()

    def around(self, model: Model, *, provider: str) -> Model:
        """The model with this cache before it.

        `provider` says whose model it is. Where one name means different servers, say which:
        `provider="openai@http://localhost:8000/v1"`.
        """
        if not isinstance(provider, str) or not provider:
            raise UsageError(f"expected a name for `provider`, got {shown(provider)}")

        async def ask(request: ModelRequest) -> ModelReply:
            if not self._finish.alive:
                raise UsageError(f"expected an open cache, got a closed one ({self.path})")
            key = _key(provider, request)
            flights = _flights.get(None)
            if flights is None:
                _flights.set(flights := {})
            mine = id(self), key
            while (flight := flights.get(mine)) is not None:
                await flight.done.wait()
                if flight.reply is not None:
                    self._count("hits")
                    return replace(flight.reply, cached=True)
                if flight.error is not None:
                    raise flight.error
                # Whoever asked was cancelled: the first to notice asks instead.
            flight = flights[mine] = _Flight()
            try:
                flight.reply = await self._fetch(model, request, key)
                return flight.reply
            except Exception as error:
                flight.error = error
                raise
            finally:
                del flights[mine]
                flight.done.set()

        return ask

    async def _fetch(self, model: Model, request: ModelRequest, key: bytes) -> ModelReply:
        known = await anyio.to_thread.run_sync(self._load, key)
        self._count("misses" if known is None else "hits")
        if known is not None:
            return known
        reply = await model(request)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._store, key, reply)
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
            if scrub_bytes(data) is not data:
                return
            if serde.decode(data, ModelReply) != reply:
                raise SerializationError("it would not come back equal")
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
    """The cache as a wrapper: `adapter.around(cached(cache, provider="openai"))`."""
    return partial(cache.around, provider=provider)


def _key(provider: str, request: ModelRequest) -> bytes:
    settings = request.settings
    # 1 and 1.0 (and -0.0 and 0.0) are one temperature, but not one JSON text.
    plain = replace(
        settings,
        temperature=None if settings.temperature is None else float(settings.temperature) + 0.0,
        top_p=None if settings.top_p is None else float(settings.top_p) + 0.0,
    )
    whole = [_FORMAT, provider, replace(request, settings=plain)]
    return hashlib.sha256(serde.encode(whole, sort=True)).digest()


def _digest(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=16).digest()


def _opened(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """The file as a cache of ours, made where there is none."""
    connection: sqlite3.Connection | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
        )
        connection.execute("BEGIN IMMEDIATE")  # one process makes the table, the others see it
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
            "give another path, or move that file away"
        ) from error
    return connection
