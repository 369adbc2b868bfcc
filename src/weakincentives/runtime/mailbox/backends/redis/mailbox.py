"""A mailbox on Redis or Valkey, for many processes on many machines.

Every operation is one script on the server (`scripts.py`), with up to 100 messages per call. Each
call has a token by which the server detects a repetition: redis-py retries calls that got no
response.

A receiver blocks on a "bell", a list that never holds a message, so that no message is lost with a
receiver that dies. It asks again at least every 4 seconds, and when the next lease ends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Any, Generic, TypeVar

from .....clock import Clock
from .....errors import MailboxConnectionError, MailboxFullError, UsageError, short_repr
from .....internal.ids import new_uuid
from .....internal.typevars import BodyT, ReplyT
from ...core.lanes import CANCELLED_SECONDS
from ...core.mailbox import QueueMailbox
from ...core.resolvers import CompositeResolver, MailboxResolver
from ...core.types import MAX_VISIBILITY_TIMEOUT, Delivery, OutboundMessage
from .client import check_client, check_server_once, max_blocking_seconds, translated
from .scripts import CANCEL, EXTEND, PURGE, PUT, RELEASE, REMOVE, TAKE, Script

T = TypeVar("T")

REPLY_TTL_SECONDS = 7 * 24 * 3600.0

_PARTS = (
    *("letters", "waiting", "leases", "holders", "clock", "bell"),
    *("lanes", "groups", "cancelled"),
)
_TEXT = ("utf-8", "surrogateescape")  # an id of a foreign client may be any bytes


class RedisQueue:
    """Messages on a Redis server, under keys that begin with `{wink:NAME}`.

    With `ttl`, an unused queue expires after that many seconds, if all its senders have a `ttl`.
    `clock` replaces the server's time in tests.
    """

    blocking = True
    batch = 100
    can_uncount_delivery = True
    has_lanes = True

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
                f"expected a name without braces for a mailbox on Redis, got {short_repr(name)}"
            )
        self.name = name
        self.client = client
        self._ttl = seconds_of(ttl)
        self._require_durable = require_durable
        self.clock = clock
        self._prefix = f"{{wink:{name}}}:".encode(*_TEXT)  # braces: one slot of a cluster
        self._keys = tuple(self._prefix + part.encode() for part in _PARTS)
        self._bell, self._cancelled = self._keys[_PARTS.index("bell")], self._keys[-1]
        self._max_blocking = max_blocking_seconds(client)
        self._checked = False
        self._waiters: set[bytes] = set()
        self._woken = False

    def put(self, messages: Sequence[OutboundMessage], max_size: int | None) -> None:
        if not messages:
            return
        fields = [(each.id.encode(*_TEXT), _encoded(each), _lane(each)) for each in messages]
        full = self._run(PUT, _token(), self._ttl, max_size or 0, *chain.from_iterable(fields))
        if full is not None:
            count, new = full
            raise MailboxFullError(
                f"expected room for {new} more in the mailbox {self.name!r}, "
                f"got {count} of {max_size} - receive some, or raise `max_size`"
            )

    def take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        taken, until_next = self._take(count, lease)
        if not taken and wait > 0 and self._wait(min(wait, until_next)):
            taken, _ = self._take(count, lease)
        return taken

    def _take(self, count: int, lease: float) -> tuple[list[Delivery], float]:
        """Return what is queued; if nothing is, also the seconds until the next lease ends."""
        token = _token()
        longest = _microseconds(MAX_VISIBILITY_TIMEOUT)
        until_next, *rest = self._run(
            TAKE, token, self._ttl, token, count, _microseconds(lease), longest
        )
        fields = iter(rest)
        taken = [
            _delivery(id.decode(*_TEXT), times, stored, token)
            for id, times, stored in zip(fields, fields, fields, strict=True)
        ]
        return taken, until_next / 1e6 if until_next >= 0 else float("inf")

    def _wait(self, seconds: float) -> bool:
        """Block on the bell; return False if `wake` ended it."""
        mine = self._prefix + b"wake:" + _token().encode()
        self._waiters.add(mine)  # before `_woken` is read: `wake` does it in the other order
        try:
            if self._woken:
                return False
            with self._translated():
                # 0 would block forever, and servers may ignore less than a millisecond.
                timeout = max(0.001, min(seconds, self._max_blocking))
                popped = self.client.execute_command(
                    "BLPOP", mine, self._bell, f"{timeout:.3f}", NEVER_DECODE=True
                )
            return popped is None or bytes(popped[0]) != mine
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

    def cancel(self, group: str) -> int:
        return int(self._run(CANCEL, _token(), group.encode(*_TEXT), CANCELLED_SECONDS))

    def cancelled(self, groups: Collection[str]) -> set[str]:
        named = [group.encode(*_TEXT) for group in groups]
        with self._translated():
            marks = self.client.execute_command("ZMSCORE", self._cancelled, *named)
        return {group for group, mark in zip(groups, marks, strict=True) if mark is not None}

    def wake(self) -> None:
        self._woken = True
        for waiter in tuple(self._waiters):
            with suppress(MailboxConnectionError), self._translated():  # the wait fails as well
                _WAKE.run(self.client, (waiter,))

    def close(self) -> None:
        """Do nothing: the client belongs to the user."""

    def _run(self, script: Script, token: str, *arguments: Any) -> Any:
        now = "" if self.clock is None else _microseconds(self.clock.now().timestamp())
        call = self._prefix + b"call:" + token.encode()
        with self._translated():
            if not self._checked:
                check_server_once(self.client, self.name, self._require_durable)
                self._checked = True
            return script.run(self.client, (*self._keys, call), now, *arguments)

    def _translated(self) -> Any:
        return translated(f"the mailbox {self.name!r}", self.client, MailboxConnectionError)


_WAKE = Script.of("redis.call('RPUSH', KEYS[1], 1) redis.call('EXPIRE', KEYS[1], 60)")


def _token() -> str:
    return new_uuid().hex


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def seconds_of(ttl: float | timedelta | None) -> int:
    """Return a time to live in whole seconds; 0 means forever."""
    if ttl is None:
        return 0
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 1:
        raise UsageError(f"expected at least one second as `ttl`, or None, got {short_repr(ttl)}")
    return int(seconds)


def _encoded(message: OutboundMessage) -> bytes:
    address = b"" if message.reply_to is None else message.reply_to.encode(*_TEXT)
    return b"%d:%b%b" % (len(address), address, message.content)


def _lane(message: OutboundMessage) -> bytes:
    """Return the name of a message's lane; empty for the one of messages that name none."""
    if not (message.group or message.priority):
        return b""
    return b"%d:%b" % (message.priority, message.group.encode(*_TEXT))


