"""Run the samples of one eval concurrently, while pytest goes through its items one by one."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

CaseT = TypeVar("CaseT")
OutcomeT = TypeVar("OutcomeT")


class Batch(Generic[CaseT, OutcomeT]):
    """The cases of one eval, in the order of their items, each of which awaits its own outcome.

    The tasks belong to the event loop of the process, which is suspended between two items. After
    `max_failures`, which end the session, only a case that an item awaits is started.
    """

    def __init__(
        self,
        cases: Iterable[CaseT],
        run: Callable[[CaseT], Coroutine[Any, Any, OutcomeT]],
        is_failure: Callable[[OutcomeT], bool],
        *,
        max_concurrent: int,
        max_failures: int = 0,
    ) -> None:
        self._waiting = deque(cases)
        self._run = run
        self._is_failure = is_failure
        self._max_concurrent = max_concurrent
        self._failures_left = max_failures or math.inf
        self._running: set[asyncio.Task[OutcomeT]] = set()
        self._started: dict[CaseT, asyncio.Task[OutcomeT]] = {}

    async def outcome_of(self, case: CaseT) -> OutcomeT:
        """Return the outcome of a case, while others run too; a second call runs it again."""
        if case not in self._started:
            if case in self._waiting:
                self._waiting.remove(case)
            self._start(case)
        self._start_more()
        try:
            return await asyncio.shield(self._started[case])
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            self._started.pop(case, None)

    async def close(self) -> None:
        """Cancel what is running, and wait until it has ended."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _start(self, case: CaseT) -> None:
        task = asyncio.create_task(self._run(case))
        self._started[case] = task
        self._running.add(task)
        task.add_done_callback(self._on_done)

    def _start_more(self) -> None:
        while (
            self._waiting and len(self._running) < self._max_concurrent and self._failures_left > 0
        ):
            self._start(self._waiting.popleft())

    def _on_done(self, task: asyncio.Task[OutcomeT]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is None:
            self._failures_left -= self._is_failure(task.result())
            self._start_more()
