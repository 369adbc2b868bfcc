"""Environments that agents act in: store and restore them, open and close them.

Rules of this file:
1. Stored state has a kind and a version, and both are checked before anything else is read.
2. An environment is closed exactly once, however its use ends; closing hides no earlier error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, runtime_checkable

import anyio

from ..errors import SerializationError, UsageError, WinkError, short_repr
from ..internal.threads import in_thread

_VERSION = re.compile(r"(\d{1,9})(\.\d+)*([-+].*)?", re.ASCII)


class EnvelopeError(SerializationError):
    """Stored state is of another kind of environment, or of an incompatible version."""


class CloseError(WinkError):
    """An environment could not be closed: its resources may still be in use."""


@runtime_checkable
class Environment(Protocol):
    """An environment that can be stored as JSON data and restored elsewhere.

    Optional, and sync or async: `tools`, the tools to offer, or a method that returns them;
    `close()`; `respond(messages)`, what a user says next, or None; `score()` or
    `score(trajectory)`, a number that `environment_score` reads; `metadata`, a mapping that is
    added to that of the trajectory.
    """

    async def serialize(self) -> dict[str, Any]:
        """Return the state, with `env_kind` and `version`."""
        ...

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> Environment:
        """Return an environment in that state; call `check_envelope` first."""
        ...


def check_envelope(data: Any, kind: str, version: str) -> None:
    """Raise EnvelopeError for state of another kind, or of another major version.

    >>> check_envelope({"env_kind": "maze", "version": "1.4.0"}, "maze", "1.0.0")
    """
    ours = major_version(version)
    if ours is None:
        raise UsageError(f"expected a version such as `1.0.0`, got {short_repr(version)}")
    if not isinstance(data, Mapping):
        raise EnvelopeError(
            f"expected stored state of `{kind}` as a mapping, got {short_repr(data)}"
        )
    for name in ("env_kind", "version"):
        if not isinstance(data.get(name), str):
            got = short_repr(data[name]) if name in data else "none"
            raise EnvelopeError(f"expected a text for `{name}`, got {got} - at `$.{name}`")
    if data["env_kind"] != kind:
        raise EnvelopeError(
            f"expected state of `{kind}`, got {short_repr(data['env_kind'])} - at `$.env_kind`; "
            "restore it by the environment that stored it"
        )
    if major_version(data["version"]) != ours:
        raise EnvelopeError(
            f"expected version {ours}.x of `{kind}`, got {short_repr(data['version'])} - "
            "at `$.version`; restore it by the version that stored it"
        )


def major_version(version: Any) -> int | None:
    """Return the first number of a version; None if there is none."""
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    return int(found[1]) if found else None


@asynccontextmanager
async def open_environment(
    factory: Callable[..., Any] | None, *args: Any, close_timeout: float = 10.0
) -> AsyncIterator[Any]:
    """Create an environment, and close it at the end: `async with open_environment(make) as env`.

    `close()` is called once: after success, failure, timeout, cancellation and Ctrl-C. It is
    shielded from cancellation for at most `close_timeout` seconds. If it fails, a `CloseError` is
    raised, or added as a note to the error that was raised before.

    A synchronous factory runs in a thread that is never abandoned, or its environment would not
    be closed. Without a factory, the environment is None.
    """
    if factory is None:
        yield None
        return
    env = await call_user_function(factory, *args, abandon=False)
    if env is None:
        raise UsageError(
            f"expected an environment from {short_repr(factory)}, got None - return it"
        )
    try:
        yield env
    except BaseException as error:
        if failure := await _close(env, close_timeout):
            error.add_note(str(failure))
        raise
    if failure := await _close(env, close_timeout):
        raise failure


async def _close(env: Any, seconds: float) -> CloseError | None:
    """Close it, if it can be closed; return what went wrong."""
    close, name = getattr(env, "close", None), type(env).__qualname__
    if close is None:
        return None
    failure: CloseError | None = None
    with anyio.move_on_after(seconds, shield=True) as scope:
        try:
            await call_user_function(close)
        except Exception as error:
            failure = CloseError(f"closing `{name}` raised {type(error).__name__}: {error}")
            failure.__cause__ = error
    if scope.cancelled_caught:
        failure = CloseError(f"expected `{name}` to close within {seconds:g} s, and it did not")
    return failure


async def call_user_function(fn: Callable[..., Any], *args: Any, abandon: bool = True) -> Any:
    """Call a user's function, sync (in a thread) or async, and return its result.

    On cancellation the thread is abandoned, or waited for with `abandon=False`.
    """
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
        return await fn(*args)
    value = await in_thread(fn, *args, abandon=abandon)
    return await value if inspect.isawaitable(value) else value
