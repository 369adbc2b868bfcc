"""A mailbox on Redis or Valkey, for many processes on many machines.

Every operation is one script on the server (`_redis_scripts.py`), up to 100 messages a call. Each
call has a token by which the server knows a repetition: redis-py repeats what it got no answer to.

Whoever waits for a message waits at a bell, a list in which no message ever is, so that nothing is
lost with a receiver. It asks again at least every 4 seconds, and when the next lease ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Any, TypeVar

from ..._ids import new_uuid
from ...clock import Clock
from ...errors import (
    MailboxConnectionError,
    MailboxFullError,
    MailboxResolutionError,
    UsageError,
    shown,
)
from ._mailbox import QueueMailbox
from ._redis_client import check_client, longest_wait, look_once, translated
from ._redis_scripts import EXTEND, PURGE, PUT, RELEASE, REMOVE, TAKE, Script
from ._resolvers import CompositeResolver, MailboxResolver
from ._types import MAX_VISIBILITY_TIMEOUT, Delivery, Letter

__all__ = ["RedisMailbox", "RedisMailboxFactory", "RedisQueue"]

T = TypeVar("T")

REPLIES_KEPT = 7 * 24 * 3600.0  # seconds for which an answer waits for whoever asked

_PARTS = ("letters", "waiting", "leases", "holders", "bell")
_TEXT = ("utf-8", "surrogateescape")  # an id that somebody else wrote may be any bytes


class RedisQueue:
    """Letters on a Redis server, under keys that begin with `{wink:NAME}`.

    `ttl` lets an unused queue go after so many seconds, as long as all who send to it have one.
    `clock` is for tests: its time counts instead of the server's.
    """

    waits = True
    batch = 100
    uncounts = True

    def __init__(
        self,
        name: str,
        client: Any,
        *,
        ttl: float | timedelta | None = None,
        require_durable: bool = False,
        clock: Clock | None = None,
    ) -> None:
        check_client(client)
        if not isinstance(name, str) or not name or "{" in name or "}" in name:
            raise UsageError(
                f"expected a name without braces for a mailbox on Redis, got {shown(name)}"
            )
        self.name = name
        self.client = client
        self._ttl = seconds_of(ttl)
        self._require_durable = require_durable
        self.clock = clock
        self._prefix = f"{{wink:{name}}}:".encode(*_TEXT)  # braces: one slot of a cluster
        self._keys = tuple(self._prefix + part.encode() for part in _PARTS)
        self._longest_wait = longest_wait(client)
        self._looked = False
        self._waiters: set[bytes] = set()
        self._woken = False

    def put(self, letters: Sequence[Letter], max_size: int | None) -> None:
        if not letters:
            return
        pairs = [(letter.id.encode(*_TEXT), _written(letter)) for letter in letters]
        full = self._run(PUT, _token(), self._ttl, max_size or 0, *chain.from_iterable(pairs))
        if full is not None:
            here, new = full
            raise MailboxFullError(
                f"expected room for {new} more in the mailbox {self.name!r}, "
                f"got {here} of {max_size} - receive some, or raise `max_size`"
            )

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        found, until_next = self._take(count, lease)
        if not found and wait > 0 and self._wait(min(wait, until_next)):
            found, _ = self._take(count, lease)
        return found

    def _take(self, count: int, lease: float) -> tuple[list[Delivery], float]:
        """What is there; and where that is nothing, the seconds until the next lease ends."""
        token = _token()
        longest = _microseconds(MAX_VISIBILITY_TIMEOUT)
        until_next, *rest = self._run(
            TAKE, token, self._ttl, token, count, _microseconds(lease), longest
        )
        each = iter(rest)
        found = [
            _delivery(id.decode(*_TEXT), times, letter, token)
            for id, times, letter in zip(each, each, each, strict=True)
        ]
        return found, until_next / 1e6 if until_next >= 0 else float("inf")

    def _wait(self, seconds: float) -> bool:
        """Wait at the bell; False where `wake` ended it."""
        mine = self._prefix + b"wake:" + _token().encode()
        self._waiters.add(mine)  # before the look at `_woken`: `wake` goes the other way round
        try:
            if self._woken:
                return False
            with self._translated():
                # 0 would be for ever, and a server may not see less than a millisecond
                patience = max(0.001, min(seconds, self._longest_wait))
                rung = self.client.execute_command(
                    "BLPOP", mine, self._keys[-1], f"{patience:.3f}", NEVER_DECODE=True
                )
            return rung is None or bytes(rung[0]) != mine
        finally:
            self._waiters.discard(mine)
            self._woken = False

    def remove(self, handles: Sequence[str]) -> list[bool]:
        return self._by_handle(REMOVE, handles)

    def release(self, handles: Sequence[str], delay: float, *, untried: bool = False) -> list[bool]:
        return self._by_handle(RELEASE, handles, self._ttl, _microseconds(delay), int(untried))

    def extend(self, handles: Sequence[str], seconds: float) -> list[bool]:
        return self._by_handle(EXTEND, handles, _microseconds(seconds))

    def _by_handle(self, script: Script, handles: Sequence[str], *arguments: Any) -> list[bool]:
        if not handles:
            return []
        pairs = []
        for handle in handles:
            holder, _, id = handle.partition(":")
            pairs += [id.encode(*_TEXT), holder.encode(*_TEXT)]
        answer = self._run(script, _token(), *arguments, *pairs)
        return [held == ord("1") for held in answer]

    def count(self) -> int:
        with self._translated():
            return int(self.client.hlen(self._keys[0]))

    def purge(self) -> int:
        return int(self._run(PURGE, _token()))

    def wake(self) -> None:
        self._woken = True
        for waiter in tuple(self._waiters):
            with suppress(MailboxConnectionError), self._translated():  # the wait feels it too
                _WAKE.run(self.client, (waiter,))

    def close(self) -> None:
        """The client is the user's; there is nothing else to let go of."""

    def _run(self, script: Script, token: str, *arguments: Any) -> Any:
        now = "" if self.clock is None else _microseconds(self.clock.now().timestamp())
        call = self._prefix + b"call:" + token.encode()
        with self._translated():
            if not self._looked:
                look_once(self.client, self.name, self._require_durable)
                self._looked = True
            return script.run(self.client, (*self._keys, call), now, *arguments)

    def _translated(self) -> Any:
        return translated(f"the mailbox {self.name!r}", self.client, MailboxConnectionError)


