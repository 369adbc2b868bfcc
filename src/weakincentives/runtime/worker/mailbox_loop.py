"""The base of every loop on a mailbox: `run`, `shutdown`, a heartbeat and metrics."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from ...errors import StoreError, UsageError, WorkerEndedError, short_repr
from ...internal.closing import Closing
from .shutdown import sigterm_to

if TYPE_CHECKING:
    from ..session import Session, SessionView
    from .heartbeat import Heartbeat
    from .worker import Worker

SIGTERM_GRACE_SECONDS = 24.0  # for messages in flight: supervisors kill after 30 s


class SessionStore(Protocol):
    """Stores sessions for another process: a `RunStore`, a `RedisStore`."""

    def save(self, session_id: UUID | str, session: Session) -> None: ...
    def load(self, session_id: UUID | str) -> SessionView: ...


class OutcomeStore(Protocol):
    """Stores the outcome of a request, so that a redelivery does not run it again."""

    def find(self, key: str) -> bytes | None:
        """Return what is stored under the key."""
        ...

    def keep(self, key: str, value: bytes) -> bytes:
        """Store the value unless the key has one already; return the stored one."""
        ...


def run_to_end(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a worker on the event loop of the process.

    Only an agent can cancel its tasks or stop that loop, so both are errors here. Otherwise a
    `SystemExit` in a callback would end the process as if all work were done.
    """
    import asyncio
    import threading

    from ...internal.event_loop import run_sync

    try:
        run_sync(call)
    except asyncio.CancelledError as error:
        raise WorkerEndedError from error
    except (SystemExit, KeyboardInterrupt) as error:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and in_main_thread:
            raise  # the user's Ctrl-C
        raise WorkerEndedError(f"a callback of its event loop raised {error!r}") from error
    except RuntimeError as error:
        if "Event loop stopped before Future completed" not in str(error):
            raise
        raise WorkerEndedError(
            "something stopped its event loop - an agent must stop only loops it started"
        ) from error


class MailboxLoop(Closing):
    """A loop around a `Worker`, which `_worker` makes when it is first needed."""

    visibility_timeout: float = 300
    """Seconds of a lease, unless `run` is given others."""

    _made: Worker[Any] | None = None

    def _worker(self) -> Worker[Any]:
        raise NotImplementedError

    @property
    def worker(self) -> Worker[Any]:
        """The worker of this loop."""
        if self._made is None:
            self._made = self._worker()
        return self._made

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float | None = None,
        wait_time_seconds: float = 20,
    ) -> None:
        """Handle messages until `shutdown`, until the mailbox is closed, or for some iterations.

        An iteration waits for a message, handles all that are queued, and ends when they are done.
        A message is leased for `visibility_timeout` seconds, and longer while it is handled.

        In the main thread SIGTERM ends it as `shutdown` does, unless the program handles SIGTERM.
        """
        call = partial(
            self.run_async,
            max_iterations=max_iterations,
            visibility_timeout=visibility_timeout,
            wait_time_seconds=wait_time_seconds,
        )
        with sigterm_to(partial(self.worker.stop, grace=SIGTERM_GRACE_SECONDS)):
            run_to_end(call)

    async def run_async(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float | None = None,
        wait_time_seconds: float = 20,
    ) -> None:
        """Do the same inside an event loop, asyncio's or trio's."""
        if max_iterations is not None and max_iterations < 0:
            raise UsageError(f"expected `max_iterations` >= 0, got {max_iterations}")
        lease = self.visibility_timeout if visibility_timeout is None else visibility_timeout
        try:
            await self.worker.run(
                max_iterations=max_iterations,
                visibility_timeout=lease,
                wait_time_seconds=wait_time_seconds,
            )
        finally:
            await self._release()

    async def _release(self) -> None:
        """Release what one `run` has acquired; another `run` may follow."""

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Stop, from any thread; return whether it has stopped.

        Messages in flight get `timeout` seconds to finish; then they return to their queue.
        """
        return self.worker.shutdown(timeout=timeout)

    async def _find_outcome(self, store: OutcomeStore, key: str) -> bytes | None:
        """Return what a user's store has under a key; raise a `StoreError` if it fails."""
        return _checked_outcome(await self.worker.call_store(store.find, key))

    async def _keep_outcome(self, store: OutcomeStore, key: str, data: bytes) -> bytes:
        """Store an outcome unless there is one; return the stored one."""
        stored = await self.worker.call_store(store.keep, key, data, abandon=False)
        return _checked_outcome(stored) or data

    def close(self) -> None:
        """Shut down if it is running."""
        if self.running:
            self.shutdown()

    @property
    def running(self) -> bool:
        """True while `run` is active."""
        return self._made is not None and self._made.running

    @property
    def heartbeat(self) -> Heartbeat:
        """The heartbeat of the worker."""
        return self.worker.heartbeat

    @property
    def dead_letters(self) -> Any:
        """The mailbox of messages that could not be handled."""
        return self.worker.dead_letters

    def metrics(self) -> Mapping[str, float]:
        """Return all counters and the number of messages in flight."""
        return self.worker.metrics()


def _checked_outcome(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise StoreError(f"expected bytes, as they were stored, got {short_repr(value)}")
