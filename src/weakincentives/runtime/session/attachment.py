"""The subscriptions of a session on an event bus."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any
from uuid import UUID

from ..dispatcher import EventBus


class BusAttachment:
    """The subscriptions of one session. The bus holds the session's method only weakly."""

    __slots__ = ("_bus", "_closed", "_filters", "_handler")

    def __init__(self, bus: EventBus, method: Callable[[object], None]) -> None:
        self._bus = bus
        self._closed = False
        self._filters: dict[type[Any], UUID | None] = {}
        self._handler = _weak_handler(method)

    def subscribe(self, event_type: type[Any], session_id: UUID) -> None:
        """Subscribe to events of this type; if they have a `session_id`, to the session's own."""
        if self._closed or event_type in self._filters:
            return
        owner = session_id if _has_session_id(event_type) else None
        self._filters[event_type] = owner
        self._bus.subscribe(event_type, self._handler, session_id=owner)

    def move(self, session_id: UUID) -> None:
        """Subscribe to the events of another session instead."""
        event_types = tuple(self._filters)
        self._unsubscribe()
        for event_type in event_types:
            self.subscribe(event_type, session_id)

    def detach(self) -> None:
        """Unsubscribe from all events, permanently."""
        self._closed = True
        self._unsubscribe()

    def _unsubscribe(self) -> None:
        while self._filters:
            event_type, owner = self._filters.popitem()
            self._bus.unsubscribe(event_type, self._handler, session_id=owner)


def _weak_handler(method: Callable[[object], None]) -> Callable[[object], None]:
    reference = weakref.WeakMethod(method)

    def handle(event: object) -> None:
        alive = reference()
        if alive is not None:
            alive(event)

    return handle


def _has_session_id(event_type: type[Any]) -> bool:
    # A dataclass field without slots and default is not an attribute of its class.
    fields = getattr(event_type, "__dataclass_fields__", ())
    return "session_id" in fields or hasattr(event_type, "session_id")
