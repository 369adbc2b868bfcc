"""A session's place on an event bus: what it hears, and how it leaves."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any
from uuid import UUID

from ..dispatcher import EventBus

__all__ = ["BusAttachment"]


class BusAttachment:
    """The subscriptions of one session. The bus holds the session's method only weakly."""

    __slots__ = ("_bus", "_closed", "_filters", "_handler")

    def __init__(self, bus: EventBus, method: Callable[[object], None]) -> None:
        self._bus = bus
        self._closed = False
        self._filters: dict[type[Any], UUID | None] = {}
        self._handler = _weakly(method)

    def listen(self, event_type: type[Any], session_id: UUID) -> None:
        """Hear events of this type: the session's own, where the type says whose they are."""
        if self._closed or event_type in self._filters:
            return
        owner = session_id if _names_a_session(event_type) else None
        self._filters[event_type] = owner
        self._bus.subscribe(event_type, self._handler, session_id=owner)

    def move(self, session_id: UUID) -> None:
        """Hear another session's events from now on."""
        event_types = tuple(self._filters)
        self._unsubscribe()
        for event_type in event_types:
            self.listen(event_type, session_id)

    def detach(self) -> None:
        """Hear nothing any more."""
        self._closed = True
        self._unsubscribe()

    def _unsubscribe(self) -> None:
        while self._filters:
            event_type, owner = self._filters.popitem()
            self._bus.unsubscribe(event_type, self._handler, session_id=owner)


def _weakly(method: Callable[[object], None]) -> Callable[[object], None]:
    reference = weakref.WeakMethod(method)

    def handle(event: object) -> None:
        alive = reference()
        if alive is not None:
            alive(event)

    return handle


def _names_a_session(event_type: type[Any]) -> bool:
    # Without slots and default, a dataclass field is no attribute of its class.
    fields = getattr(event_type, "__dataclass_fields__", ())
    return "session_id" in fields or hasattr(event_type, "session_id")
