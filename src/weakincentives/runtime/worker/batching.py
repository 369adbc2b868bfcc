"""Calls that arrive at the same time share one round trip."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel

from ...errors import SerializationError
from ...internal.ids import new_uuid

A = TypeVar("A")
B = TypeVar("B")

_PENDING: Any = object()


@dataclass(slots=True, eq=False)
class _Entry(Generic[A]):
    item: A
    ready: anyio.Event = field(default_factory=anyio.Event)  # has its result, or leads next
    result: Any = _PENDING
    error: BaseException | None = None


@dataclass(eq=False, repr=False)
class Batcher(Generic[A, B]):
    """`await batcher(item)` returns the result of `call` for that item.

    The first caller becomes the leader and calls with all items that are waiting. Callers that
    arrive during that call wait for the next one, which the first of them leads. A call that has
    begun is not cancelled. With `patient`, the leader waits as long as further items keep coming:
    if a call takes long, a few large ones are faster than many small ones.
    """

    call: Callable[[list[A]], Awaitable[Sequence[B]]]
    max_batch: int = field(default=100, kw_only=True)
    patient: bool = field(default=False, kw_only=True)
    _waiting: deque[_Entry[A]] = field(default_factory=deque, init=False)
    _busy: bool = field(default=False, init=False)

    @property
    def idle(self) -> bool:
        """True while there is neither a call nor a waiting item."""
        return not self._busy

    async def __call__(self, item: A) -> B:
        entry = _Entry(item)
        self._waiting.append(entry)
        if self._busy:
            try:
                await entry.ready.wait()
            except BaseException:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                    if entry.ready.is_set():  # it was the next leader, so another must lead
                        self._choose_next_leader()
                raise
        if entry.result is _PENDING and entry.error is None:
            await self._flush_as_leader()
        if entry.error is not None:
            raise entry.error
        result: B = entry.result
        return result

    async def _flush_as_leader(self) -> None:
        self._busy = True
        with anyio.CancelScope(shield=True):  # callers that are about to arrive join this call
            await anyio.lowlevel.checkpoint()
            quiet = 0 if self.patient else 2  # turns without a new item; on trio one is not enough
            while quiet < 2 and len(self._waiting) < self.max_batch:
                before = len(self._waiting)
                await anyio.lowlevel.checkpoint()
                quiet = quiet + 1 if len(self._waiting) == before else 0
        count = min(self.max_batch, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        try:
            with anyio.CancelScope(shield=True):
                results = await self.call([entry.item for entry in batch])
            for entry, result in zip(batch, results, strict=True):
                entry.result = result
        except BaseException as error:
            for entry in batch:
                entry.error = error
        finally:
            for entry in batch:
                entry.ready.set()
            self._choose_next_leader()

    def _choose_next_leader(self) -> None:
        if self._waiting:
            self._waiting[0].ready.set()
        else:
            self._busy = False


class BatchingSender:
    """Sends messages; those for the same mailbox at the same time share one call."""

    def __init__(self) -> None:
        # By identity, since a mailbox may have no hash; an entry keeps its mailbox alive.
        self._batchers: dict[int, Batcher[tuple[Any, str | None], SerializationError | None]] = {}

    async def __call__(self, mailbox: Any, body: Any, id_: str | None) -> None:
        """Send a body as the message with this id."""
        batcher = self._batchers.get(key := id(mailbox))
        if batcher is None:
            batcher = self._batchers[key] = Batcher(partial(send_together, mailbox))
        try:
            problem = await batcher((body, id_))
        finally:
            if batcher.idle:  # most are reply mailboxes, which are used once
                self._batchers.pop(key, None)
        if problem is not None:
            raise problem


async def send_together(
    mailbox: Any, messages: list[tuple[Any, str | None]]
) -> list[SerializationError | None]:
    """Send all messages; return for each the error if it cannot be encoded.

    One that cannot be encoded must not keep the others from being sent.
    """

    def send_one(body: Any, id: str | None) -> SerializationError | None:
        try:
            mailbox.send(body, id=id)
        except SerializationError as error:
            return error
        return None

    def send() -> list[SerializationError | None]:
        if len(messages) > 1:
            ids = [id or new_uuid().hex for _, id in messages]
            try:
                mailbox.send_all((body for body, _ in messages), ids=ids)
                return [None] * len(messages)
            except SerializationError:
                pass
        return [send_one(body, id) for body, id in messages]

    run_blocking = getattr(mailbox, "run_blocking", None)  # a test double may have none
    return await run_blocking(send) if run_blocking is not None else send()
