"""Who watches: spans of what happens, for tracers that carry them elsewhere.

Rules of this file:
1. Without a tracer nothing is made: a span costs one look at a tuple.
2. A tracer that fails changes nothing of what it watches; it is told of once.
3. Spans hold facts as they are. What of them leaves the process, and how it is called there, is the
   tracer's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Literal, Protocol

from ..secrets import logger_for

__all__ = [
    "Kind",
    "Span",
    "Tracer",
    "carried",
    "continued",
    "flush",
    "span",
    "unwatch",
    "watch",
    "watched",
]

logger = logger_for(__name__)

Kind = Literal["run", "request", "sample", "prompt", "model", "tool", "evaluator"]


class Tracer(Protocol):
    """Hears of every span; `begin` and `end` are called on the thread and in the context of it.

    One that sends later may have a method `flush` as well: it is called, in a thread, after a run.
    """

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> Any:
        """A span begins, inside of the one that the caller is in. What it gives comes to `end`."""
        ...

    def end(self, begun: Any, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """It ended: with facts that came meanwhile, and with an error or without."""
        ...

    def carried(self) -> Mapping[str, str]:
        """Where the caller is, as headers of a message."""
        ...

    def continued(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Until it is left, spans of the caller belong where the headers say."""
        ...


_tracers: tuple[Tracer, ...] = ()
_told: set[int] = set()  # tracers that failed before


def watch(tracer: Tracer) -> None:
    """Tell a tracer of everything from now on, in all threads."""
    global _tracers
    if not any(each is tracer for each in _tracers):
        _tracers = (*_tracers, tracer)


def unwatch(tracer: Tracer) -> None:
    """Tell it no more."""
    global _tracers
    _tracers = tuple(each for each in _tracers if each is not tracer)
    _told.discard(id(tracer))


def watched() -> bool:
    """True where a tracer listens."""
    return bool(_tracers)


class Span:
    """Something under way. `add` brings facts that are known only by its end."""

    __slots__ = ("_begun", "_facts", "_kind", "_name", "error")

    def __init__(self, kind: Kind, name: str, facts: dict[str, Any]) -> None:
        self._kind, self._name, self._facts = kind, name, facts
        self._begun: list[tuple[Tracer, Any]] = []
        self.error: BaseException | None = None
        """What went wrong, where it was caught inside."""

    def add(self, **facts: Any) -> None:
        self._facts.update(facts)

    def __enter__(self) -> Span:
        given, self._facts = self._facts, {}
        for tracer in _tracers:
            with _unharmed(tracer):
                self._begun.append((tracer, tracer.begin(self._kind, self._name, given)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for tracer, begun in reversed(self._begun):
            with _unharmed(tracer):
                tracer.end(begun, self._facts, self.error or error)


class _Unseen(Span):
    """What nobody watches."""

    __slots__ = ()

    def __init__(self) -> None: ...

    def add(self, **facts: Any) -> None: ...

    def __setattr__(self, name: str, value: Any) -> None: ...

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *error: Any) -> None: ...


_UNSEEN = _Unseen()


def span(kind: Kind, name: str, **facts: Any) -> Span:
    """Something that begins and ends: `with span("tool", name, arguments=...) as seen: ...`."""
    return Span(kind, name, facts) if _tracers else _UNSEEN


def carried() -> dict[str, str]:
    """Where the caller is in its traces, as headers for a message that it sends."""
    headers: dict[str, str] = {}
    for tracer in _tracers:
        with _unharmed(tracer):
            headers.update(tracer.carried())
    return headers


def continued(headers: Mapping[str, str]) -> AbstractContextManager[object]:
    """Go on in the traces that the headers of a message name."""
    return _joined(headers) if _tracers and headers else nullcontext()


@contextmanager
def _joined(headers: Mapping[str, str]) -> Iterator[None]:
    joined: list[tuple[Tracer, AbstractContextManager[object]]] = []
    for tracer in _tracers:
        with _unharmed(tracer):
            there = tracer.continued(headers)
            there.__enter__()
            joined.append((tracer, there))
    try:
        yield
    finally:
        for tracer, there in reversed(joined):
            with _unharmed(tracer):
                there.__exit__(None, None, None)  # what went wrong inside is not its business


def flush() -> None:
    """Have tracers send what they heard. It may wait for a network: never on an event loop."""
    for tracer in _tracers:
        with _unharmed(tracer):
            getattr(tracer, "flush", bool)()


class _unharmed:  # reads as a statement
    """Whatever the tracer raises inside is logged, once for each tracer, and forgotten."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        who = self._tracer
        if id(who) not in _told and any(each is who for each in _tracers):
            _told.add(id(who))
            name = type(who).__qualname__
            logger.warning("tracing by `%s` failed, the run goes on: %r", name, error)
        return True
