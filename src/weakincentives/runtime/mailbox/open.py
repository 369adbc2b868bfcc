"""Open a mailbox by its URL, as commands and settings give it. Errors never show a password."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ...errors import UsageError
from .backends.memory import InMemoryMailbox, MemoryQueue
from .core.mailbox import QueueMailbox

_FORMS = (
    "memory://NAME, sqlite:///PATH#NAME (sqlite:////PATH for an absolute one), "
    "redis://USER:PASSWORD@HOST:PORT/0#NAME (also rediss, valkey and valkeys), "
    "sqs://NAME?region=REGION&endpoint=URL"
)


class _InvalidUrl(ValueError):
    """A problem with a URL, in a text that does not quote the URL."""


def open_mailbox(url: str, body_type: Any = None, name: str | None = None) -> QueueMailbox[Any]:
    """Return the mailbox at a URL.

        open_mailbox("memory://requests")
        open_mailbox("sqlite:///.wink/mail.db#requests")
        open_mailbox("redis://127.0.0.1:6379/0#requests")
        open_mailbox("sqs://requests?region=eu-west-1")

    `name` is the mailbox's name, instead of the one in the URL. Mailboxes of one URL in a process
    share their queue in memory, or their client.
    """
    if not isinstance(url, str):
        raise UsageError(f"expected the URL of a mailbox, got `{type(url).__name__}` - {_FORMS}")
    try:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise _InvalidUrl("unknown scheme")
        return _SCHEMES[parts.scheme](parts, body_type, name)
    except UsageError:
        raise
    except ValueError as error:  # the messages of other errors may quote the URL
        problem = str(error) if isinstance(error, _InvalidUrl) else "it cannot be parsed"
        raise UsageError(
            f"expected the URL of a mailbox, got {_safe(url)!r}: {problem} - write {_FORMS}"
        ) from None


def _safe(url: str) -> str:
    return re.sub(r"\?[^#]*", "?…", re.sub(r"//.*@", "//…@", url))


def _memory(parts: SplitResult, body_type: Any, name: str | None) -> QueueMailbox[Any]:
    _refuse(parts, "path", "query", "fragment")
    return InMemoryMailbox(queue=_in_memory.sibling(_named(parts.netloc, name)))


def _sqlite(parts: SplitResult, body_type: Any, name: str | None) -> QueueMailbox[Any]:
    from .backends.sqlite.mailbox import SqliteMailbox

    _refuse(parts, "netloc", "query")
    path = unquote(parts.path.removeprefix("/"))
    if not path or path.endswith("/"):
        raise _InvalidUrl("it names no file")
    return SqliteMailbox(_named(parts.fragment, name), path, body_type)


def _redis(parts: SplitResult, body_type: Any, name: str | None) -> QueueMailbox[Any]:
    from .backends.redis.client import redis_library
    from .backends.redis.mailbox import RedisMailbox

    if "@" in parts.path + parts.query + parts.fragment:
        raise _InvalidUrl(
            "write `#`, `/`, `?` and `@` in a password or a name as %23, %2F, %3F and %40"
        )
    if not parts.hostname:
        raise _InvalidUrl("it names no host")
    if not re.fullmatch(r"/?[0-9]*", parts.path):
        raise _InvalidUrl("its database is not a number")
    scheme = parts.scheme.replace("valkey", "redis")
    address = parts._replace(scheme=scheme, fragment="").geturl()
    client = _client(address, lambda: redis_library().Redis.from_url(address))
    return RedisMailbox(_named(parts.fragment, name), client, body_type)


def _sqs(parts: SplitResult, body_type: Any, name: str | None) -> QueueMailbox[Any]:
    from .backends.sqs.client import sqs_client
    from .backends.sqs.mailbox import SQSMailbox

    _refuse(parts, "path", "fragment")
    options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    if not options.keys() <= {"region", "endpoint"}:
        raise _InvalidUrl("it has options other than `region` and `endpoint`")
    client = _client(f"sqs:{sorted(options.items())}", lambda: sqs_client(**options))
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

_in_memory = MemoryQueue("memory")  # finds all others by name
_clients: dict[tuple[int, str], Any] = {}


def _client(address: str, connect: Callable[[], Any]) -> Any:
    """Return the process's client: after a fork, parent and child must not share a connection."""
    key = os.getpid(), address
    if key not in _clients:
        _clients.setdefault(key, connect())
    return _clients[key]


def _named(url_part: str, name: str | None) -> str:
    chosen = unquote(url_part) if name is None else name
    if not chosen:
        raise _InvalidUrl("it names no mailbox")
    return chosen


def _refuse(parts: SplitResult, *fields: str) -> None:
    for field in fields:
        if getattr(parts, field):
            raise _InvalidUrl(f"a {parts.scheme} URL has no {field}")
