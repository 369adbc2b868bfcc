"""An agent in another process: a main loop at the other end of a mailbox."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio
import anyio.lowlevel

from ...errors import (
    MailboxConnectionError,
    MainLoopError,
    MainLoopTimeoutError,
    StoreError,
    UsageError,
    short_repr,
)
from ...internal.ids import new_uuid
from ...rollouts import Trajectory
from ...runtime.mailbox.core.lanes import PRIORITY_HEADER, current_lane
from ...runtime.session import SessionSnapshot, SessionView
from ...runtime.tracing import inject
from ...runtime.worker.batching import Batcher
from ...runtime.worker.dead_letters import Backoff
from ...runtime.worker.heartbeat import beat
from ...runtime.worker.retry import call_store
from .._types import Sample
from ..engine.agents import Agent, AgentOutput, current, name_agent
from .submission import key_id

if TYPE_CHECKING:
    from ...runtime.agent.main_loop import MainLoopRequest, MainLoopResult
    from ...runtime.mailbox import QueueMailbox
    from ...runtime.worker.mailbox_loop import SessionStore

POLL_SECONDS = 20.0  # longest wait of one receive
LEASE_SECONDS = 60.0  # lease of a reply, which is acknowledged at once
MAX_LOAD_ATTEMPTS = 6  # to load a session, which another machine may not see yet: 15 s on average


def mailbox_agent(
    requests: QueueMailbox[MainLoopRequest[Any]],
    timeout: float = 300.0,
    *,
    session_store: SessionStore | None = None,
) -> Agent:
    """Return an agent that asks the main loop that works on `requests`, on any machine.

    Each agent has its own reply mailbox. No answer within `timeout` seconds, and a session that
    cannot be loaded from `session_store`, are infrastructure errors.
    """
    return agent_for(ReplyRouter(requests, timeout), session_store)


def agent_for(
    router: ReplyRouter, session_store: SessionStore | None, backoff: Backoff | None = None
) -> Agent:
    """Return an agent that asks through a router, which the caller closes."""
    delay = (backoff or Backoff()).jittered

    async def agent(sample: Sample[Any, Any]) -> AgentOutput:
        from ...runtime.agent.main_loop import MainLoopRequest

        this = current()
        key = (this.run_id, this.experiment.name, sample.id, this.epoch)
        request_id = key_id(*key, "main") if this.run_id else new_uuid()
        result = await router.ask(
            MainLoopRequest(
                sample.input,
                experiment=this.experiment,
                request_id=request_id,
                reply_to=router.reply_address,
                reply_timeout=router.timeout,
            )
        )
        this.latency_ms, this.agent_version = result.latency_ms, result.agent_version
        if result.error is not None:
            with suppress(StoreError):  # the main loop's error is the one to report
                this.session = await _session_of(result, session_store, delay)
            ours = result.error_source == "infrastructure"
            raise MainLoopError(result.error, details=result.error_details, infrastructure=ours)
        this.session = session = await _session_of(result, session_store, delay)
        trajectory = Trajectory(
            result.messages,
            result.text if result.output is None else result.output,
            result.usage,
            result.stop_reason,
            result.latency_ms,
            result.cost,
            tokens=result.tokens,
        )
        return trajectory, session

    return name_agent(agent, f"mailbox:{router.requests.name}")


async def _session_of(
    result: MainLoopResult[Any], store: SessionStore | None, delay: Callable[[int], float]
) -> SessionView | None:
    """Return the session of a result; wait for one that a store does not have yet."""
    if result.session_snapshot is not None:
        return SessionSnapshot.from_bytes(result.session_snapshot)
    if store is None or result.session_id is None:
        return None

    def load(session_id: UUID) -> SessionView:
        if (session := store.load(session_id)) is None:
            raise StoreError(f"expected the session {session_id}, found none in {store!r}")
        return session

    session: SessionView = await call_store(
        load, result.session_id, delay=delay, max_attempts=MAX_LOAD_ATTEMPTS
    )
    return session


class ReplyRouter:
    """Sends requests, and routes each reply to the task that waits for it.

    Replies are matched by request id; late and duplicate ones are dropped. Waiting tasks take turns
    polling for everyone, so no background task is needed.
    """

    def __init__(self, requests: QueueMailbox[Any], timeout: float) -> None:
        if not isinstance(timeout, int | float) or timeout <= 0:
            raise UsageError(f"expected a timeout > 0 in seconds, got {short_repr(timeout)}")
        self.requests = requests
        self.timeout = timeout
        self._id = ""
        self._replies: QueueMailbox[Any] | None = None
        self._waiting: dict[UUID, list[_Waiter]] = {}
        self._polling = False
        self._send = Batcher(self._send_all)

    @property
    def reply_address(self) -> str:
        """The name of the reply mailbox."""
        return self._open_replies().name

    async def _send_all(self, batch: list[tuple[str, Any, dict[str, str]]]) -> list[None]:
        ids, bodies, headers = zip(*batch, strict=True)
        send = partial(
            self.requests.send_all, bodies, reply_to=self._replies, ids=ids, headers=headers
        )
        await self.requests.run_blocking(send)
        return [None] * len(batch)

    async def ask(self, request: MainLoopRequest[Any]) -> MainLoopResult[Any]:
        """Return the reply to a request, or raise a `MainLoopTimeoutError`."""
        replies = self._open_replies()
        waiter = _Waiter()
        self._waiting.setdefault(request.request_id, []).append(waiter)
        try:
            # Include the router's id: the same request of another router must not replace this one.
            id = f"{request.request_id}:{self._id}:{new_uuid().hex[:8]}"
            lane = dict(current_lane.get())
            if not getattr(self.requests, "has_lanes", False):
                lane.pop(PRIORITY_HEADER, None)
            await self._send((id, request, {**inject(), **lane}))
            with anyio.move_on_after(self.timeout):
                await self._wait_for(waiter, replies)
        finally:
            waiters = self._waiting[request.request_id]
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[request.request_id]
        if waiter.result is None:
            raise MainLoopTimeoutError(
                f"expected an answer from a main loop that works on {self.requests.name!r}, got "
                f"none in {self.timeout:g} s - is one running? The timeout is "
                "EvalLoopConfig.mainloop_timeout"
            )
        return waiter.result

    async def _wait_for(self, waiter: _Waiter, replies: QueueMailbox[Any]) -> None:
        while waiter.result is None:
            await anyio.lowlevel.checkpoint_if_cancelled()  # a receive may end before it notices
            if self._polling:
                await waiter.turn.wait()
                waiter.turn = anyio.Event()
                continue
            self._polling = True
            try:
                await self._poll(replies)
            finally:
                self._polling = False
                for waiters in self._waiting.values():
                    for other in waiters:
                        other.turn.set()

    async def _poll(self, replies: QueueMailbox[Any]) -> None:
        messages = await replies.receive_async(
            max_messages=100, visibility_timeout=LEASE_SECONDS, wait_time_seconds=POLL_SECONDS
        )
        beat()  # the main loop has its own heartbeat
        for message in messages:
            result = message.body if message.problem is None else None
            for waiter in self._waiting.get(getattr(result, "request_id", None), ()):  # type: ignore[arg-type]
                waiter.result = waiter.result or result
        if messages:
            with suppress(MailboxConnectionError):  # redelivered replies are dropped
                await replies.run_blocking(lambda: replies.acknowledge_all(messages))

    def _open_replies(self) -> QueueMailbox[Any]:
        if self._replies is None:
            from ...runtime.agent.main_loop import MainLoopResult

            self._id = new_uuid().hex[:12]
            name = f"{self.requests.name}-replies-{self._id}"
            self._replies = self.requests.sibling(name, MainLoopResult, ephemeral=True)
        return self._replies

    def close(self) -> None:
        """Close the reply mailbox; the next request opens another one."""
        replies, self._replies = self._replies, None
        if replies is not None:
            replies.close()


@dataclass(slots=True, eq=False)
class _Waiter:
    result: MainLoopResult[Any] | None = None
    turn: anyio.Event = field(default_factory=anyio.Event)
