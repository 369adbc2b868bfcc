"""A slice: all items of one type in a session, and the ways to read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import Annotated, Any, Generic, Protocol, TypeVar, get_origin, runtime_checkable
from uuid import UUID

from ...errors import UsageError
from ...serde import type_name

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class SliceView(Protocol[T_co]):
    """Read-only access to the items of one type, oldest first."""

    def all(self) -> tuple[T_co, ...]:
        """Return all items."""
        ...

    def latest(self) -> T_co | None:
        """Return the newest item; None if the slice is empty."""
        ...

    def where(self, predicate: Callable[[T_co], bool]) -> tuple[T_co, ...]:
        """Return the items for which the predicate is true."""
        ...


@runtime_checkable
class SessionView(Protocol):
    """Read-only access to a session, live or from a snapshot, for evaluators."""

    @property
    def session_id(self) -> UUID:
        """The id of the session."""
        ...

    def __getitem__(self, wanted: type[T], /) -> SliceView[T]:
        """Return the slice of one type; empty if the type was never recorded."""
        ...


class SliceSnapshot(Generic[T]):
    """An immutable slice."""

    __slots__ = ("_items",)

    def __init__(self, items: tuple[T, ...]) -> None:
        self._items = items

    def all(self) -> tuple[T, ...]:
        """Return all items, oldest first."""
        return self._items

    def latest(self) -> T | None:
        """Return the newest item; None if the slice is empty."""
        return self._items[-1] if self._items else None

    def where(self, predicate: Callable[[T], bool]) -> tuple[T, ...]:
        """Return the items for which the predicate is true."""
        return tuple(item for item in self._items if predicate(item))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)


class SliceStorage(Generic[T]):
    """The storage of a slice: a list to append to, and a cached tuple to return."""

    __slots__ = ("_all", "_items")

    def __init__(self, items: tuple[T, ...] = ()) -> None:
        self.replace(items)

    def replace(self, items: tuple[T, ...]) -> None:
        self._items = list(items)
        self._all: tuple[T, ...] | None = items

    def append(self, item: T) -> None:
        self._items.append(item)
        self._all = None

    def all(self) -> tuple[T, ...]:
        if self._all is None:
            self._all = tuple(self._items)
        return self._all

    def latest(self) -> T | None:
        return self._items[-1] if self._items else None

    def __len__(self) -> int:
        return len(self._items)


def slice_type(wanted: type[T]) -> type[T]:
    """Return the class that keys a slice: `EvalResult[str]` and `EvalResult` are one slice."""
    cls: Any = get_origin(wanted) or wanted
    if not isinstance(cls, type) or cls in (Any, Annotated, UnionType):
        raise UsageError(f"expected a class to name a slice, got {wanted!r}")
    return cls


def checked(items: Iterable[Any], cls: type[T], source: str) -> tuple[T, ...]:
    """Return the items if each is exactly a `cls`: mixed types could not be decoded."""
    items = tuple(items)
    for index, item in enumerate(items):
        if type(item) is not cls:
            raise UsageError(
                f"expected `{cls.__qualname__}`, got `{type(item).__qualname__}` - "
                f"at item {index} from {source} for the slice `{type_name(cls)}`"
            )
    return items
