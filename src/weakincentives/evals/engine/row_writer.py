"""Rows on their way to the store: in the background, with back-pressure on the samples."""

from __future__ import annotations

import anyio

from ...internal.threads import in_thread
from ...runtime.session import Session
from ..store.run_store import RunStore
from ..store.stored_row import StoredRow
from .attempts import AttemptOutcome
from .engine import Task, sample_digest

MAX_UNWRITTEN_ROWS = 500


class RowWriter:
    """Stores rows, and makes the caller wait while the store is too far behind.

    The backlog may be 4 x concurrency, so that a burst of results does not wait for the store.
    """

    def __init__(
        self,
        store: RunStore,
        max_concurrent: int,
        criteria_fingerprint: str,
        agent_version: str = "",
    ) -> None:
        self._store = store
        self._agent_version = agent_version
        self.criteria_fingerprint = criteria_fingerprint
        self._max_backlog = max(MAX_UNWRITTEN_ROWS, 4 * max_concurrent)
        self._flush_lock = anyio.Lock(fast_acquire=True)

    async def put(self, row: StoredRow) -> None:
        """Store the row: a large one at once, another one within the store's delay."""
        if not self._store.offer(row):
            with anyio.CancelScope(shield=True):  # finished results are stored, even on Ctrl-C
                await in_thread(self._store.put, row)
        elif self._store.behind(self._max_backlog):
            async with self._flush_lock:
                if self._store.behind(self._max_backlog):  # another task may have flushed it
                    await in_thread(self._store.flush, row.result.run_id)

    async def put_outcome(self, task: Task, outcome: AttemptOutcome) -> None:
        """Store the outcome of a task."""
        session = outcome.session
        row = StoredRow(
            result=outcome.result,
            position=task.position,
            sample_digest=sample_digest(task.sample),
            criteria=self.criteria_fingerprint,
            agent_version=self._agent_version,
            session=session if isinstance(session, bytes) else None,
            unsaved_session=session if isinstance(session, Session) else None,
        )
        await self.put(row)