def _delivery(id: str, times: int, stored: bytes, token: str) -> Delivery:
    handle = f"{times}.{token}:{id}"
    try:
        sent, length, rest = stored.split(b":", 2)
        size, enqueued = int(length), int(sent) / 1e6
    except (ValueError, OverflowError):
        size = -1
    if not 0 <= size <= len(stored):  # not our format: deliver it as it is
        return Delivery(id, stored, handle, times, 0.0)
    if size == 0:
        return Delivery(id, rest, handle, times, enqueued)
    return Delivery(id, rest[size:], handle, times, enqueued, rest[:size].decode(*_TEXT))


class RedisMailbox(QueueMailbox[T, ReplyT]):
    """Messages on a Redis or Valkey server, by a client of redis-py: `Redis` or `RedisCluster`.

        requests = RedisMailbox("requests", redis.Redis())

    Messages survive a crash of the server if it has `appendonly yes`. Otherwise a warning is
    logged; with `require_durable=True` it is an error.
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

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> RedisMailbox[Any]:
        ttl = REPLY_TTL_SECONDS if ephemeral else None
        mailbox: RedisMailbox[Any] = RedisMailbox(
            name, self.queue.client, body_type, ttl=ttl, clock=self.queue.clock
        )
        mailbox._ephemeral = ephemeral
        return mailbox

    def _own_resolver(self) -> MailboxResolver:
        factory = RedisMailboxFactory(self.queue.client, clock=self.queue.clock)
        return CompositeResolver(factory=factory)


class RedisMailboxFactory(Generic[BodyT]):
    """Creates mailboxes for replies on one client: an address is the name of a mailbox.

    Replies that are not received within `ttl` seconds expire; with None they are kept.
    """

    def __init__(
        self,
        client: Any,
        *,
        body_type: Any = None,
        ttl: float | timedelta | None = REPLY_TTL_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        check_client(client)
        self._client = client
        self._options: dict[str, Any] = {"body_type": body_type, "ttl": ttl, "clock": clock}

    def create(self, identifier: str) -> RedisMailbox[Any]:
        """Return the mailbox of this name."""
        return RedisMailbox(identifier, self._client, **self._options)
