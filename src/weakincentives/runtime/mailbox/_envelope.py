"""How a body travels: one line that says what it is, and the body as JSON.

    9f86d081884c7d65 {"v":1,"type":"my.module:Question"}
    {"text":"What is 2 + 2?"}

Rules of this file:
1. The name of a type is looked up among what the receiver has imported, and only classes that hold
   data are found: nothing is imported, called or unpickled because a message says so.
2. A changed byte is noticed: the line begins with a sum of all that follows.
3. Whatever is wrong, the reader gets a `SerializationError` that says what to do.
4. What a worker sends back holds no secret: its class is `sent_scrubbed`. Requests go as they are,
   since somebody needs what is in them.

The types of bodies are in `_type_names.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from ... import serde
from ...errors import SerializationError, shown
from ...secrets import scrub_bytes
from ._type_names import name_of, type_for

__all__ = ["pack", "sent_scrubbed", "unpack"]

_SUM = 16  # characters


class _Head(msgspec.Struct, omit_defaults=True):
    v: int
    type: str = ""
    headers: dict[str, str] = {}


_encode_head = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_Head).decode


_scrubbed: set[type] = set()
T = TypeVar("T")


def sent_scrubbed(kind: type[T]) -> type[T]:
    """A class of results: from now on secrets are taken out of what is sent of it."""
    _scrubbed.add(kind)
    return kind


def pack(body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a body and its headers."""
    content = serde.encode(body)
    if type(body) in _scrubbed:
        content = scrub_bytes(content)
    try:
        kind = name_of(body)
    except RecursionError:
        kind = ""  # plain data, since nobody's classes lie that deep
    try:
        head = _encode_head(_Head(1, kind, dict(headers) if headers else {}))
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"expected headers of text, got {shown(headers)}: {error}"
        ) from None
    rest = b" %b\n%b" % (head, content)
    return _sum(rest) + rest


def unpack(data: bytes, body_type: Any = None) -> tuple[Any, Mapping[str, str]]:
    """The body and its headers. With `body_type`, a body of another type is refused."""
    rest = data[_SUM:]
    if _sum(rest) != data[:_SUM]:
        raise SerializationError(
            f"expected a body as it was sent, got {len(data)} bytes that changed on the way, "
            f"or were never sent by a mailbox: {shown(data)}"
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
        return serde.decoder(type_for(kind, body_type))(content), head.headers
    except SerializationError:
        raise
    except Exception as error:  # whatever a class raises that is filled with what came
        what = f"a body of type {shown(kind)}" if kind else "a body"
        raise SerializationError(f"{error or type(error).__name__} (in {what})") from error


def _sum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SUM // 2).hexdigest().encode()
