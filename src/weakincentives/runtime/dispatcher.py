"""An event bus: routes events from publishers to subscribers inside one process.

Rules of this file:
1. Routing is by the exact type of the event and, if the handler subscribed so, by session.
   Publishing costs what the matching handlers cost, however many sessions share the bus.
2. Handlers run on the publisher's thread, a session's own before those of all sessions.
3. One failing handler stops neither the others nor the publisher. Cancellation passes through.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, get_origin, runtime_checkable
from uuid import UUID

from ..internal.frozen import fast_init
from ..secrets import logger_for

logger = logger_for(__name__)

E = TypeVar("E")
_Key = tuple[Any, UUID | None]
_Handlers = tuple[Callable[[Any], object], ...]


@fast_init
@dataclass(frozen=True, slots=True)
class DispatchResult:
    """The result of publishing one event: how many handlers ran, and what they raised."""

    event: object
    handlers_invoked: int = 0
    errors: tuple[Exception, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no handler raised."""
        return not self.errors

    def raise_if_errors(self) -> None:
        """Raise what the handlers raised, as one `ExceptionGroup`."""
        if self.errors:
            raise ExceptionGroup(
                f"{len(self.errors)} of {self.handlers_invoked} handlers failed on "
                f"`{type(self.event).__qualname__}`",
                self.errors,
            )


@runtime_checkable
class EventBus(Protocol):
    """Anything that routes events; `dispatch` is a second name for `publish`."""

    def subscribe(
        self, event_type: type[E], handler: Callable[[E], object], *, session_id: UUID | None = None
    ) -> None:
        """Call `handler` with each event of exactly this type; given an id, of that session."""
        ...

    def unsubscribe(
        self, event_type: type[E], handler: Callable[[E], object], *, session_id: UUID | None = None
    ) -> bool:
        """Undo one `subscribe` with the same arguments; return False if there was none."""
        ...

    def publish(self, event: object) -> DispatchResult:
        """Call every matching handler before returning."""
        ...

    def dispatch(self, event: object) -> DispatchResult:
        """Do the same as `publish`."""
        ...


class InProcessEventBus:
    """The bus of one process.

    >>> bus = InProcessEventBus()
    >>> bus.subscribe(str, print)
    >>> bus.publish("hello").handlers_invoked
    hello
    1
    """

    __slots__ = ("__weakref__", "_handlers", "_lock")

    def __init__(self) -> None:
        # Tuples are replaced, never changed, so that publishing reads them without the lock.
        self._handlers: dict[_Key, _Handlers] = {}
        # Re-entrant: the garbage collector may detach a dead session inside `subscribe`.
        self._lock = threading.RLock()

    def subscribe(
        self, event_type: type[E], handler: Callable[[E], object], *, session_id: UUID | None = None
    ) -> None:
        key = _key(event_type, session_id)
        with self._lock:
            self._handlers[key] = (*self._handlers.get(key, ()), handler)

    def unsubscribe(
        self, event_type: type[E], handler: Callable[[E], object], *, session_id: UUID | None = None
    ) -> bool:
        key = _key(event_type, session_id)
        with self._lock:
            handlers = list(self._handlers.get(key, ()))
            if handler not in handlers:
                return False
            handlers.remove(handler)
            if handlers:
                self._handlers[key] = tuple(handlers)
            else:
                del self._handlers[key]
            return True

    def publish(self, event: object) -> DispatchResult:
        handlers = self._matching(event)
        errors: list[Exception] = []
        for handler in handlers:
            try:
                handler(event)
            except Exception as error:
                logger.error(
                    "handler %r failed on %s", handler, type(event).__qualname__, exc_info=error
                )
                errors.append(error)
        return DispatchResult(event, len(handlers), tuple(errors))

    dispatch = publish

    def _matching(self, event: object) -> _Handlers:
        everyone = self._handlers.get((type(event), None), ())
        session_id = getattr(event, "session_id", None)
        if not isinstance(session_id, UUID):
            return everyone
        return self._handlers.get((type(event), session_id), ()) + everyone


def _key(event_type: type[Any], session_id: UUID | None) -> _Key:
    return get_origin(event_type) or event_type, session_id


Dispatcher = EventBus
ControlDispatcher = InProcessEventBus
InProcessDispatcher = InProcessEventBus
