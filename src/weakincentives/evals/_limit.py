"""The time limit of one attempt after another."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

import anyio

__all__ = ["Limit"]


class Limit:
    """A cancel scope for the attempts of one worker, each in a `with` block.

    To make, enter and leave a scope takes longer than all else that happens to the sample of an
    instant agent. So one stays entered from attempt to attempt, until it was cancelled or an
    error passed through it. `close` leaves the last one.
    """

    __slots__ = ("_scope",)

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None

    def __enter__(self) -> None:
        if self._scope is None:
            self._scope = anyio.CancelScope().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        scope = self._scope
        if scope is None or (error is None and not scope.cancel_called):
            return None
        self._scope = None
        return scope.__exit__(kind, error, traceback)

    def cancel(self) -> None:
        """End the attempt that is under way."""
        if self._scope is not None:
            self._scope.cancel()

    def close(self) -> None:
        """Let go of the scope. After the last attempt, in the task that made them."""
        if self._scope is not None:
            with suppress(RuntimeError):  # an agent has left a scope of its own open in this one
                self._scope.__exit__(None, None, None)
