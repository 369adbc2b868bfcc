"""From a URL to a mailbox: how commands and settings name one. Passwords are never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ...errors import MissingExtraError, UsageError
from ._mailbox import QueueMailbox
from ._memory import InMemoryMailbox, MemoryQueue

__all__ = ["open_mailbox"]

_FORMS = (
    "memory://NAME, sqlite:///PATH#NAME (sqlite:////PATH for an absolute one), "
    "redis://USER:PASSWORD@HOST:PORT/0#NAME (also rediss, valkey and valkeys), "
    "sqs://NAME?region=REGION&endpoint=URL"
)


class _Wrong(ValueError):
    """What is wrong with a URL, in words that quote nothing of it."""


def open_mailbox(url: str, body_type: Any = None, name: str | None = None) -> QueueMailbox[Any]:
    """The mailbox at a URL.

        open_mailbox("memory://requests")
        open_mailbox("sqlite:///.wink/mail.db#requests")
        open_mailbox("redis://127.0.0.1:6379/0#requests")
        open_mailbox("sqs://requests?region=eu-west-1")

    `name` gives the mailbox's name, or replaces the one in the URL. What the same URL leads to is
    shared within a process: the queue in memory, the client of a server.
    """
    if not isinstance(url, str):
        raise UsageError(f"expected the URL of a mailbox, got `{type(url).__name__}` - {_FORMS}")
    try:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise _Wrong("this is none of the schemes")
        return _SCHEMES[parts.scheme](parts, body_type, name)
    except UsageError:
        raise
    except ValueError as error:  # what others say may quote the URL
        problem = str(error) if isinstance(error, _Wrong) else "it cannot be read"
        raise UsageError(
            f"expected the URL of a mailbox, got {_safe(url)!r}: {problem} - write {_FORMS}"
        ) from None


def _safe(url: str) -> str:
    return re.sub(r"\?[^#]*", "?…", re.sub(r"//.*@", "//…@", url))


def _memory(parts: SplitResult, body_type: Any, name: str | None) -> QueueMailbox[Any]:
    _refuse(parts, "path", "query", "fragment")
    return InMemoryMailbox(queue=_in_memory.sibling(_named(parts.netloc, name)))


def _sqlite(parts: SplitResult, body_type: Any, name: str | None) -> QueueMailbox[Any]:
    from ._sqlite import SqliteMailbox

    _refuse(parts, "netloc", "query")
    path = unquote(parts.path.removeprefix("/"))
    if not path or path.endswith("/"):
        raise _Wrong("it names no file")
    return SqliteMailbox(_named(parts.fragment, name), path, body_type)


def _redis(parts: SplitResult, body_type: Any, name: str | None) -> QueueMailbox[Any]:
    from ._redis import RedisMailbox

    if "@" in parts.path + parts.query + parts.fragment:
        raise _Wrong("write `#`, `/`, `?` and `@` in a password or a name as %23, %2F, %3F and %40")
    if not parts.hostname:
        raise _Wrong("it names no host")
    if not re.fullmatch(r"/?[0-9]*", parts.path):
        raise _Wrong("its database is no number")
    scheme = parts.scheme.replace("valkey", "redis")
    address = parts._replace(scheme=scheme, fragment="").geturl()
    return RedisMailbox(
        _named(parts.fragment, name), _client(address, lambda: _redis_client(address)), body_type
    )


def _redis_client(address: str) -> Any:
    try:
        import redis
    except ImportError:
        raise MissingExtraError("redis", "redis", "a mailbox on Redis") from None
    return redis.Redis.from_url(address)


def _sqs(parts: SplitResult, body_type: Any, name: str | None) -> QueueMailbox[Any]:
    from ._sqs import SQSMailbox
    from ._sqs_client import sqs_client

    _refuse(parts, "path", "fragment")
    given = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    if not given.keys() <= {"region", "endpoint"}:
        raise _Wrong("it has options other than `region` and `endpoint`")
    client = _client(f"sqs:{sorted(given.items())}", lambda: sqs_client(**given))
    return SQSMailbox(_named(parts.netloc, name), client, body_type)


_SCHEMES: dict[str, Callable[[SplitResult, Any, str | None], QueueMailbox[Any]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "redis": _redis,
    "rediss": _redis,
    "valkey": _redis,
    "valkeys": _redis,
    "sqs": _sqs,
}

_in_memory = MemoryQueue("memory")  # knows the others by name
_clients: dict[tuple[int, str], Any] = {}


def _client(address: str, connect: Callable[[], Any]) -> Any:
    """One a process: after a fork, parent and child may not share a connection."""
    key = os.getpid(), address
    if key not in _clients:
        _clients.setdefault(key, connect())
    return _clients[key]


def _named(found: str, name: str | None) -> str:
    chosen = unquote(found) if name is None else name
    if not chosen:
        raise _Wrong("it names no mailbox")
    return chosen


def _refuse(parts: SplitResult, *fields: str) -> None:
    for field in fields:
        if getattr(parts, field):
            raise _Wrong(f"a {parts.scheme} URL has no {field}")
