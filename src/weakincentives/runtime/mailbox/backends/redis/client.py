"""The user's Redis client: its errors, and whether its server is durable and protected."""

from __future__ import annotations

import ipaddress
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .....errors import MailboxError, MissingExtraError, UsageError, WinkError, short_repr
from .....secrets import keep_secret, logger_for

logger = logger_for(__name__)

# What to do, by a word in the error's class or text. Old servers have the word in the text.
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
    ("NoPermission", "let this user run EVALSHA, EVAL, BLPOP and ZMSCORE on keys `{wink:*`"),
    ("unknown command", "use Redis 6.2 or later, or Valkey"),
    ("MaxConnections", "give the client a larger connection pool"),
    ("Timeout", "check whether the server is busy or the network slow, then try again"),
    ("Connection", "check that the server is running and reachable, then try again"),
)


def redis_library() -> Any:
    """Return redis-py."""
    try:
        import redis
    except ImportError:
        raise MissingExtraError("redis", "redis", "a mailbox on Redis") from None
    return redis


def check_client(client: Any) -> None:
    """Require a synchronous client of redis-py, and register its password as a secret."""
    redis = redis_library()
    if not isinstance(client, redis.Redis | redis.RedisCluster):
        raise UsageError(
            "expected a client such as `redis.Redis(...)` or `redis.RedisCluster(...)`, got "
            f"{short_repr(client)}"
        )
    if isinstance(password := client.get_connection_kwargs().get("password"), str):
        keep_secret(password)


@contextmanager
def translated(subject: str, client: Any, kind: type[WinkError]) -> Iterator[None]:
    """Translate the client's errors into ours, with the server's message and what to do."""
    from redis.exceptions import RedisClusterException, RedisError

    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        text = f"{type(error).__name__}: {error}"
        advice = next((advice for word, advice in _ADVICE if word in text), "see the server's log")
        raise kind(
            f"expected Redis at {_address(client)} to answer for {subject}, got {text} - {advice}"
        ) from error


def max_blocking_seconds(client: Any) -> float:
    """Return the seconds that one call may block: less than the client's socket timeout."""
    timeout = client.get_connection_kwargs().get("socket_timeout") or 5.0  # redis-py's default
    return float(min(4.0, timeout * 0.8))


_checked: weakref.WeakSet[Any] = weakref.WeakSet()


def check_server_once(client: Any, name: str, require_durable: bool) -> None:
    """Warn, once per client, of a server that is not durable or not protected.

    With `require_durable`, refuse the former. It uses `INFO`, since hosted servers often refuse
    `CONFIG`.
    """
    if client in _checked and not require_durable:
        return
    from redis.exceptions import ResponseError

    try:
        info = client.info()
    except ResponseError:  # this user may not run it
        info = {}
    if client not in _checked:
        _checked.add(client)
        if _is_unprotected(client):
            logger.warning(
                "Redis at %s is on the network without password and TLS: anyone who reaches it can "
                "read and change messages - set `requirepass` and use rediss://",
                _address(client),
            )
        if info and (problem := _durability_problem(info)):
            logger.warning("Messages on Redis at %s may be lost: %s", _address(client), problem)
    if require_durable and (problem := _durability_problem(info)):
        raise MailboxError(
            f"expected a durable server for the mailbox {name!r} (`require_durable`), got one at "
            f"{_address(client)}: {problem}"
        )


def _durability_problem(info: dict[str, Any]) -> str | None:
    if not info:
        return "this user may not run INFO, so durability is unknown - allow it"
    if not info.get("aof_enabled"):
        return "a crash loses all messages since its last snapshot - set `appendonly yes`"
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        return f"it evicts keys when memory is short ({policy}) - set `maxmemory-policy noeviction`"
    return None


def _host_and_port(client: Any) -> tuple[str, object]:
    """Return host and port of the server; for a Unix socket, no host and the path."""
    options = client.get_connection_kwargs()
    if "path" in options:
        return "", options["path"]
    if hasattr(client, "get_default_node") and (node := client.get_default_node()) is not None:
        return str(node.host), node.port
    return str(options.get("host", "localhost")), options.get("port", 6379)


def _address(client: Any) -> str:
    host, port = _host_and_port(client)
    return f"{host}:{port}" if host else str(port)


def _is_unprotected(client: Any) -> bool:
    (host, _), options = _host_and_port(client), client.get_connection_kwargs()
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
