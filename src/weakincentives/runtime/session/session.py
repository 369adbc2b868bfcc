"""A session: the typed, event-sourced state that one agent run leaves behind.

Rules of this file:
1. A slice holds one concrete type. A type that was never recorded reads as empty.
2. An event changes all its slices or none: the reducers run first, then everything is stored.
3. Telemetry is always recorded, whatever is registered, and recorded once.
4. One lock guards all state. Nothing is published while it is held.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar, cast
from uuid import UUID

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError, short_repr
from ...internal.checks import check_tags
from ...internal.closing import Closing
from ...internal.ids import new_uuid
from ...serde import type_name
from ..dispatcher import DispatchResult, EventBus
from ..events import TELEMETRY
from .attachment import BusAttachment
from .reducers import Reducer
from .slices import SessionView, SliceStorage, checked, slice_type
from .snapshot import SessionSnapshot, read_slice, stored_name

T = TypeVar("T")
E = TypeVar("E")
_TELEMETRY = frozenset(TELEMETRY)


class Session(Closing):
    """State by type, fed by events.

    >>> session = Session()
    >>> session[str].append("a note")
    >>> session[str].all()
    ('a note',)

    On a bus, it records its own telemetry and the event types that it has reducers for.
    `bus` and `dispatcher` are two names of one argument.
    """

    def __init__(
        self,
        *,
        dispatcher: EventBus | None = None,
        bus: EventBus | None = None,
        session_id: UUID | None = None,
        created_at: datetime | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        if bus is not None and dispatcher is not None and bus is not dispatcher:
            raise UsageError("expected one bus, got `bus` and `dispatcher` that differ - pass one")
        if session_id is not None and not isinstance(session_id, UUID):
            raise UsageError(f"expected `session_id` to be a UUID, got {session_id!r}")
        self._session_id = session_id or new_uuid()
        self._created_at = created_at or SYSTEM_CLOCK.now()
        check_tags(tags or {})
        self._tags: Mapping[str, str] = MappingProxyType(dict(tags or {}))
        self._bus = dispatcher if dispatcher is not None else bus
        self._lock = threading.RLock()
        self._change = _Change(self._lock)
        self._slices: dict[type[Any], SliceStorage[Any]] = {}
        # Restored and not yet read, by stored name.
        self._raw: dict[str, bytes] = {}
        self._reducers: dict[type[Any], tuple[tuple[type[Any], Reducer[Any]], ...]] = {}
        self._attachment: BusAttachment | None = None
        if self._bus is not None:
            self._attachment = BusAttachment(self._bus, self._on_event)
            for event_type in TELEMETRY:
                self._attachment.subscribe(event_type, self._session_id)
            weakref.finalize(self, self._attachment.detach).atexit = False

    @property
    def session_id(self) -> UUID:
        """The id of the session, whose events it records."""
        return self._session_id

    @property
    def created_at(self) -> datetime:
        """The time when the session was created."""
        return self._created_at

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags that it was created with; read-only."""
        return self._tags

    @property
    def is_telemetry(self) -> bool:
        """True if it holds nothing but telemetry, which can always be encoded."""
        return not self._raw and self._slices.keys() <= _TELEMETRY

    @property
    def dispatcher(self) -> EventBus | None:
        """The bus it is on, if any."""
        return self._bus

    def __getitem__(self, wanted: type[T]) -> SliceAccessor[T]:
        return SliceAccessor(self, slice_type(wanted))

    # Otherwise Python would try `session[0]`, `session[1]`, ...
    __iter__ = None
    __contains__ = None

    def query(self, wanted: type[T]) -> SliceAccessor[T]:
        """Return `session[wanted]`."""
        return self[wanted]

    def mutate(self, wanted: type[T]) -> SliceAccessor[T]:
        """Return `session[wanted]`."""
        return self[wanted]

    def dispatch(self, event: object) -> DispatchResult:
        """Record the event here, then publish it for others; no other session records it.

        Telemetry that names no session becomes this session's own. A reducer that raises leaves
        the session unchanged, and nothing is published.
        """
        owner, mine = getattr(event, "session_id", None), self._session_id
        if owner is not mine and isinstance(owner, UUID) and owner != mine:
            raise UsageError(
                f"expected an event of session {mine}, got "
                f"`{type(event).__qualname__}` of {owner} - publish it on the bus instead"
            )
        event = self._owned(event)
        self._record(event)
        if self._bus is None:
            return DispatchResult(event)
        _publishing.events.append((self._bus, event))
        try:
            return self._bus.publish(event)
        finally:
            _publishing.events.pop()

    def view(self) -> SessionSnapshot:
        """Return the session as it is now, as an immutable snapshot."""
        with self._lock:
            return SessionSnapshot(
                session_id=self._session_id,
                created_at=self._created_at,
                tags=self._tags,
                _slices={cls: items.all() for cls, items in self._slices.items()},
                _raw=dict(self._raw),
            )

    def snapshot(self) -> bytes:
        """Return everything in the session, telemetry included, as JSON that `restore` reads."""
        return self.view().to_bytes()

    def restore(self, data: bytes | SessionSnapshot) -> Self:
        """Replace state, id, date and tags by those of the snapshot.

        The types need not be known yet; registered reducers stay.
        """
        snapshot = data if isinstance(data, SessionSnapshot) else SessionSnapshot.from_bytes(data)
        with self._change:
            self._session_id = snapshot.session_id
            self._created_at = snapshot.created_at
            self._tags = snapshot.tags
            self._slices = {cls: SliceStorage(items) for cls, items in snapshot._slices.items()}
            self._raw = dict(snapshot._raw)
            if self._attachment is not None:
                self._attachment.move(self._session_id)
        return self

    def close(self) -> None:
        """Unsubscribe from the bus. The state stays; calling it twice is harmless."""
        with self._lock:
            if self._attachment is not None:
                self._attachment.detach()

    def __repr__(self) -> str:
        counts = {cls.__qualname__: len(items) for cls, items in self._slices.items()}
        return f"Session({self._session_id}, {counts})"

    def _on_event(self, event: object) -> None:
        """Record an event from the bus, unless it is another session's or was dispatched here."""
        owner = getattr(event, "session_id", self._session_id)
        dispatched = any(
            bus is self._bus and published is event for bus, published in _publishing.events
        )
        if owner == self._session_id and not dispatched:
            self._record(event)

    def _owned(self, event: E) -> E:
        """Return telemetry that names no session as this session's own."""
        if isinstance(event, TELEMETRY) and event.session_id is None:
            return replace(event, session_id=self._session_id)
        return event

    def _record(self, event: object) -> None:
        cls = type(event)
        with self._change:
            reducers = self._reducers.get(cls, ())
            own = self._slice(cls) if not reducers or cls in TELEMETRY else None
            states: dict[type[Any], tuple[Any, ...]] = {}
            for target, reducer in reducers:
                # A second reducer of the same slice continues with the result of the first.
                state = states[target] if target in states else self._slice(target).all()
                states[target] = _reduce(reducer, state, event, target)
            for target, state in states.items():
                self._slice(target).replace(state)
            if own is not None:
                own.append(event)

    def _register(self, target: type[T], event_type: type[E], reducer: Reducer[T]) -> None:
        cls = slice_type(event_type)
        if not callable(reducer):
            raise UsageError(f"expected a function `(state, event) -> items`, got {reducer!r}")
        if cls is target and cls in TELEMETRY:
            raise UsageError(
                f"expected a slice other than `{cls.__qualname__}` for a reducer of its own "
                "events, since telemetry is kept as it happened - register it on another type"
            )
        with self._change:
            self._reducers[cls] = (*self._reducers.get(cls, ()), (target, reducer))
            if self._attachment is not None:
                self._attachment.subscribe(cls, self._session_id)

    def _peek(self, cls: type[T]) -> SliceStorage[T]:
        """Return the slice to read: decode a restored one, do not keep an unknown one."""
        known = self._slices.get(cls)
        if known is None and self._raw and (name := stored_name(self._raw, cls)) is not None:
            known = self._slices[cls] = SliceStorage(read_slice(self._raw[name], cls))
            del self._raw[name]
        return SliceStorage() if known is None else known

    def _slice(self, cls: type[T]) -> SliceStorage[T]:
        """Return the slice to write."""
        return self._slices.setdefault(cls, self._peek(cls))


