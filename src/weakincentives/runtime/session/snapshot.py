"""A session at one point in time: what evaluators read, and its encoding as bytes.

Rules of this file:
1. Bytes never name a class to import. A slice stays raw JSON until a reader names a class for it;
   only then are the items built, as that class.
2. A raw slice that was not read is written to the next snapshot unchanged.
3. Invalid bytes always raise a `SnapshotError`.

The format is `{"version": 1, "session_id", "created_at", "tags", "slices": [{"type", "items"}]}`,
where `type` is `module:QualName`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec

from ... import serde
from ...errors import SerializationError, SnapshotError, UsageError, short_repr
from ...internal.frozen import fast_init
from ...internal.wire_names import named_type
from .slices import SliceSnapshot, slice_type

T = TypeVar("T")


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SessionSnapshot:
    """An immutable `SessionView`. Get one from `Session.view()` or `SessionSnapshot.from_bytes`.

    Two are equal if they hold the same data, whether their slices are still raw or not.
    """

    session_id: UUID
    created_at: datetime
    tags: Mapping[str, str]
    _slices: Mapping[type[Any], tuple[Any, ...]] = field(default_factory=dict, repr=False)
    _raw: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    # Raw slices that were read. `_raw` stays, and is what is written.
    _read: dict[type[Any], tuple[Any, ...]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", MappingProxyType(dict(self.tags)))

    # Otherwise Python would try `view[0]`, `view[1]`, ...
    __iter__ = None
    __contains__ = None

    def __getitem__(self, wanted: type[T]) -> SliceSnapshot[T]:
        cls = slice_type(wanted)
        items = self._slices.get(cls) or self._read.get(cls)
        if items is None and (name := stored_name(self._raw, cls)) is not None:
            items = self._read[cls] = read_slice(self._raw[name], cls)
        return SliceSnapshot(items or ())

    def to_bytes(self) -> bytes:
        """Return the session as JSON, without empty slices, which read the same."""
        slices = dict(self._raw)
        for cls, items in self._slices.items():
            if not items:
                continue
            name = serde.type_name(cls)
            if name in slices:
                raise SnapshotError(
                    f"expected one slice per type name, got two types called `{name}` - "
                    "rename one of them"
                )
            slices[name] = _write_slice(name, items)
        return msgspec.json.encode(
            {
                "version": 1,
                "session_id": self.session_id,
                "created_at": self.created_at,
                "tags": msgspec.Raw(serde.encode(dict(self.tags))),
                "slices": [
                    {"type": name, "items": msgspec.Raw(items)} for name, items in slices.items()
                ],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> SessionSnapshot:
        """Decode what `to_bytes` returned; safe on bytes from anywhere."""
        if not isinstance(data, bytes):
            raise UsageError(
                f"expected the `bytes` of a snapshot, got {short_repr(data)} - "
                "pass what `snapshot()` or `to_bytes()` returned"
            )
        try:
            envelope = _read_envelope(data)
        except SerializationError as error:
            raise SnapshotError(
                f"expected a session snapshot of version 1, got {len(data)} bytes: {error}"
            ) from None
        raw = {_current_name(stored.type): bytes(stored.items) for stored in envelope.slices}
        if len(raw) < len(envelope.slices):
            raise SnapshotError("expected one slice per type name, got one twice - at `$.slices`")
        return cls(
            session_id=envelope.session_id,
            created_at=envelope.created_at,
            tags=envelope.tags,
            _raw=raw,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return SessionSnapshot.from_bytes, (self.to_bytes(),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SessionSnapshot):
            return NotImplemented
        return self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self.session_id)

    def _value(self) -> tuple[object, ...]:
        typed = {serde.type_name(cls): items for cls, items in self._slices.items()}
        slices = {name: _comparable(items) for name, items in {**typed, **self._raw}.items()}
        filled = {name: items for name, items in slices.items() if items}
        return self.session_id, self.created_at, self.tags, filled


def _current_name(name: str) -> str:
    """Return the current wire name for one that an earlier version wrote."""
    cls = named_type(name)
    return name if cls is None else serde.type_name(cls)


def stored_name(names: Iterable[str], cls: type[Any]) -> str | None:
    """Return the stored name of this class.

    A script's classes are in `__main__` in one process and in a module in another, so the module
    may differ if no other stored type has the same name.
    """
    exact = serde.type_name(cls)
    module, _, qualname = exact.partition(":")
    same = [name for name in names if name.partition(":")[2] == qualname]
    if exact in same:
        return exact
    if len(same) == 1 and "__main__" in (module, same[0].partition(":")[0]):
        return same[0]
    return None


def read_slice(data: bytes, cls: type[T]) -> tuple[T, ...]:
    """Decode raw items as instances of a class that the reader chose."""
    try:
        return tuple(serde.decode(data, list[cls]))  # type: ignore[valid-type]
    except Exception as error:  # the class itself may raise on invalid values
        raise SnapshotError(
            f"expected items that fit `{cls.__qualname__}`: {error} - "
            f"in the slice `{serde.type_name(cls)}`"
        ) from error


def _write_slice(name: str, items: Iterable[Any]) -> bytes:
    encoded = []
    for index, item in enumerate(items):
        try:
            encoded.append(serde.encode(item))
        except SerializationError as error:
            raise SnapshotError(
                f"{error} - at item {index} of the slice `{name}`; "
                "keep only plain data and dataclasses in a session"
            ) from None
    return b"[" + b",".join(encoded) + b"]"


def _comparable(items: Sequence[Any]) -> Any:
    try:
        return serde.decode(items) if isinstance(items, bytes) else serde.plain(items)
    except SerializationError:
        return items


class _Stored(msgspec.Struct, Generic[T]):
    type: str
    items: T


class _Envelope(msgspec.Struct, Generic[T]):
    version: Literal[1]
    session_id: UUID
    created_at: datetime
    tags: dict[str, str]
    slices: list[_Stored[T]]


_envelope_decoder = msgspec.json.Decoder(_Envelope[msgspec.Raw])


def _read_envelope(data: bytes) -> _Envelope[Any]:
    try:
        return _envelope_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # msgspec refuses lone surrogates even in what it skips. `serde` reads them, and the items
        # are encoded again; for any other damage it raises the right error.
        envelope: _Envelope[Any] = serde.decode(data, _Envelope[list[Any]])
        for stored in envelope.slices:
            stored.items = _write_slice(stored.type, stored.items)
        return envelope
