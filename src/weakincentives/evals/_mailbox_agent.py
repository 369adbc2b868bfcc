"""An agent far away: a main loop at the other end of a mailbox."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

import anyio
import anyio.lowlevel

from .. import serde
from .._ids import new_uuid
from ..errors import MailboxConnectionError, MainLoopError, MainLoopTimeoutError, UsageError, shown
from ..rollouts import Trajectory
from ..runtime._batching import Batcher
from ..runtime.session import SessionSnapshot, SessionView
from ..runtime.tracing import carried
from ._agents import Agent, Leavings, _named, current
from ._threads import in_thread
from ._types import Sample

if TYPE_CHECKING:
    from ..runtime.mailbox import QueueMailbox
    from ..runtime.mailbox_loop import SessionStore
    from ..runtime.main_loop import MainLoopRequest, MainLoopResult

__all__ = ["ReplyDesk", "asking", "key_id", "mailbox_agent"]

SLICE = 20.0  # seconds that one look for replies may wait
LEASE = 60.0  # of a reply: it is read at once


def key_id(*parts: str | int) -> UUID:
    """The same id for the same parts, on every machine; "a", "b/c" is not "a/b", "c"."""
    return uuid5(NAMESPACE_URL, f"wink:{serde.encode(parts).decode('utf-8', 'replace')}")


def mailbox_agent(
    requests: QueueMailbox[MainLoopRequest[Any]],
    timeout: float = 300.0,
    *,
    session_store: SessionStore | None = None,
) -> Agent:
    """A main loop that works off `requests`, anywhere, as an agent.

    Each agent has a reply mailbox of its own. Where no answer comes within `timeout` seconds, that
    is an error of the infrastructure; what the loop itself reports is one of the agent.
    """
    return asking(ReplyDesk(requests, timeout), session_store)


def asking(desk: ReplyDesk, session_store: SessionStore | None) -> Agent:
    """The agent at a desk; whoever has the desk closes it."""

    async def agent(sample: Sample[Any, Any]) -> Leavings:
        from ..runtime.main_loop import MainLoopRequest

        this = current()
        key = (this.run_id, this.experiment.name, sample.id, this.epoch)
        request_id = key_id(*key, "main") if this.run_id else new_uuid()
        result = await desk.ask(
            MainLoopRequest(sample.input, experiment=this.experiment, request_id=request_id)
        )
        session = await _session_of(result, session_store)
        this.session = session
        if result.error is not None:
            raise MainLoopError(result.error)
        output = result.text if result.output is None else result.output
        return Trajectory(output=output, usage=result.usage), session

    return _named(agent, f"mailbox:{desk.requests.name}", "")


async def _session_of(
    result: MainLoopResult[Any], store: SessionStore | None
) -> SessionView | None:
    if result.session_snapshot is not None:
        return SessionSnapshot.from_bytes(result.session_snapshot)
    if store is not None and result.session_id is not None:
        return await in_thread(store.load, result.session_id)
    return None


class ReplyDesk:
    """Sends requests, and finds the reply to each among what comes back.

    Replies are matched by request id; late ones and second ones are dropped. Those who wait take
    turns in reading for all, so there is no task that somebody would have to start and end.
    """

    def __init__(self, requests: QueueMailbox[Any], timeout: float) -> None:
        if not isinstance(timeout, int | float) or timeout <= 0:
            raise UsageError(f"expected a timeout > 0 in seconds, got {shown(timeout)}")
        self.requests = requests
        self.timeout = timeout
        self._id = ""
        self._replies: QueueMailbox[Any] | None = None
        self._waiting: dict[UUID, list[_Waiter]] = {}
        self._reading = False
        self._send = Batcher(self._send_all)

    async def _send_all(self, letters: list[tuple[str, Any, dict[str, str]]]) -> list[None]:
        ids, bodies, headers = zip(*letters, strict=True)
        send = partial(
            self.requests.send_all, bodies, reply_to=self._replies, ids=ids, headers=headers
        )
        await self.requests.aside(send)
        return [None] * len(letters)

    async def ask(self, request: MainLoopRequest[Any]) -> MainLoopResult[Any]:
        """The reply to a request, or a `MainLoopTimeoutError`."""
        replies = self._mailbox()
        waiter = _Waiter()
        self._waiting.setdefault(request.request_id, []).append(waiter)
        try:
            # By the desk, too: another one's request for the same must not stand for this one.
            id = f"{request.request_id}:{self._id}:{new_uuid().hex[:8]}"
            await self._send((id, request, carried()))
            with anyio.move_on_after(self.timeout):
                await self._answer(waiter, replies)
        finally:
            waiters = self._waiting[request.request_id]
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[request.request_id]
        if waiter.result is None:
            raise MainLoopTimeoutError(
                f"expected an answer from a main loop that works off {self.requests.name!r}, got "
                f"none in {self.timeout:g} s - is one running?"
            )
        return waiter.result

    async def _answer(self, waiter: _Waiter, replies: QueueMailbox[Any]) -> None:
        while waiter.result is None:
            await anyio.lowlevel.checkpoint_if_cancelled()  # a receive may come back before it
            if self._reading:
                await waiter.turn.wait()
                waiter.turn = anyio.Event()
                continue
            self._reading = True
            try:
                await self._read(replies)
            finally:
                self._reading = False
                for others in self._waiting.values():
                    for other in others:
                        other.turn.set()

    async def _read(self, replies: QueueMailbox[Any]) -> None:
        messages = await replies.receive_async(
            max_messages=100, visibility_timeout=LEASE, wait_time_seconds=SLICE
        )
        for message in messages:
            result = message.body if message.problem is None else None
            for waiter in self._waiting.get(getattr(result, "request_id", None), ()):  # type: ignore[arg-type]
                waiter.result = waiter.result or result
        if messages:
            with suppress(MailboxConnectionError):  # or they come again, and are dropped
                await replies.aside(lambda: replies.acknowledge_all(messages))

    def _mailbox(self) -> QueueMailbox[Any]:
        if self._replies is None:
            from ..runtime.main_loop import MainLoopResult

            self._id = new_uuid().hex[:12]
            name = f"{self.requests.name}-replies-{self._id}"
            self._replies = self.requests.sibling(name, MainLoopResult, ephemeral=True)
        return self._replies

    def close(self) -> None:
        """Let go of the reply mailbox; another request gets another one."""
        replies, self._replies = self._replies, None
        if replies is not None:
            replies.close()


class _Waiter:
    __slots__ = ("result", "turn")

    def __init__(self) -> None:
        self.result: MainLoopResult[Any] | None = None
        self.turn = anyio.Event()
