"""A Redis client as the user made it: what its errors mean, and whether its server keeps things."""

from __future__ import annotations

import ipaddress
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import MailboxError, MissingExtraError, UsageError, WinkError, shown
from ...secrets import keep_secret, logger_for

__all__ = ["check_client", "longest_wait", "look_once", "translated"]

logger = logger_for(__name__)

# What to do, by a word in the error's class or text. Old servers put the word inside the text.
_ADVICE = (
    ("OutOfMemory", "the server is out of memory: free some, or raise its `maxmemory`"),
    ("OOM", "the server is out of memory: free some, or raise its `maxmemory`"),
    ("MISCONF", "the server cannot write to its disk: free some space there"),
    ("ReadOnly", "this server is a replica: connect to the primary"),
    ("READONLY", "this server is a replica: connect to the primary"),
    ("BusyLoading", "the server is starting: try again soon"),
    ("ClusterDown", "the cluster has lost a part: see `CLUSTER INFO`, try again"),
    ("MasterDown", "the replica has lost its primary: try again"),
    ("Authentication", "give the client the right `username` and `password`"),
    ("NoPermission", "let this user run EVALSHA, EVAL and BLPOP on keys `{wink:*`"),
    ("unknown command", "use Redis 6.2 or later, or Valkey"),
    ("MaxConnections", "give the client a larger connection pool"),
    ("Timeout", "see whether the server is busy or the network slow, try again"),
    ("Connection", "see whether the server runs and can be reached, try again"),
)


def check_client(client: Any) -> None:
    """Refuse what is no synchronous client of redis-py; keep the password of what is."""
    try:
        import redis
    except ImportError:
        raise MissingExtraError("redis", "redis", "a mailbox on Redis") from None

    if not isinstance(client, redis.Redis | redis.RedisCluster):
        raise UsageError(
            "expected a client such as `redis.Redis(...)` or `redis.RedisCluster(...)`, got "
            f"{shown(client)}"
        )
    if isinstance(password := client.get_connection_kwargs().get("password"), str):
        keep_secret(password)


@contextmanager
def translated(what: str, client: Any, kind: type[WinkError]) -> Iterator[None]:
    """Make the client's errors ours, with the server's word and what to do."""
    from redis.exceptions import RedisClusterException, RedisError

    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        said = f"{type(error).__name__}: {error}"
        advice = next((text for word, text in _ADVICE if word in said), "see the server's log")
        raise kind(
            f"expected Redis at {_address(client)} to answer for {what}, got {said} - {advice}"
        ) from error


def longest_wait(client: Any) -> float:
    """Seconds for which one call may wait: less than what the client takes for a dead server."""
    patience = client.get_connection_kwargs().get("socket_timeout") or 5.0  # redis-py's default
    return float(min(4.0, patience * 0.8))


_looked: weakref.WeakSet[Any] = weakref.WeakSet()


def look_once(client: Any, name: str, require_durable: bool) -> None:
    """Warn, once a client, of a server that forgets or is open to all; refuse the first if asked.

    `INFO` tells it also where a hosted server keeps `CONFIG` to itself.
    """
    if client in _looked and not require_durable:
        return
    from redis.exceptions import ResponseError

    try:
        told = client.info()
    except ResponseError:  # this user may not ask
        told = {}
    if client not in _looked:
        _looked.add(client)
        if _is_open(client):
            logger.warning(
                "Redis at %s is on the network without password and TLS: whoever reaches it can "
                "read and change messages - set `requirepass` and use rediss://",
                _address(client),
            )
        if told and (fault := _forgets(told)):
            logger.warning("Messages on Redis at %s may be lost: %s", _address(client), fault)
    if require_durable and (fault := _forgets(told)):
        raise MailboxError(
            f"expected a durable server for the mailbox {name!r} (`require_durable`), got one at "
            f"{_address(client)}: {fault}"
        )


def _forgets(told: dict[str, Any]) -> str | None:
    if not told:
        return "it does not let this user run INFO, so nobody knows - allow it"
    if not told.get("aof_enabled"):
        return "a crash takes what came after its last snapshot - set `appendonly yes`"
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        return f"when memory is short it drops keys ({policy}) - set `maxmemory-policy noeviction`"
    return None


def _place(client: Any) -> tuple[str, object]:
    """Host and port of the server; of one in the file system, no host and its path."""
    options = client.get_connection_kwargs()
    if "path" in options:
        return "", options["path"]
    if hasattr(client, "get_default_node") and (node := client.get_default_node()) is not None:
        return str(node.host), node.port
    return str(options.get("host", "localhost")), options.get("port", 6379)


def _address(client: Any) -> str:
    host, port = _place(client)
    return f"{host}:{port}" if host else str(port)


def _is_open(client: Any) -> bool:
    (host, _), options = _place(client), client.get_connection_kwargs()
    if not host or host == "localhost" or options.get("password"):
        return False
    if options.get("credential_provider") or options.get("ssl"):
        return False
    pool = getattr(client, "connection_pool", None)
    if pool is not None and "SSL" in pool.connection_class.__name__:
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True
