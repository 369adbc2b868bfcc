"""Calls that come at the same time go together: one round trip for many small messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel

from .._ids import new_uuid
from ..errors import SerializationError

__all__ = ["Batcher", "Senders", "send_together"]

A = TypeVar("A")
B = TypeVar("B")


class _Entry(Generic[A, B]):
    __slots__ = ("answer", "error", "item", "ready")

    def __init__(self, item: A) -> None:
        self.item = item
        self.ready = anyio.Event()  # it is answered, or it is its turn to lead
        self.answer: Any = _NONE
        self.error: BaseException | None = None


_NONE: Any = object()


class Batcher(Generic[A, B]):
    """`await batcher(item)` gives the answer of `call` for that item.

    Whoever comes first calls with what is there; those who come meanwhile go with the next call,
    which the first of them makes. A call that has begun is not cancelled. One who is `patient` does
    not call while others keep coming: where a call takes long, few large ones beat many small ones.
    """

    def __init__(
        self,
        call: Callable[[list[A]], Awaitable[Sequence[B]]],
        *,
        most: int = 100,
        patient: bool = False,
    ) -> None:
        self._call = call
        self._most = most
        self._patient = patient
        self._waiting: deque[_Entry[A, B]] = deque()
        self._busy = False

    @property
    def idle(self) -> bool:
        """True where nobody calls or waits."""
        return not self._busy

    async def __call__(self, item: A) -> B:
        entry: _Entry[A, B] = _Entry(item)
        self._waiting.append(entry)
        if self._busy:
            try:
                await entry.ready.wait()
            except BaseException:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                    if entry.ready.is_set():  # it was its turn, which another must take
                        self._pass_on()
                raise
        if entry.answer is _NONE and entry.error is None:
            await self._lead()
        if entry.error is not None:
            raise entry.error
        answer: B = entry.answer
        return answer

    async def _lead(self) -> None:
        self._busy = True
        with anyio.CancelScope(shield=True):  # those who are about to come go with this call
            await anyio.lowlevel.checkpoint()
            quiet = 0 if self._patient else 2  # turns without anybody; in trio, one says nothing
            while quiet < 2 and len(self._waiting) < self._most:
                known = len(self._waiting)
                await anyio.lowlevel.checkpoint()
                quiet = quiet + 1 if len(self._waiting) == known else 0
        count = min(self._most, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        try:
            with anyio.CancelScope(shield=True):
                answers = await self._call([entry.item for entry in batch])
            for entry, answer in zip(batch, answers, strict=True):
                entry.answer = answer
        except BaseException as error:
            for entry in batch:
                entry.error = error
        finally:
            for entry in batch:
                entry.ready.set()
            self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting[0].ready.set()
        else:
            self._busy = False


class Senders:
    """Sends; what goes to the same mailbox at the same time goes together."""

    def __init__(self) -> None:
        # By identity, since not every mailbox has a hash; each is held as long as it is in here.
        self._each: dict[int, Batcher[tuple[Any, str | None], SerializationError | None]] = {}

    async def __call__(self, mailbox: Any, body: Any, name: str | None) -> None:
        """Send a body as the message of this name."""
        sender = self._each.get(key := id(mailbox))
        if sender is None:
            sender = self._each[key] = Batcher(partial(send_together, mailbox))
        try:
            problem = await sender((body, name))
        finally:
            if sender.idle:  # most mailboxes are somebody's for replies, and forgotten soon
                self._each.pop(key, None)
        if problem is not None:
            raise problem


async def send_together(
    mailbox: Any, letters: list[tuple[Any, str | None]]
) -> list[SerializationError | None]:
    """Send all; for each that cannot be written, why: it must not keep the others from going."""

    def send_one(body: Any, id: str | None) -> SerializationError | None:
        try:
            mailbox.send(body, id=id)
        except SerializationError as error:
            return error
        return None

    def send() -> list[SerializationError | None]:
        if len(letters) > 1:
            ids = [id or new_uuid().hex for _, id in letters]
            try:
                mailbox.send_all((body for body, _ in letters), ids=ids)
                return [None] * len(letters)
            except SerializationError:
                pass
        return [send_one(body, id) for body, id in letters]

    aside = getattr(mailbox, "aside", None)  # a test double may have none
    return await aside(send) if aside is not None else send()
