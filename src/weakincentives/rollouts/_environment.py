"""The world that an agent acts in: how it is stored and restored, and how it is closed.

Rules of this file:
1. Stored state says its kind and version, and both are checked before any of it is touched.
2. What was opened is closed exactly once, however its use ends; closing hides no earlier error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, runtime_checkable

import anyio
from anyio import to_thread

from ..errors import SerializationError, UsageError, WinkError, shown

__all__ = [
    "CloseError",
    "EnvelopeError",
    "Environment",
    "called",
    "check_envelope",
    "open_environment",
]

_VERSION = re.compile(r"(\d{1,9})(\.\d+)*([-+].*)?", re.ASCII)


class EnvelopeError(SerializationError):
    """Stored state is of another kind of environment, or of a version that does not fit."""


class CloseError(WinkError):
    """An environment could not be closed: what it holds may still be held."""


@runtime_checkable
class Environment(Protocol):
    """A world that can be stored as JSON data and restored elsewhere.

    An agent needs nothing more of it, but uses what there is: `tools`, the tools to offer, or a
    method that gives them; and `close()`. Both methods may be sync or async.
    """

    async def serialize(self) -> dict[str, Any]:
        """The state, with `env_kind` and `version`."""
        ...

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> Environment:
        """An environment in that state; `check_envelope` comes first."""
        ...


def check_envelope(data: Any, kind: str, version: str) -> None:
    """Refuse stored state that is not of this kind, or not of this major version.

    >>> check_envelope({"env_kind": "maze", "version": "1.4.0"}, "maze", "1.0.0")
    """
    ours = _major(version)
    if ours is None:
        raise UsageError(f"expected a version such as `1.0.0`, got {shown(version)}")
    if not isinstance(data, Mapping):
        raise EnvelopeError(f"expected stored state of `{kind}` as a mapping, got {shown(data)}")
    for name in ("env_kind", "version"):
        if not isinstance(data.get(name), str):
            got = shown(data[name]) if name in data else "none"
            raise EnvelopeError(f"expected a text for `{name}`, got {got} - at `$.{name}`")
    if data["env_kind"] != kind:
        raise EnvelopeError(
            f"expected state of `{kind}`, got {shown(data['env_kind'])} - at `$.env_kind`; "
            "restore it by the environment that stored it"
        )
    if _major(data["version"]) != ours:
        raise EnvelopeError(
            f"expected version {ours}.x of `{kind}`, got {shown(data['version'])} - "
            "at `$.version`; restore it by the version that stored it"
        )


def _major(version: Any) -> int | None:
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    return int(found[1]) if found else None


@asynccontextmanager
async def open_environment(
    factory: Callable[..., Any] | None, *args: Any, close_timeout: float = 10.0
) -> AsyncIterator[Any]:
    """What the factory makes of the arguments, closed at the end: `async with … as env`.

    `close()` is called once: after success, failure, timeout, cancellation and Ctrl-C. It runs on
    while its task is being cancelled, for `close_timeout` seconds at most. If it fails, that is a
    `CloseError`, or a note on the error that was there before.

    A synchronous factory runs in a thread, and is waited for: else nobody would close what it
    makes. Without a factory there is no environment: it is None.
    """
    if factory is None:
        yield None
        return
    env = await called(factory, *args, abandon=False)
    if env is None:
        raise UsageError(f"expected an environment from {shown(factory)}, got None - return it")
    try:
        yield env
    except BaseException as error:
        if failure := await _close(env, close_timeout):
            error.add_note(str(failure))
        raise
    if failure := await _close(env, close_timeout):
        raise failure


async def _close(env: Any, seconds: float) -> CloseError | None:
    """Close it, if it can be closed, and say what went wrong."""
    close, who = getattr(env, "close", None), type(env).__qualname__
    if close is None:
        return None
    failure: CloseError | None = None
    with anyio.move_on_after(seconds, shield=True) as scope:
        try:
            await called(close)
        except Exception as error:
            failure = CloseError(f"closing `{who}` raised {type(error).__name__}: {error}")
            failure.__cause__ = error
    if scope.cancelled_caught:
        failure = CloseError(f"expected `{who}` to close within {seconds:g} s, and it did not")
    return failure


async def called(fn: Callable[..., Any], *args: Any, abandon: bool = True) -> Any:
    """What a user's function gives, sync (in a thread) or async.

    If it is cancelled, a thread is left behind, or waited for where `abandon` is False.
    """
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
        return await fn(*args)
    # In a tuple, since trio lets no thread return a coroutine, as a lambda may. And with a limiter
    # of its own: one that hangs must not take another's place.
    (value,) = await to_thread.run_sync(
        lambda: (fn(*args),), abandon_on_cancel=abandon, limiter=anyio.CapacityLimiter(1)
    )
    return await value if inspect.isawaitable(value) else value
