"""Take snapshots of environments, and restore environments from them, in any process.

Rules of this file:
1. Kind and version are checked before any state is read; state of an older major version is
   migrated step by step, or refused.
2. A snapshot is taken between turns: the messages of an interrupted turn are left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints
from uuid import uuid4

import anyio

from ..chat import ChatMessage
from ..errors import UsageError, short_repr
from .environment import EnvelopeError, call_user_function, check_envelope, major_version
from .environment_snapshot import EnvironmentSnapshot

_SECONDS_AFTER_FAILURE = 5.0  # for a snapshot of an attempt that failed or was cancelled


async def take_snapshot(
    env: Any, messages: Sequence[ChatMessage] = (), **lineage: Any
) -> EnvironmentSnapshot:
    """Return a snapshot of an environment: `await take_snapshot(env, messages, turn=3)`."""
    serialize = getattr(env, "serialize", None)
    if serialize is None:
        raise UsageError(
            f"expected an environment with `serialize` for a snapshot, got "
            f"`{type(env).__qualname__}` - see docs/environments.md"
        )
    return EnvironmentSnapshot.of(await call_user_function(serialize), tuple(messages), **lineage)


async def restore_environment(snapshot: EnvironmentSnapshot, environment_type: type[Any]) -> Any:
    """Return an environment in the state of a snapshot.

    State of an older major version goes through `environment_type.MIGRATIONS`, which maps a major
    version to a function from its state to that of the next.

    >>> import asyncio
    >>> from weakincentives.rollouts import CalculatorEnvironment, EnvironmentSnapshot
    >>> old = {"env_kind": "calculator", "version": "1.0.0", "history": []}
    >>> snapshot = EnvironmentSnapshot.of(old)
    >>> asyncio.run(restore_environment(snapshot, CalculatorEnvironment)).history
    ()
    """
    kind, version = (getattr(environment_type, name, None) for name in ("ENV_KIND", "VERSION"))
    if not isinstance(kind, str) or not isinstance(version, str):
        raise UsageError(
            f"expected ENV_KIND and VERSION, both texts, on `{environment_type.__qualname__}`"
        )
    state = dict(snapshot.state)
    if (state.get("env_kind"), state.get("version")) != (snapshot.env_kind, snapshot.version):
        raise EnvelopeError(
            f"expected state of {snapshot.env_kind} {snapshot.version}, as the snapshot says, got "
            f"that of {short_repr(state.get('env_kind'))} {short_repr(state.get('version'))}"
        )
    if snapshot.env_kind == kind:
        state = _migrated(state, environment_type, version)
    check_envelope(state, kind, version)
    return await call_user_function(environment_type.deserialize, state)


def _migrated(state: dict[str, Any], environment_type: type[Any], version: str) -> dict[str, Any]:
    migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = getattr(
        environment_type, "MIGRATIONS", {}
    )
    target = major_version(version)
    while True:
        major = major_version(state.get("version"))
        if major is None or target is None or major >= target or major not in migrations:
            return state
        newer = dict(migrations[major](dict(state)))
        if (major_version(newer.get("version")) or 0) <= major:
            raise EnvelopeError(
                f"expected state of version {major + 1}.x from MIGRATIONS[{major}] of "
                f"`{environment_type.__qualname__}`, got {short_repr(newer.get('version'))}"
            )
        state = newer


def environment_type_of(factory: Any) -> type[Any]:
    """Return the class of the environments that a factory makes: itself, or what it returns."""
    if isinstance(factory, type):
        return factory
    try:
        found = get_type_hints(inspect.unwrap(factory)).get("return")
    except (NameError, TypeError):
        found = None
    if isinstance(found, type) and hasattr(found, "deserialize"):
        return found
    raise UsageError(
        f"expected a factory whose environment type is known, got {short_repr(factory)} - "
        "annotate it: def make(sample) -> MyEnvironment"
    )


def complete_turns(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return the messages without a last turn whose tools were not all run."""
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    for index, message in enumerate(messages):
        if any(call.id not in answered for call in message.tool_calls):
            return tuple(messages[:index])
    return tuple(messages)


@dataclass(slots=True)
class SnapshotRecorder:
    """Takes the snapshots of one episode, and keeps them without their messages."""

    kept: list[EnvironmentSnapshot]
    start: EnvironmentSnapshot | None = None
    episode_id: str = field(default_factory=lambda: uuid4().hex[:12])
    turn: int = -1

    async def take(self, env: Any, messages: Sequence[ChatMessage]) -> None:
        """Take one: the first is of the start, each later one after a turn."""
        self.turn += 1
        await self._take(env, messages, self.turn)

    async def take_after_failure(self, env: Any, messages: Sequence[ChatMessage]) -> str:
        """Take one of an attempt that failed; return what went wrong, or ""."""
        known = complete_turns(messages)
        first = 0 if self.start is None else len(self.start.messages)
        turns = sum(message.role == "assistant" for message in known[first:])
        problem = f"it took more than {_SECONDS_AFTER_FAILURE:g} s"
        with anyio.move_on_after(_SECONDS_AFTER_FAILURE, shield=True):
            try:
                await self._take(env, known, turns)
                return ""
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
        return f"no snapshot of `{type(env).__qualname__}`: {problem}"

    async def _take(self, env: Any, messages: Sequence[ChatMessage], turn: int) -> None:
        before, parent = (0, None) if self.start is None else (self.start.turn, self.start.id)
        taken = await take_snapshot(
            env, messages, episode_id=self.episode_id, turn=before + turn, parent_id=parent
        )
        self.kept.append(taken.without_messages())
