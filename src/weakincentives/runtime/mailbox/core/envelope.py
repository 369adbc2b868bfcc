"""The wire format of a body: one line with its type and headers, and the body as JSON.

    9f86d081884c7d65 {"v":1,"type":"my.module:Question"}
    {"text":"What is 2 + 2?"}

Rules of this file:
1. The name of a type is looked up among what the receiver has imported, and only classes that hold
   data are found: nothing is imported, called or unpickled because a message says so.
2. A changed byte is detected: the line begins with a checksum of all that follows.
3. Every failure is a `SerializationError` that says what to do.
4. Secrets are redacted from results: their class is registered by `redact_when_sent`. Requests are
   sent unchanged, since a worker needs their content.

The names of types are in `mailbox/core/type_names.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec

from .... import serde
from ....errors import SerializationError, short_repr
from ....secrets import redact_bytes
from .type_names import field_names, name_of, open_fields, type_for

_CHECKSUM_CHARS = 16


class _Head(msgspec.Struct, omit_defaults=True):
    v: int
    type: str = ""
    headers: dict[str, str] = {}
    fields: dict[str, str] = {}  # the types of fields that the type of the body leaves open


_encode_head = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_Head).decode


_redacted: dict[type, Callable[[Any], Any]] = {}
T = TypeVar("T")


def redact_when_sent(kind: type[T], redact_ids: Callable[[T], T] = lambda body: body) -> type[T]:
    """Register a class of results: secrets are redacted when one is sent.

    `redact_ids` returns a body whose ids contain secrets as one whose ids are still distinct.
    """
    _redacted[kind] = redact_ids
    return kind


@dataclass(frozen=True, slots=True)
class Packed(Generic[T]):
    """A body with its encoding, so that checking, storing and sending it encode it once."""

    body: T
    data: bytes
    kind: str  # the wire name of its type

    @classmethod
    def of(cls, body: T) -> Packed[T]:
        """Encode a body without headers."""
        return cls(body, *_encode(body))


def body_of(body: Any) -> Any:
    """Return the body itself, for a mailbox that delivers objects."""
    return body.body if isinstance(body, Packed) else body


def pack(body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """Encode a body and its headers."""
    if isinstance(body, Packed) and not headers:
        return body.data
    return _encode(body_of(body), headers)[0]


def _encode(body: Any, headers: Mapping[str, str] | None = None) -> tuple[bytes, str]:
    """Return the encoding of a body and its headers, and the wire name of its type."""
    content = serde.encode(body)
    if (redact_ids := _redacted.get(type(body))) and redact_bytes(content) is not content:
        content = redact_bytes(serde.encode(redact_ids(body)))
    try:
        kind, fields = name_of(body), field_names(body)
    except RecursionError:
        kind, fields = "", {}  # plain data: classes are not nested that deep
    try:
        head = _encode_head(_Head(1, kind, dict(headers) if headers else {}, fields))
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"expected headers of text, got {short_repr(headers)}: {error}"
        ) from None
    rest = b" %b\n%b" % (head, content)
    return _checksum(rest) + rest, kind


def unpack(data: bytes, body_type: Any = None) -> tuple[Any, Mapping[str, str]]:
    """Decode a body and its headers; with `body_type`, refuse a body of another type."""
    rest = data[_CHECKSUM_CHARS:]
    if _checksum(rest) != data[:_CHECKSUM_CHARS]:
        raise SerializationError(
            f"expected a body as it was sent, got {len(data)} bytes that are damaged, or were not "
            f"sent by a mailbox: {short_repr(data)}"
        )
    line, _, content = rest.partition(b"\n")
    kind = ""
    try:
        head = _decode_head(line)
        if head.v != 1:
            raise SerializationError(
                f"expected an envelope of version 1, got {head.v} - update WINK"
            )
        kind = head.type
        body = serde.decoder(type_for(kind, body_type))(content)
        return _with_typed_fields(body, head.fields) if head.fields else body, head.headers
    except SerializationError:
        raise
    except Exception as error:  # whatever a class raises when it is built from the data
        where = f"a body of type {short_repr(kind)}" if kind else "a body"
        raise SerializationError(f"{error or type(error).__name__} (in {where})") from error


def _with_typed_fields(body: Any, names: Mapping[str, str]) -> Any:
    """Return the body with these fields as the sender had them; plain if a type is unknown here."""
    kind: Any = type(body)
    typed: dict[str, Any] = {}
    for name in names.keys() & set(open_fields(kind)):
        value = getattr(body, name)
        try:
            typed[name] = serde.decode(serde.encode(value), type_for(names[name], type(value)))
        except Exception:  # whatever a class raises when it is built from the data
            continue
    return replace(body, **typed) if typed else body


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECKSUM_CHARS // 2).hexdigest().encode()
