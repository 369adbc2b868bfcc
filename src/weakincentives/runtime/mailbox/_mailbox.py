"""A mailbox on any queue: checks, envelopes, addresses. The queues are in files of their own."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, repeat
from random import Random
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio
from anyio import to_thread

from ...errors import (
    InvalidParameterError,
    MailboxError,
    MailboxResolutionError,
    MessageFinalizedError,
    UsageError,
    shown,
)
from ._envelope import pack, unpack
from ._resolvers import MailboxResolver
from ._types import MAX_VISIBILITY_TIMEOUT, Delivery, Letter, Mailbox, Message, Queue

__all__ = ["QueueMailbox"]

T = TypeVar("T")
R = TypeVar("R")


class QueueMailbox(Generic[T]):
    """The mailbox that every back-end shares. `InMemoryMailbox` and its like make one."""

    def __init__(
        self,
        queue: Queue,
        *,
        body_type: Any = None,
        max_size: int | None = None,
        reply_resolver: MailboxResolver | None = None,
    ) -> None:
        if not isinstance(queue.name, str) or not queue.name:
            raise UsageError(f"expected a name for the mailbox, got {shown(queue.name)}")
        if max_size is not None and (type(max_size) is not int or max_size < 1):
            raise UsageError(f"expected a whole number >= 1 as `max_size`, got {shown(max_size)}")
        self.queue = queue
        self.body_type = body_type
        self.max_size = max_size
        self._resolver = reply_resolver
        self._closed = False

    @property
    def name(self) -> str:
        """Its name on the back-end, which is also its address."""
        return self.queue.name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> QueueMailbox[Any]:
        """A mailbox of another name on the same back-end.

        An `ephemeral` one, for replies, leaves nothing behind when it is closed or forgotten.
        """
        raise NotImplementedError

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def send(
        self,
        body: T,
        *,
        reply_to: Mailbox[Any] | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Put a message in; its id. One whose `id` is here already is not put in twice."""
        id = _new_id() if id is None else _checked_id(id)
        self._put([Letter(id, self._write(body, headers), self._address(reply_to))])
        return id

    def send_all(
        self,
        bodies: Iterable[T],
        *,
        reply_to: Mailbox[Any] | str | None = None,
        ids: Iterable[str] | None = None,
        headers: Iterable[Mapping[str, str] | None] | None = None,
    ) -> int:
        """Put many in, as they come, with few round trips; how many.

        Of `ids` and `headers`, if they are given, there is one for every body.
        """
        sent, rest = 0, iter(bodies)
        address = self._address(reply_to)
        names = iter(_new_id, "") if ids is None else map(_checked_id, ids)
        heads = repeat(None) if headers is None else iter(headers)
        while part := list(islice(rest, self.queue.batch)):
            named, headed = list(islice(names, len(part))), list(islice(heads, len(part)))
            for what, there in (("ids", named), ("headers", headed)):
                if len(there) < len(part):
                    raise UsageError(
                        f"expected `{what}` for every body, got only {sent + len(there)}"
                    )
            letters = zip(named, part, headed, strict=True)
            self._put([Letter(id, self._write(body, head), address) for id, body, head in letters])
            sent += len(part)
        return sent

    def _put(self, letters: Sequence[Letter]) -> None:
        if self._closed:
            raise MailboxError(f"expected an open mailbox to send to, got {self!r} after `close`")
        self.queue.put(letters, self.max_size)

    # ── receiving ───────────────────────────────────────────────────────────────────────────────

    def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> list[Message[T]]:
        """Up to so many messages, each leased for `visibility_timeout` seconds.

        Where none is there it waits so long for the first one, and then takes what is there. A
        closed mailbox gives none, and `close` ends a wait.
        """
        _check_receive(max_messages, visibility_timeout, wait_time_seconds)
        count = min(max_messages, self.queue.batch)
        end = time.monotonic() + wait_time_seconds  # a wait is real, whatever clock leases go by
        wait = wait_time_seconds
        while not self._closed:
            if found := self._take(count, visibility_timeout, wait):
                return [Message(self, delivery) for delivery in found]
            if (wait := end - time.monotonic()) <= 0:
                break
        return []

    async def receive_async(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> list[Message[T]]:
        """The same without blocking the event loop. May come back early; `wake` ends the wait."""
        _check_receive(max_messages, visibility_timeout, wait_time_seconds)
        if self._closed:
            return []
        count = min(max_messages, self.queue.batch)
        found = await self._take_async(count, visibility_timeout, wait_time_seconds)
        return [Message(self, delivery) for delivery in found]

    def _take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        return self.queue.take(count, lease, wait)

    async def _take_async(self, count: int, lease: float, wait: float) -> list[Delivery]:
        """In a thread. Who is cancelled ends its wait, and hands back what came all the same."""
        found: list[Delivery] = []
        problem: Exception | None = None
        returned = False

        async def end_the_wait_when_cancelled() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                if not returned:
                    with anyio.CancelScope(shield=True), suppress(MailboxError):
                        await self.aside(self.queue.wake)

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(end_the_wait_when_cancelled)
                try:
                    found = await self.aside(lambda: self._take(count, lease, wait))
                except Exception as error:  # outside of the group, or it would become one
                    problem = error
                returned = True
                group.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            if found:
                with anyio.CancelScope(shield=True), suppress(MailboxError):  # or the lease ends
                    handles = [delivery.handle for delivery in found]
                    await self.aside(lambda: self.queue.release(handles, 0, untried=True))
            raise
        if problem is not None:
            raise problem
        return found

    async def aside(self, call: Callable[[], R]) -> R:
        """What a call to this mailbox gives: at once, or from a thread where it may wait."""
        if not self.queue.waits:
            return call()
        return await to_thread.run_sync(call, limiter=_threads())

    def wake(self) -> None:
        """End a wait in `receive_async`, or the next one before it begins, from any thread."""
        self.queue.wake()

    # ── ends of a delivery ──────────────────────────────────────────────────────────────────────

    def acknowledge_all(self, messages: Sequence[Message[T]]) -> list[bool]:
        """Remove messages that are done; False for each whose lease is over."""
        return self._ended(messages, self.queue.remove)

    def release_all(
        self, messages: Sequence[Message[T]], delay: float = 0, *, untried: bool = False
    ) -> list[bool]:
        """Hand messages back, to be delivered after `delay` seconds; False as above.

        With `untried`, this delivery does not count (SQS counts it all the same).
        """
        _check_range("visibility_timeout", delay, MAX_VISIBILITY_TIMEOUT)
        release = partial(self.queue.release, delay=delay, untried=untried)
        return self._ended(messages, release)

    def extend_all(self, messages: Sequence[Message[T]], timeout: float) -> list[bool]:
        """Keep messages for at least so many seconds from now; False as above."""
        _check_range("timeout", timeout, MAX_VISIBILITY_TIMEOUT)
        _refuse_finalized(messages)
        return self._by_handle(messages, lambda handles: self.queue.extend(handles, timeout))

    def _ended(
        self, messages: Sequence[Message[T]], call: Callable[[Sequence[str]], list[bool]]
    ) -> list[bool]:
        _refuse_finalized(messages)
        done = self._by_handle(messages, call)
        for message, ended in zip(messages, done, strict=True):
            message._finalized |= ended
        return done

    def _by_handle(
        self, messages: Sequence[Message[T]], call: Callable[[Sequence[str]], list[bool]]
    ) -> list[bool]:
        handles = [message.receipt_handle for message in messages]
        if len(handles) <= self.queue.batch:
            return call(handles)
        return [done for part in _parts(handles, self.queue.batch) for done in call(part)]

    # ── the whole ───────────────────────────────────────────────────────────────────────────────

    def purge(self) -> int:
        """Remove every message, leased ones too; how many."""
        return self.queue.purge()

    def approximate_count(self) -> int:
        """How many messages wait or are leased."""
        return self.queue.count()

    def close(self) -> None:
        """Take and send no more through this object; the messages stay. Twice is fine."""
        self._closed = True
        self.wake()
        self.queue.close()

    # ── content and addresses ───────────────────────────────────────────────────────────────────

    def _write(self, body: T, headers: Mapping[str, str] | None) -> Any:
        return pack(body, headers)

    def _read(self, content: Any) -> tuple[Any, Mapping[str, str]]:
        return unpack(content, self.body_type)

    def _address(self, reply_to: Mailbox[Any] | str | None) -> Any:
        """How a reply address is written into a letter."""
        return reply_to if reply_to is None or isinstance(reply_to, str) else reply_to.name

    def _resolve(self, address: Any) -> Mailbox[Any] | None:
        if address is None or not isinstance(address, str):
            return address
        if self._resolver is None:
            self._resolver = self._own_resolver()
        try:
            return self._resolver.resolve(address)
        except MailboxResolutionError:
            return None

    def _own_resolver(self) -> MailboxResolver:
        """Who finds addresses where the user named nobody."""
        raise NotImplementedError


_random = Random()
if hasattr(os, "register_at_fork"):  # or a child would go on with its parent's ids
    os.register_at_fork(after_in_child=_random.seed)


def _new_id() -> str:
    return f"{_random.getrandbits(128):032x}"


def _checked_id(id: str) -> str:
    if type(id) is not str or not id:
        raise InvalidParameterError(f"expected text as `id`, got {shown(id)}")
    return id


def _check_receive(count: int, lease: float, wait: float) -> None:
    if type(count) is not int or count < 1:
        raise InvalidParameterError(
            f"expected a whole number >= 1 for `max_messages`, got {shown(count)}"
        )
    _check_range("visibility_timeout", lease, MAX_VISIBILITY_TIMEOUT)
    _check_range("wait_time_seconds", wait, math.inf)


def _check_range(what: str, seconds: float, most: float) -> None:
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds <= most:
        limit = "" if most == math.inf else f" and <= {most:,}"
        raise InvalidParameterError(f"expected seconds >= 0{limit} for `{what}`, got {seconds!r}")


def _refuse_finalized(messages: Sequence[Message[Any]]) -> None:
    for message in messages:
        if message._finalized:
            raise MessageFinalizedError(f"expected a message that is still open, got {message!r}")


def _parts(handles: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (handles[start : start + size] for start in range(0, len(handles), size))


_LIMITER = anyio.lowlevel.RunVar[anyio.CapacityLimiter]("weakincentives.mailboxes")


def _threads() -> anyio.CapacityLimiter:
    """Threads that wait in mailboxes take no place from those that work."""
    limiter = _LIMITER.get(None)
    if limiter is None:
        _LIMITER.set(limiter := anyio.CapacityLimiter(math.inf))
    return limiter