_WAKE = Script.of("redis.call('RPUSH', KEYS[1], 1) redis.call('EXPIRE', KEYS[1], 60)")


def _token() -> str:
    return new_uuid().hex


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def seconds_of(ttl: float | timedelta | None) -> int:
    """A time to live in whole seconds; 0 for ever."""
    if ttl is None:
        return 0
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 1:
        raise UsageError(f"expected at least one second as `ttl`, or None, got {shown(ttl)}")
    return int(seconds)


def _written(letter: Letter) -> bytes:
    address = b"" if letter.reply_to is None else letter.reply_to.encode(*_TEXT)
    return b"%d:%b%b" % (len(address), address, letter.content)


def _delivery(id: str, times: int, letter: bytes, token: str) -> Delivery:
    handle = f"{times}.{token}:{id}"
    try:
        sent, length, rest = letter.split(b":", 2)
        size, enqueued = int(length), int(sent) / 1e6
    except (ValueError, OverflowError):
        size = -1
    if not 0 <= size <= len(letter):  # not as we wrote it: handed on as it is
        return Delivery(id, letter, handle, times, 0.0)
    if size == 0:
        return Delivery(id, rest, handle, times, enqueued)
    return Delivery(id, rest[size:], handle, times, enqueued, rest[:size].decode(*_TEXT))


class RedisMailbox(QueueMailbox[T]):
    """Messages on a Redis or Valkey server, by a client of redis-py: `Redis` or `RedisCluster`.

        requests = RedisMailbox("requests", redis.Redis())

    It lasts as long as the server keeps its data: with `appendonly yes` through a crash, and a
    warning is logged where it is not so; `require_durable=True` refuses to work there.
    """

    queue: RedisQueue

    def __init__(
        self,
        name: str,
        client: Any,
        body_type: Any = None,
        max_size: int | None = None,
        reply_resolver: MailboxResolver | None = None,
        ttl: float | timedelta | None = None,
        require_durable: bool = False,
        *,
        clock: Clock | None = None,
    ) -> None:
        queue = RedisQueue(name, client, ttl=ttl, require_durable=require_durable, clock=clock)
        super().__init__(
            queue, body_type=body_type, max_size=max_size, reply_resolver=reply_resolver
        )
        self._ephemeral = False

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> RedisMailbox[Any]:
        ttl = REPLIES_KEPT if ephemeral else None
        made: RedisMailbox[Any] = RedisMailbox(
            name, self.queue.client, body_type, ttl=ttl, clock=self.queue.clock
        )
        made._ephemeral = ephemeral
        return made

    def close(self) -> None:
        if self._ephemeral and not self.closed:
            with suppress(MailboxConnectionError):  # its `ttl` will see to it
                self.purge()
        super().close()

    def _own_resolver(self) -> MailboxResolver:
        factory = RedisMailboxFactory(self.queue.client, clock=self.queue.clock)
        return CompositeResolver(factory=factory)


class RedisMailboxFactory:
    """Makes mailboxes on one client, to reply to: an address is a name there.

    What waits unread for `ttl` seconds goes, since whoever asked may be gone; None keeps it.
    """

    def __init__(
        self,
        client: Any,
        *,
        body_type: Any = None,
        ttl: float | timedelta | None = REPLIES_KEPT,
        clock: Clock | None = None,
    ) -> None:
        check_client(client)
        self._client = client
        self._body_type = body_type
        self._ttl = ttl
        self._clock = clock

    def create(self, identifier: str) -> RedisMailbox[Any]:
        """The mailbox of this name."""
        try:
            return RedisMailbox(
                identifier, self._client, self._body_type, ttl=self._ttl, clock=self._clock
            )
        except UsageError as error:  # an address in a message is data, not misuse
            raise MailboxResolutionError(str(error), identifier) from None
