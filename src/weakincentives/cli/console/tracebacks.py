"""With `WINK_DEBUG=1`, print the traceback of each sample that fails, during the run.

It is that of the result's `error_details`. Of errors of the same type and place only the first is
printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ...internal.error_details import error_details
from ...runtime.tracing import Kind, add_tracer, remove_tracer


@contextmanager
def tracebacks() -> Iterator[None]:
    """Print the traceback of every sample that fails inside this context."""
    tracer = _Tracebacks()
    add_tracer(tracer)
    try:
        yield
    finally:
        remove_tracer(tracer)


class _Tracebacks:
    """A tracer that observes only errors of samples."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> str | None:
        return name if kind == "sample" else None

    def end(self, begun: Any, facts: Mapping[str, Any], error: BaseException | None) -> None:
        if begun is None or error is None:
            return
        details = error_details(error)
        if details.traceback and str(details) not in self._printed:
            self._printed.add(str(details))
            sys.stderr.write(f"sample {begun!r}\n{details.traceback}\n")

    def inject(self) -> Mapping[str, str]:
        return {}

    def attach(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        return nullcontext()
