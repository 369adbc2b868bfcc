"""A run's results handed over as they finish; few wait, since a slow reader is waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from ._report import EvalResult

if TYPE_CHECKING:
    from ._evaluate import Run

__all__ = ["Stream"]


class Stream:
    """The results of a run, as they finish."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._most = run.config.max_concurrent
        self._waiting: deque[EvalResult[Any]] = deque()  # finished, and not yet asked for
        self._ended = False
        self._failure: Exception | None = None
        self._group: TaskGroup
        self._coming: AsyncGenerator[EvalResult[Any]]

    async def __aenter__(self) -> AsyncIterator[EvalResult[Any]]:
        self._changed = anyio.Event()
        self._door = anyio.Lock(fast_acquire=True)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._go)
        self._coming = self._results()
        return self._coming

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._group.cancel_scope.cancel()  # at its end there is nothing left to cancel
        await self._coming.aclose()
        if isinstance(error, anyio.get_cancelled_exc_class()):
            return await self._group.__aexit__(kind, error, traceback)
        await self._group.__aexit__(None, None, None)  # which would wrap any other error
        if self._failure is not None and error is None:
            raise self._failure
        return None

    async def __aiter__(self) -> AsyncIterator[EvalResult[Any]]:
        async with self as results:
            async for result in results:
                yield result

    async def _results(self) -> AsyncGenerator[EvalResult[Any]]:
        while True:
            while self._waiting:
                result = self._waiting.popleft()
                if len(self._waiting) == self._most - 1:
                    self._tell()
                yield result
            if self._ended:
                return
            await self._changed.wait()

    async def _go(self) -> None:
        try:
            await self.run.go(self._put)
        except Exception as error:
            self._failure = error
        self._ended = True
        self._tell()

    def _put(self, position: int, result: EvalResult[Any]) -> Awaitable[None] | None:
        self._waiting.append(result)
        if len(self._waiting) == 1:
            self._tell()
        return self._room() if len(self._waiting) >= self._most else None

    async def _room(self) -> None:
        """Wait until somebody asks for results, so that few of them wait.

        One by one: of all that were woken at once, the first could take all the room there is.
        """
        async with self._door:
            while len(self._waiting) >= self._most:
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
