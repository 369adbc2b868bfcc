"""With `WINK_DEBUG=1`: where an error of a sample arose, as Python shows it, while the run goes on.

A result keeps the message alone. Frames of the user's own code are shown, ours before them are left
out, and of the errors that came the same way only the first is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from traceback import TracebackException
from types import TracebackType
from typing import Any

from ..errors import WinkError
from ..runtime.tracing import Kind, unwatch, watch

__all__ = ["tracebacks"]

OURS = {"anyio", "asyncio", "concurrent", "threading", "trio", "weakincentives"}


@contextmanager
def tracebacks() -> Iterator[None]:
    """Until it is left, print the traceback of every sample that fails."""
    tracer = _Tracebacks()
    watch(tracer)
    try:
        yield
    finally:
        unwatch(tracer)


class _Tracebacks:
    """A tracer that looks at errors of samples alone."""

    def __init__(self) -> None:
        self._shown: set[tuple[object, ...]] = set()

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> str | None:
        return name if kind == "sample" else None

    def end(self, begun: Any, facts: Mapping[str, Any], error: BaseException | None) -> None:
        if begun is None or error is None:
            return
        told = _told(error)
        way = tuple((frame.filename, frame.lineno) for frame in told.stack)
        if way and way not in self._shown:
            self._shown.add(way)
            sys.stderr.write(f"sample {begun!r}\n{''.join(told.format())}")

    def carried(self) -> Mapping[str, str]:
        return {}

    def continued(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        return nullcontext()


def _told(error: BaseException) -> TracebackException:
    """The traceback from the first frame that is not ours."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, WinkError) and error.__cause__ is not None:
        error = error.__cause__
    return TracebackException(type(error), error, _theirs(error.__traceback__))


def _theirs(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None:
        module = str(frames.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in OURS:
            return frames
        frames = frames.tb_next
    return None
