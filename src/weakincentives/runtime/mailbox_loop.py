"""What every loop that works off a mailbox has: `run`, `shutdown`, signs of life, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from ..errors import UsageError

if TYPE_CHECKING:
    from .leases import Heartbeat
    from .session import Session, SessionView
    from .worker import Worker

__all__ = ["MailboxLoop", "OutcomeStore", "SessionStore"]


class SessionStore(Protocol):
    """Where sessions are left for another process: a `RunStore`, a `RedisStore`."""

    def save(self, session_id: UUID | str, session: Session) -> None: ...
    def load(self, session_id: UUID | str) -> SessionView: ...


class OutcomeStore(Protocol):
    """Where the outcome of a request is kept, so that a second delivery costs no second run."""

    def find(self, key: str) -> bytes | None:
        """What was kept under the key."""
        ...

    def keep(self, key: str, value: bytes) -> bytes:
        """Keep the value, unless one is there already: the one that stays."""
        ...


class MailboxLoop:
    """A loop around a `Worker`; `_worker` makes it, once, where there are requests to work off."""

    _made: Worker[Any] | None = None

    def _worker(self) -> Worker[Any]:
        raise NotImplementedError

    @property
    def worker(self) -> Worker[Any]:
        """Who works for this loop."""
        if self._made is None:
            self._made = self._worker()
        return self._made

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> None:
        """Work off the mailbox until `shutdown`, or for so many iterations.

        An iteration waits for a message, works off all that is there, and ends when it is done. A
        message is leased for `visibility_timeout` seconds, and longer while it is worked on.
        """
        import anyio

        call = partial(
            self.run_async,
            max_iterations=max_iterations,
            visibility_timeout=visibility_timeout,
            wait_time_seconds=wait_time_seconds,
        )
        anyio.run(call)

    async def run_async(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 20,
    ) -> None:
        """The same inside an event loop, asyncio's or trio's."""
        if max_iterations is not None and max_iterations < 0:
            raise UsageError(f"expected `max_iterations` >= 0, got {max_iterations}")
        try:
            await self.worker.run(
                max_iterations=max_iterations,
                visibility_timeout=visibility_timeout,
                wait_time_seconds=wait_time_seconds,
            )
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        """Give back what one `run` has taken; it may be followed by another."""

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Stop, from any thread; whether it has stopped. What is under way ends or goes back."""
        return self.worker.shutdown(timeout=timeout)

    @property
    def running(self) -> bool:
        """True while `run` is under way."""
        return self._made is not None and self._made.running

    @property
    def heartbeat(self) -> Heartbeat:
        """When it last gave a sign of life."""
        return self.worker.heartbeat

    @property
    def dead_letters(self) -> Any:
        """The mailbox of messages that could not be worked off."""
        return self.worker.dead_letters

    def metrics(self) -> Mapping[str, float]:
        """Counters so far, and what is under way."""
        return self.worker.metrics()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.running:
            self.shutdown()