class SliceAccessor(Generic[T]):
    """One slice of a live session, to read and to write."""

    __slots__ = ("_cls", "_session")

    def __init__(self, session: Session, cls: type[T]) -> None:
        self._session = session
        self._cls = cls

    def all(self) -> tuple[T, ...]:
        """Return all items, oldest first."""
        with self._session._lock:
            return self._session._peek(self._cls).all()

    def latest(self) -> T | None:
        """Return the newest item; None if the slice is empty."""
        with self._session._lock:
            return self._session._peek(self._cls).latest()

    def where(self, predicate: Callable[[T], bool]) -> tuple[T, ...]:
        """Return the items for which the predicate is true."""
        return tuple(item for item in self.all() if predicate(item))

    def append(self, item: T) -> None:
        """Record the item as `dispatch` would, reducers included, but do not publish it."""
        checked((item,), self._cls, "`append`")
        self._session._record(self._session._owned(item))

    def seed(self, items: T | Iterable[T]) -> None:
        """Replace the whole slice by one item or several."""
        single = type(items) is self._cls or not isinstance(items, Iterable)
        many = (items,) if single else cast("Iterable[T]", items)
        new = checked(many, self._cls, "`seed`")
        with self._session._change:
            self._session._slice(self._cls).replace(new)

    def clear(self, predicate: Callable[[T], bool] | None = None) -> None:
        """Remove every item, or those for which the predicate is true."""
        with self._session._change:
            items = self._session._peek(self._cls)
            if predicate is None:
                items.replace(())
            else:
                items.replace(tuple(item for item in items.all() if not predicate(item)))

    def register(
        self, event_type: type[E], reducer: Callable[[tuple[T, ...], E], Iterable[T]]
    ) -> None:
        """Let each event of exactly this type replace the slice by `reducer(items, event)`.

        >>> session = Session()
        >>> session[int].register(str, lambda state, event: (*state, len(event)))
        >>> session.dispatch("four").ok, session[int].all()
        (True, (4,))
        """
        self._session._register(self._cls, event_type, reducer)

    def __len__(self) -> int:
        with self._session._lock:
            return len(self._session._peek(self._cls))

    def __iter__(self) -> Iterator[T]:
        return iter(self.all())


