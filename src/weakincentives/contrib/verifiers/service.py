"""The event loop on which an environment of verifiers is served.

Theory of operation. verifiers runs on asyncio only, and its environments own servers that live on
one event loop: an interception server through which every model call goes, and servers of tools.
An eval may run on trio, or on a loop that ends before the next eval. So the environment is served
on a loop in a separate thread, from the first attempt until no attempt is in progress. An attempt
that is cancelled here is cancelled there, and waited for before its environment is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from ...internal.threads import in_thread

T = TypeVar("T")

CANCEL_SECONDS = 30.0  # for an attempt that was cancelled, until its environment is closed anyway


class EnvironmentService:
    """Serves an environment while attempts need it: `serving` opens it, on the service's loop."""

    def __init__(self, serving: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._serving = serving
        self._lock = threading.Lock()
        self._attempts = 0
        self._open: tuple[ExitStack, BlockingPortal, Any] | None = None

    async def run(self, attempt: Callable[[Any], Awaitable[T]]) -> T:
        """Run an attempt on the service's loop, with what `serving` yields; return its result."""
        portal, served = await in_thread(self._enter, abandon=False)
        ended = threading.Event()

        async def run_to_end() -> T:
            try:
                return await attempt(served)
            finally:
                ended.set()

        try:
            future = portal.start_task_soon(run_to_end)
            try:
                return await in_thread(future.result)
            finally:
                future.cancel()  # does nothing to one that is done
                with anyio.CancelScope(shield=True):
                    await in_thread(ended.wait, CANCEL_SECONDS)
        finally:
            with anyio.CancelScope(shield=True):
                await in_thread(self._leave, abandon=False)

    def _enter(self) -> tuple[BlockingPortal, Any]:
        with self._lock:
            if self._open is None:
                with ExitStack() as stack:
                    portal = stack.enter_context(start_blocking_portal("asyncio"))
                    serving = portal.call(self._serving)
                    served = stack.enter_context(portal.wrap_async_context_manager(serving))
                    self._open = stack.pop_all(), portal, served
            self._attempts += 1
            return self._open[1:]

    def _leave(self) -> None:
        with self._lock:
            self._attempts -= 1
            if self._attempts == 0 and self._open is not None:
                (stack, _, _), self._open = self._open, None
                stack.close()
