"""The body of an SQS message: its text, and where one that is too long is stored.

SQS allows no control characters and counts bytes, so a body is ASCII. An envelope that is ASCII is
sent as it is, anything else as `base64:…`. One that is longer than the queue allows is kept in a
store under its hash, and `claim:HASH` is sent in its place (the "claim check" pattern).
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Protocol

from .....errors import MailboxConnectionError, MailboxError, StoreError
from ...core.types import OutboundMessage

ENCODED = "base64:"
CLAIM = "claim:"

_CLAIM = re.compile(rb"claim:([0-9a-f]{64})")
_PLAIN = re.compile(rb"(?!base64:|claim:)[\t\n\x20-\x7e]+")
_ID, _REPLY_TO = "wink-id", "wink-reply-to"
_GROUP_ID = "MessageGroupId"  # on a standard queue it makes SQS share the queue fairly


class BodyStore(Protocol):
    """Stores long bodies: a `RedisStore`, or anything with these two methods."""

    def find(self, key: str) -> bytes | None: ...
    def keep(self, key: str, value: bytes) -> bytes: ...


def to_entry(
    message: OutboundMessage, number: int, limit: int, store: BodyStore | None
) -> dict[str, Any]:
    """Return a message as an entry of a batch, of at most `limit` bytes."""
    attributes = {_ID: message.id}
    if message.reply_to is not None:
        attributes[_REPLY_TO] = message.reply_to
    entry = {
        "Id": str(number),
        "MessageBody": _encoded(message.content),
        "MessageAttributes": {
            # As JSON, which is always ASCII.
            name: {"DataType": "String", "StringValue": json.dumps(text)}
            for name, text in attributes.items()
        },
    }
    if message.group:
        entry[_GROUP_ID] = digest_of(message.group)
    if (size := _size(entry)) <= limit:
        return entry
    if store is None:
        raise MailboxError(
            f"expected a message of at most {limit:,} bytes, got {size:,} (id {message.id!r}) - "
            "give the mailbox a `store` such as `RedisStore` for long bodies"
        )
    hash = sha256(message.content).hexdigest()
    with _translated(hash):
        store.keep(_key(hash), message.content)  # first, so that every receiver finds it
    return {**entry, "MessageBody": CLAIM + hash}


def digest_of(group: str) -> str:
    """Return a group in the characters and the length that SQS allows."""
    return sha256(group.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def without_group(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry for a service that knows no groups on standard queues."""
    return {name: value for name, value in entry.items() if name != _GROUP_ID}


def received_message(received: dict[str, Any]) -> OutboundMessage:
    """Return a received message; a body that is kept in a store is still only a claim."""
    attributes = {
        name: _text(value.get("StringValue", ""))
        for name, value in received.get("MessageAttributes", {}).items()
    }
    id = attributes.get(_ID) or received["MessageId"]
    return OutboundMessage(id, _decoded(received["Body"]), attributes.get(_REPLY_TO))


def is_claim(content: bytes) -> bool:
    """Return whether this is only a claim on a body that is kept in a store."""
    return _CLAIM.fullmatch(content) is not None


def resolve_claim(content: bytes, store: BodyStore | None) -> bytes:
    """Return the body that a claim stands for; the claim itself if it cannot be found."""
    claim = _CLAIM.fullmatch(content)
    if claim is None or store is None:
        return content
    hash = claim[1].decode()
    with _translated(hash):
        body = store.find(_key(hash))
    return body if body is not None and sha256(body).hexdigest() == hash else content


def split(entries: Sequence[dict[str, Any]], limit: int) -> Iterator[list[dict[str, Any]]]:
    """Split entries into batches of at most `limit` bytes."""
    batch: list[dict[str, Any]] = []
    total = 0
    for entry in entries:
        size = _size(entry)
        if batch and total + size > limit:
            yield batch
            batch, total = [], 0
        batch.append(entry)
        total += size
    if batch:
        yield batch


@contextmanager
def _translated(hash: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise MailboxConnectionError(
            f"expected the mailbox's `store` to answer for a long body ({_key(hash)}), got: {error}"
        ) from error


def _key(hash: str) -> str:
    return f"mail-{hash}"


def _size(entry: dict[str, Any]) -> int:
    attributes = entry["MessageAttributes"].items()
    return len(entry["MessageBody"]) + sum(
        len(name) + len(value["DataType"]) + len(value["StringValue"]) for name, value in attributes
    )


def _encoded(content: bytes) -> str:
    if _PLAIN.fullmatch(content):
        return content.decode("ascii")
    return ENCODED + b64encode(content).decode("ascii")


def _decoded(body: str) -> bytes:
    if body.startswith(ENCODED):
        try:
            return b64decode(body.removeprefix(ENCODED), validate=True)
        except (binascii.Error, ValueError):  # sent by a foreign client: deliver it unchanged
            pass
    return body.encode("utf-8", "surrogatepass")


def _text(value: str) -> str:
    """Return the text of an attribute; that of a foreign client unchanged."""
    try:
        text = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return text if isinstance(text, str) else value