@dataclass(slots=True, eq=False)
class _Change:
    """Guards all writes. Code that is called during one, such as a reducer, may not write."""

    _lock: threading.RLock
    _writing: bool = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._writing:
            self._lock.release()
            raise UsageError(
                "expected a reducer or predicate that only returns, got one that changes "
                "the session - return the new items instead"
            )
        self._writing = True

    def __exit__(self, *error: object) -> None:
        self._writing = False
        self._lock.release()


def snapshot_bytes(session: Session | SessionView | bytes) -> bytes:
    """Return the bytes of a session, a view of one, or its snapshot; raise for anything else."""
    if isinstance(session, bytes):
        session = SessionSnapshot.from_bytes(session)
    if isinstance(session, Session):
        session = session.view()
    if not isinstance(session, SessionSnapshot):
        raise UsageError(f"expected a session or its snapshot, got {short_repr(session)}")
    return session.to_bytes()


class _Publishing(threading.local):
    """The events that sessions of this thread have recorded and are publishing, by bus."""

    def __init__(self) -> None:
        self.events: list[tuple[EventBus, object]] = []


_publishing = _Publishing()


def _reduce(
    reducer: Reducer[T], state: tuple[T, ...], event: object, target: type[T]
) -> tuple[T, ...]:
    try:
        return checked(reducer(state, event), target, "a reducer")
    except Exception as error:
        name = getattr(reducer, "__qualname__", repr(reducer))
        error.add_note(
            f"in the reducer `{name}` of the slice `{type_name(target)}`, on an event "
            f"`{type_name(type(event))}`; the session is unchanged"
        )
        raise
