"""What an SQS message looks like: which text a letter becomes, and where one that is too long goes.

SQS takes no control characters and counts bytes, so a body is ASCII. An envelope that is ASCII goes
as it is, anything else as `base64:…`. One longer than the queue takes is kept in a store under its
hash, and `claim:HASH` goes in its place.
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

from ...errors import MailboxConnectionError, MailboxError, StoreError
from ._types import Letter

__all__ = ["BodyStore", "claimed", "entry", "is_claim", "letter", "parts"]

ENCODED = "base64:"
CLAIM = "claim:"

_CLAIM = re.compile(rb"claim:([0-9a-f]{64})")
_PLAIN = re.compile(rb"(?!base64:|claim:)[\t\n\x20-\x7e]+")
_ID, _REPLY_TO = "wink-id", "wink-reply-to"


class BodyStore(Protocol):
    """Where long bodies are kept: `RedisStore`, or anything that finds what it was given."""

    def find(self, key: str) -> bytes | None: ...
    def keep(self, key: str, value: bytes) -> bytes: ...


def entry(letter: Letter, number: int, limit: int, store: BodyStore | None) -> dict[str, Any]:
    """A letter as an entry of a batch, of at most so many bytes."""
    attributes = {_ID: letter.id}
    if letter.reply_to is not None:
        attributes[_REPLY_TO] = letter.reply_to
    made = {
        "Id": str(number),
        "MessageBody": _written(letter.content),
        "MessageAttributes": {
            # As JSON, which is ASCII whatever the text.
            name: {"DataType": "String", "StringValue": json.dumps(text)}
            for name, text in attributes.items()
        },
    }
    if (size := _size(made)) <= limit:
        return made
    if store is None:
        raise MailboxError(
            f"expected a message of at most {limit:,} bytes, got {size:,} (id {letter.id!r}) - "
            "give the mailbox a `store` such as `RedisStore` for long bodies"
        )
    hash = sha256(letter.content).hexdigest()
    with _reported(hash):
        store.keep(_key(hash), letter.content)  # before the message: whoever gets that finds it
    return {**made, "MessageBody": CLAIM + hash}


def letter(message: dict[str, Any]) -> Letter:
    """A message as it was received; a body that is kept in a store is still only a claim."""
    attributes = {
        name: _text(value.get("StringValue", ""))
        for name, value in message.get("MessageAttributes", {}).items()
    }
    id = attributes.get(_ID) or message["MessageId"]
    return Letter(id, _read(message["Body"]), attributes.get(_REPLY_TO))


def is_claim(content: bytes) -> bool:
    """Whether a body is kept in a store, and only its claim is here."""
    return _CLAIM.fullmatch(content) is not None


def claimed(content: bytes, store: BodyStore | None) -> bytes:
    """The body that a claim stands for; the claim itself where it is not to be had."""
    claim = _CLAIM.fullmatch(content)
    if claim is None or store is None:
        return content
    hash = claim[1].decode()
    with _reported(hash):
        found = store.find(_key(hash))
    return found if found is not None and sha256(found).hexdigest() == hash else content


def parts(entries: Sequence[dict[str, Any]], limit: int) -> Iterator[list[dict[str, Any]]]:
    """Batches: what one call carries has a limit in bytes too, together."""
    part: list[dict[str, Any]] = []
    total = 0
    for each in entries:
        size = _size(each)
        if part and total + size > limit:
            yield part
            part, total = [], 0
        part.append(each)
        total += size
    if part:
        yield part


@contextmanager
def _reported(hash: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise MailboxConnectionError(
            f"expected the mailbox's `store` to answer for a long body ({_key(hash)}), got: {error}"
        ) from error


def _key(hash: str) -> str:
    return f"mail-{hash}"


def _size(made: dict[str, Any]) -> int:
    attributes = made["MessageAttributes"].items()
    return len(made["MessageBody"]) + sum(
        len(name) + len(value["DataType"]) + len(value["StringValue"]) for name, value in attributes
    )


def _written(content: bytes) -> str:
    if _PLAIN.fullmatch(content):
        return content.decode("ascii")
    return ENCODED + b64encode(content).decode("ascii")


def _read(body: str) -> bytes:
    if body.startswith(ENCODED):
        try:
            return b64decode(body.removeprefix(ENCODED), validate=True)
        except (binascii.Error, ValueError):  # somebody else's: handed on as it is
            pass
    return body.encode("utf-8", "surrogatepass")


def _text(value: str) -> str:
    """An attribute's text; one that somebody else wrote as it is."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, str) else value
