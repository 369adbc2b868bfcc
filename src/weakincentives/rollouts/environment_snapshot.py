"""A snapshot of an episode: the state of its environment and the conversation so far, as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import serde
from ..chat import ChatMessage
from ..errors import SerializationError, UsageError, short_repr
from ..internal.checks import check_whole, plain_mapping, plain_texts, tuple_of
from ..internal.wire_names import wire_name


@wire_name("wink:EnvironmentSnapshot")
@dataclass(frozen=True, slots=True)
class EnvironmentSnapshot:
    """The state of an environment after some turns, with its kind, version and lineage.

    `state` is what its `serialize()` returned. `turn` counts the model's replies, with their tools
    run; the conversation is `messages`. In a trajectory they are left out, and `message_count` says
    how many of the trajectory's belong to it: `trajectory.snapshot_at(turn)` has them. An episode
    that continues from a snapshot has its `id` as `parent_id`. `created_ns` is in nanoseconds since
    1970.
    """

    env_kind: str
    version: str
    state: Mapping[str, Any] = field(hash=False)
    episode_id: str = ""
    turn: int = 0
    message_count: int = 0
    messages: tuple[ChatMessage, ...] = ()
    parent_id: str | None = None
    created_ns: int = 0

    def __post_init__(self) -> None:
        plain_texts(self, "env_kind", "version", "episode_id", or_none=("parent_id",))
        where = "EnvironmentSnapshot"
        object.__setattr__(self, "state", plain_mapping(self.state, f"{where}.state"))
        for name in ("turn", "message_count", "created_ns"):
            check_whole(getattr(self, name), 0, f"{where}.{name}")
        advice = "pass ChatMessage(role, content)"
        messages = tuple_of(ChatMessage, self.messages, f"{where}.messages", advice)
        object.__setattr__(self, "messages", messages)
        if messages and len(messages) != self.message_count:
            raise UsageError(
                f"expected {self.message_count} messages in a snapshot, got {len(messages)}"
            )

    @property
    def id(self) -> str:
        """The episode and the turn."""
        return f"{self.episode_id}:{self.turn}"

    @classmethod
    def of(
        cls,
        state: Any,
        messages: tuple[ChatMessage, ...] = (),
        *,
        episode_id: str = "",
        turn: int = 0,
        parent_id: str | None = None,
    ) -> EnvironmentSnapshot:
        """Return a snapshot of serialized state: JSON data with kind and version."""
        if not isinstance(state, Mapping):
            raise SerializationError(
                f"expected a mapping from `serialize()`, got {short_repr(state)}"
            )
        for name in ("env_kind", "version"):
            if not isinstance(state.get(name), str):
                raise SerializationError(
                    f"expected a text for `{name}` from `serialize()`, got "
                    f"{short_repr(state.get(name))}"
                )
        plain: dict[str, Any] = serde.decode(serde.encode(state))
        if plain != state:
            raise SerializationError(
                "expected JSON data from `serialize()`, got objects that JSON does not preserve: "
                f"{short_repr(state)}"
            )
        return cls(
            plain["env_kind"],
            plain["version"],
            plain,
            episode_id,
            turn,
            len(messages),
            messages,
            parent_id,
            time.time_ns(),
        )

    def to_json(self) -> str:
        """Return it as JSON text, without loss."""
        return serde.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> EnvironmentSnapshot:
        """Return the snapshot that `to_json` wrote."""
        return serde.decode(text, cls)

    def to_ludic(self) -> dict[str, Any]:
        """Return it with the fields of a Ludic snapshot: what is seen, and what is hidden.

        The format could not be verified: Ludic has neither a package nor a snapshot class.
        """
        return {
            "env_kind": self.env_kind,
            "version": self.version,
            "episode_id": self.episode_id,
            "obs": {"turn": self.turn, "messages": serde.plain(self.messages)},
            "world": {"parent_id": self.parent_id, "state": dict(self.state)},
            "created_ns": self.created_ns,
        }

    @classmethod
    def from_ludic(cls, data: Mapping[str, Any]) -> EnvironmentSnapshot:
        """Return the snapshot that `to_ludic` made; or any other, whose world is the state."""
        observed, world = data.get("obs"), data.get("world")
        ours = isinstance(world, Mapping) and isinstance(world.get("state"), Mapping)
        seen = observed if isinstance(observed, Mapping) else {}
        messages = serde.convert(seen.get("messages") or [], list[ChatMessage]) if ours else []
        state = {
            "env_kind": data["env_kind"],
            "version": data["version"],
            **(world["state"] if ours else {"world": world, "obs": observed}),  # type: ignore[index]
        }
        return cls(
            data["env_kind"],
            data["version"],
            state,
            data.get("episode_id") or "",
            seen.get("turn", 0) if ours else 0,
            len(messages),
            tuple(messages),
            world.get("parent_id") if ours else None,  # type: ignore[union-attr]
            data.get("created_ns") or 0,
        )

    def without_messages(self) -> EnvironmentSnapshot:
        """Return it as a trajectory keeps it."""
        return replace(self, messages=())
