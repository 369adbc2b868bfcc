"""A mailbox on any queue: argument checks, envelopes, addresses. The queues are in `backends/`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, repeat
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from ....errors import (
    InvalidParameterError,
    MailboxError,
    MailboxResolutionError,
    MessageFinalizedError,
    UsageError,
    short_repr,
)
from ....internal.closing import Closing
from ....internal.threads import in_thread
from ....internal.typevars import ReplyT
from .envelope import pack, unpack
from .lanes import lane_of
from .resolvers import MailboxResolver
from .types import (
    MAX_VISIBILITY_TIMEOUT,
    Delivery,
    Mailbox,
    Message,
    OutboundMessage,
    Queue,
    body_and_reply,
)

T = TypeVar("T")
R = TypeVar("R")


class QueueMailbox(Closing, Generic[T, ReplyT]):
    """The mailbox that every back-end shares; `InMemoryMailbox` and the others are subclasses."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            return super().__class_getitem__(body_and_reply(cls, types))

    def __init__(
        self,
        queue: Queue,
        *,
        body_type: Any = None,
        max_size: int | None = None,
        reply_resolver: MailboxResolver | None = None,
    ) -> None:
        if not isinstance(queue.name, str) or not queue.name:
            raise UsageError(f"expected a name for the mailbox, got {short_repr(queue.name)}")
        if max_size is not None and (type(max_size) is not int or max_size < 1):
            raise UsageError(
                f"expected a whole number >= 1 as `max_size`, got {short_repr(max_size)}"
            )
        self.queue = queue
        self.body_type = body_type
        self.max_size = max_size
        self._resolver = reply_resolver
        self._closed = False
        self._ephemeral = False

    @property
    def name(self) -> str:
        """The name on the back-end, which is also the address."""
        return self.queue.name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def sibling(
        self, name: str, body_type: Any = None, *, ephemeral: bool = False
    ) -> QueueMailbox[Any]:
        """Return a mailbox with another name on the same back-end.

        An `ephemeral` one, for replies, removes its messages when it is closed, or later.
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
        """Send a message and return its id. An `id` that is queued already is not queued twice."""
        id = _new_id() if id is None else _checked_id(id)
        self._put([self._outbound(id, body, headers, self._address(reply_to))])
        return id

    def send_all(
        self,
        bodies: Iterable[T],
        *,
        reply_to: Mailbox[Any] | str | None = None,
        ids: Iterable[str] | None = None,
        headers: Iterable[Mapping[str, str] | None] | None = None,
    ) -> int:
        """Send many messages in few round trips; return how many.

        `ids` and `headers`, if given, have one entry for every body.
        """
        sent, rest = 0, iter(bodies)
        address = self._address(reply_to)
        new_ids = iter(_new_id, "") if ids is None else map(_checked_id, ids)
        new_headers = repeat(None) if headers is None else iter(headers)
        while part := list(islice(rest, self.queue.batch)):
            part_ids = list(islice(new_ids, len(part)))
            part_headers = list(islice(new_headers, len(part)))
            for name, values in (("ids", part_ids), ("headers", part_headers)):
                if len(values) < len(part):
                    count = sent + len(values)
                    raise UsageError(f"expected `{name}` for every body, got only {count}")
            self._put(
                [
                    self._outbound(id, body, head, address)
                    for id, body, head in zip(part_ids, part, part_headers, strict=True)
                ]
            )
            sent += len(part)
        return sent

    def _outbound(
        self, id: str, body: T, headers: Mapping[str, str] | None, address: Any
    ) -> OutboundMessage:
        lane = lane_of(headers)
        if lane.priority:
            self.require_lanes("priorities")
        return OutboundMessage(id, self._write(body, headers), address, *lane)

    def _put(self, messages: Sequence[OutboundMessage]) -> None:
        if self._closed:
            raise MailboxError(f"expected an open mailbox to send to, got {self!r} after `close`")
        self.queue.put(messages, self.max_size)

    # ── receiving ───────────────────────────────────────────────────────────────────────────────

    def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> list[Message[T, ReplyT]]:
        """Return up to `max_messages` messages, each leased for `visibility_timeout` seconds.

        If there is none, wait up to `wait_time_seconds` for the first one. A closed mailbox returns
        none, and `close` ends a wait.
        """
        _check_receive(max_messages, visibility_timeout, wait_time_seconds)
        count = min(max_messages, self.queue.batch)
        end = time.monotonic() + wait_time_seconds  # real time, whatever clock leases use
        wait = wait_time_seconds
        while not self._closed:
            if deliveries := self._take(count, visibility_timeout, wait):
                return [Message(self, delivery) for delivery in deliveries]
            if (wait := end - time.monotonic()) <= 0:
                break
        return []

    async def receive_async(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> list[Message[T, ReplyT]]:
        """Do the same without blocking the event loop. May return early; `wake` ends the wait."""
        _check_receive(max_messages, visibility_timeout, wait_time_seconds)
        if self._closed:
            return []
        count = min(max_messages, self.queue.batch)
        deliveries = await self._take_async(count, visibility_timeout, wait_time_seconds)
        return [Message(self, delivery) for delivery in deliveries]

    def _take(self, count: int, lease: float, wait: float) -> list[Delivery]:
        return self.queue.take(count, lease, wait)

    async def _take_async(self, count: int, lease: float, wait: float) -> list[Delivery]:
        """Take in a thread. A cancellation ends the wait and releases what was taken meanwhile."""
        taken: list[Delivery] = []
        failure: Exception | None = None
        returned = False

        async def wake_when_cancelled() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                if not returned:
                    with anyio.CancelScope(shield=True), suppress(MailboxError):
                        await self.run_blocking(self.queue.wake)

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(wake_when_cancelled)
                try:
                    taken = await self.run_blocking(lambda: self._take(count, lease, wait))
                except Exception as error:  # raised below: the group would wrap it
                    failure = error
                returned = True
                group.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            if taken:
                with anyio.CancelScope(shield=True), suppress(MailboxError):  # or it expires
                    handles = [delivery.handle for delivery in taken]
                    await self.run_blocking(lambda: self.queue.release(handles, 0, untried=True))
            raise
        if failure is not None:
            raise failure
        return taken

    async def run_blocking(self, call: Callable[[], R]) -> R:
        """Return the result of a call to this mailbox; run it in a thread if it may block."""
        if not self.queue.blocking:
            return call()
        return await in_thread(call, abandon=False)

    def wake(self) -> None:
        """End a wait in `receive_async`, or the next one, from any thread."""
        self.queue.wake()

    # ── finalizing ─────────────────────────────────────────────────────────────────────────────

    def acknowledge_all(self, messages: Sequence[Message[T]]) -> list[bool]:
        """Remove messages that are done; return False for each whose lease has ended."""
        return self._finalize(messages, self.queue.remove)

    def release_all(
        self, messages: Sequence[Message[T]], delay: float = 0, *, untried: bool = False
    ) -> list[bool]:
        """Return messages to the queue, for redelivery after `delay`; return False as above.

        With `untried`, this delivery does not count (SQS counts it anyway).
        """
        _check_range("visibility_timeout", delay, MAX_VISIBILITY_TIMEOUT)
        release = partial(self.queue.release, delay=delay, untried=untried)
        return self._finalize(messages, release)

    def extend_all(self, messages: Sequence[Message[T]], timeout: float) -> list[bool]:
        """Let leases last at least `timeout` seconds from now; return False as above."""
        _check_range("timeout", timeout, MAX_VISIBILITY_TIMEOUT)
        _refuse_finalized(messages)
        return self._by_handle(messages, lambda handles: self.queue.extend(handles, timeout))

    def _finalize(
        self, messages: Sequence[Message[T]], call: Callable[[Sequence[str]], list[bool]]
    ) -> list[bool]:
        _refuse_finalized(messages)
        done = self._by_handle(messages, call)
        for message, finalized in zip(messages, done, strict=True):
            message._finalized |= finalized
        return done

    def _by_handle(
        self, messages: Sequence[Message[T]], call: Callable[[Sequence[str]], list[bool]]
    ) -> list[bool]:
        handles = [message.receipt_handle for message in messages]
        size = self.queue.batch
        parts = (handles[start : start + size] for start in range(0, len(handles), size))
        return [done for part in parts for done in call(part)]

    # ── lanes ───────────────────────────────────────────────────────────────────────────────────

    @property
    def has_lanes(self) -> bool:
        """True if it has priorities, and delivers no message of a cancelled group."""
        return getattr(self.queue, "has_lanes", False)  # a user's queue may be of an older release

    def require_lanes(self, what: str) -> None:
        """Raise a `UsageError` if this back-end has no lanes."""
        if not self.has_lanes:
            raise UsageError(
                f"expected a mailbox with {what}, got {self!r}, which has none - use one in memory "
                "or on SQLite or Redis, or another queue with its own workers"
            )

    def cancel(self, group: str) -> int:
        """Remove the messages of this group, leased ones too; return how many.

        Those that are sent in the next 30 days are dropped. Other groups are not touched, and it
        may be called again. Workers notice within seconds and cancel what they are working on.
        """
        if not isinstance(group, str) or not group:
            raise UsageError(f"expected the name of a group, got {short_repr(group)}")
        if not hasattr(self.queue, "cancel"):
            self.require_lanes("`cancel`")
        return self.queue.cancel(group)

    def cancelled(self, groups: Collection[str]) -> set[str]:
        """Return which of these groups are cancelled."""
        known = groups and hasattr(self.queue, "cancelled")
        return self.queue.cancelled(groups) if known else set()

    # ── the mailbox as a whole───────────────────────────────────────────────────────────────────

    def purge(self) -> int:
        """Remove every message, leased ones too; return how many."""
        return self.queue.purge()

    def approximate_count(self) -> int:
        """Return how many messages are queued or leased."""
        return self.queue.count()

    def close(self) -> None:
        """Close this object; the messages stay. Calling it twice is harmless."""
        if self._ephemeral and not self._closed:
            with suppress(MailboxError):  # then the back-end removes the messages later, or never
                self._discard()
        self._closed = True
        self.wake()
        self.queue.close()

    def _discard(self) -> None:
        """Remove what an ephemeral mailbox has left."""
        self.purge()

    # ── content and addresses ───────────────────────────────────────────────────────────────────

    def _write(self, body: T, headers: Mapping[str, str] | None) -> Any:
        return pack(body, headers)

    def _read(self, content: Any) -> tuple[Any, Mapping[str, str]]:
        return unpack(content, self.body_type)

    def _address(self, reply_to: Mailbox[Any] | str | None) -> Any:
        """Return a reply address in the form that messages carry."""
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
        """Return the resolver to use if the user gave none."""
        raise NotImplementedError


_random = Random()
if hasattr(os, "register_at_fork"):  # otherwise a child would repeat its parent's ids
    os.register_at_fork(after_in_child=_random.seed)


def _new_id() -> str:
    return f"{_random.getrandbits(128):032x}"


def _checked_id(id: str) -> str:
    if type(id) is not str or not id:
        raise InvalidParameterError(f"expected text as `id`, got {short_repr(id)}")
    return id


def _check_receive(count: int, lease: float, wait: float) -> None:
    if type(count) is not int or count < 1:
        raise InvalidParameterError(
            f"expected a whole number >= 1 for `max_messages`, got {short_repr(count)}"
        )
    _check_range("visibility_timeout", lease, MAX_VISIBILITY_TIMEOUT)
    _check_range("wait_time_seconds", wait, math.inf)


def _check_range(name: str, seconds: float, maximum: float) -> None:
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds <= maximum:
        limit = "" if maximum == math.inf else f" and <= {maximum:,}"
        raise InvalidParameterError(f"expected seconds >= 0{limit} for `{name}`, got {seconds!r}")


def _refuse_finalized(messages: Sequence[Message[Any]]) -> None:
    for message in messages:
        if message._finalized:
            raise MessageFinalizedError(
                f"expected a message that is not finalized, got {message!r}"
            )
