"""A loop that hands dead letters to a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

from ...errors import UsageError, short_repr
from ...internal.threads import in_thread
from ...secrets import logger_for
from ..mailbox import Message, QueueMailbox
from .dead_letters import Backoff, DeadLetter
from .leases import LeaseExtenderConfig
from .mailbox_loop import MailboxLoop
from .worker import Worker, WorkerConfig

T = TypeVar("T")
logger = logger_for(__name__)

_CONFIG = WorkerConfig(max_concurrent=1, backoff=Backoff(base=0.1, max_delay=30.0))


class DLQConsumer(MailboxLoop, Generic[T]):
    """Calls a function with each dead letter, one at a time, in a thread.

    A letter is acknowledged when the function returns. When it raises, the letter stays in the
    mailbox and is redelivered after `backoff`; so is a letter that cannot be decoded.
    """

    def __init__(
        self,
        *,
        mailbox: QueueMailbox[DeadLetter[T]],
        handler: Callable[[DeadLetter[T]], object],
        visibility_timeout: float = 300,
        backoff: Backoff | None = None,
    ) -> None:
        if not callable(handler):
            raise UsageError(f"expected a function as `handler`, got {short_repr(handler)}")
        LeaseExtenderConfig().for_lease(visibility_timeout)  # raises if it is not a valid lease
        self.visibility_timeout = visibility_timeout
        self._mailbox = mailbox
        self._handler = handler
        self._backoff = Backoff(base=60.0, max_delay=3600.0) if backoff is None else backoff

    def _worker(self) -> Worker[DeadLetter[T]]:
        return Worker(self._mailbox, self._handle, None, config=_CONFIG)

    def metrics(self) -> dict[str, float]:
        """Return how many letters were handled, and how often the handler raised."""
        counts = self.worker.counts
        return {
            "dead_letters_handled_total": counts["handled"],
            "failures_total": counts["failures"],
        }

    async def _handle(self, message: Message[DeadLetter[T]]) -> None:
        self.worker.start(message)
        # The handler's thread cannot be interrupted, so a shutdown waits until it returns.
        with anyio.CancelScope(shield=True):
            try:
                await in_thread(lambda: self._handler(message.body), abandon=False)
            except Exception:
                self.worker.counts["failures"] += 1
                logger.exception("could not handle the dead letter %r, keeping it", message)
                await self.worker.release(message, backoff=self._backoff)
            else:
                self.worker.counts["handled"] += 1
                await self.worker.acknowledge(message)
