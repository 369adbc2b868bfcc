"""Spans of what happens, for tracers that export them.

Rules of this file:
1. Without a tracer no span is made: the cost is one check of a tuple.
2. A tracer that fails never affects the run; its first failure is logged.
3. Spans hold attributes as they are. The tracer decides what leaves the process, and under which
   names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..secrets import logger_for

logger = logger_for(__name__)

Kind = Literal["run", "request", "sample", "prompt", "model", "tool", "evaluator"]


class Tracer(Protocol):
    """Receives every span; `begin` and `end` are called on its thread and in its context.

    A tracer that sends later may also have a method `flush`: it is called in a thread after a run.
    """

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> Any:
        """Begin a span inside the current one, and return what `end` is to be called with."""
        ...

    def end(self, begun: Any, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """End a span, with the facts that were added, and the error if there was one."""
        ...

    def inject(self) -> Mapping[str, str]:
        """Return the current span as headers of a message."""
        ...

    def attach(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Return a context in which spans belong to the trace of the headers."""
        ...


_tracers: tuple[Tracer, ...] = ()
_failed: set[int] = set()  # ids of tracers whose failure was logged


def add_tracer(tracer: Tracer) -> None:
    """Send all spans to a tracer from now on, in all threads."""
    global _tracers
    if not any(each is tracer for each in _tracers):
        _tracers = (*_tracers, tracer)


def remove_tracer(tracer: Tracer) -> None:
    """Send it no more spans."""
    global _tracers
    _tracers = tuple(each for each in _tracers if each is not tracer)
    _failed.discard(id(tracer))


def is_tracing() -> bool:
    """Return whether there is a tracer."""
    return bool(_tracers)


class Span:
    """A span in progress. `add` adds facts that are known only at its end."""

    __slots__ = ("_begun", "_facts", "_kind", "_name", "error")

    def __init__(self, kind: Kind, name: str, facts: dict[str, Any]) -> None:
        self._kind, self._name, self._facts = kind, name, facts
        self._begun: list[tuple[Tracer, Any]] = []
        self.error: BaseException | None = None
        """An error that was caught inside the span."""

    def add(self, **facts: Any) -> None:
        self._facts.update(facts)

    def __enter__(self) -> Span:
        facts, self._facts = self._facts, {}
        for tracer in _tracers:
            with _suppress_errors(tracer):
                self._begun.append((tracer, tracer.begin(self._kind, self._name, facts)))
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        for tracer, begun in reversed(self._begun):
            with _suppress_errors(tracer):
                tracer.end(begun, self._facts, self.error or error)


class _NoopSpan(Span):
    """The span without a tracer."""

    __slots__ = ()

    def __init__(self) -> None: ...

    def add(self, **facts: Any) -> None: ...

    def __setattr__(self, name: str, value: Any) -> None: ...

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *error: Any) -> None: ...


_NOOP = _NoopSpan()


def span(kind: Kind, name: str, **facts: Any) -> Span:
    """Return a span: `with span("tool", name, arguments=...) as current: ...`."""
    return Span(kind, name, facts) if _tracers else _NOOP


def inject() -> dict[str, str]:
    """Return the current span of every tracer, as headers for a message."""
    headers: dict[str, str] = {}
    for tracer in _tracers:
        with _suppress_errors(tracer):
            headers.update(tracer.inject())
    return headers


def attach(headers: Mapping[str, str]) -> AbstractContextManager[object]:
    """Return a context that continues the traces in the headers of a message."""
    return _attached(headers) if _tracers and headers else nullcontext()


@contextmanager
def _attached(headers: Mapping[str, str]) -> Iterator[None]:
    contexts: list[tuple[Tracer, AbstractContextManager[object]]] = []
    for tracer in _tracers:
        with _suppress_errors(tracer):
            context = tracer.attach(headers)
            context.__enter__()
            contexts.append((tracer, context))
    try:
        yield
    finally:
        for tracer, context in reversed(contexts):
            with _suppress_errors(tracer):
                context.__exit__(None, None, None)  # errors inside do not concern the tracer


def flush() -> None:
    """Let tracers send their spans. It may wait for a network: not for an event loop."""
    for tracer in _tracers:
        with _suppress_errors(tracer):
            getattr(tracer, "flush", bool)()


@dataclass(slots=True)
class _suppress_errors:  # lower case, like `contextlib.suppress`
    """Log the first error of a tracer, and suppress all of them."""

    _tracer: Tracer

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        tracer = self._tracer
        if id(tracer) not in _failed and any(each is tracer for each in _tracers):
            _failed.add(id(tracer))
            name = type(tracer).__qualname__
            logger.warning("tracing by `%s` failed, the run continues: %r", name, error)
        return True
