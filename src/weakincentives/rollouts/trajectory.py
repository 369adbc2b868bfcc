"""The trajectory of an attempt, as JSON data: for the store, for trainers and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, Generic, cast

from ..chat import ChatMessage, TokenTrace, TokenUsage
from ..errors import UsageError, short_repr
from ..internal.checks import (
    finite,
    instance_or_none,
    plain_mapping,
    plain_metadata,
    plain_texts,
    tuple_of,
)
from ..internal.frozen import fast_init, frozen_generic
from ..internal.typevars import OutputT
from ..internal.wire_names import wire_name
from ..runtime.events import CallSpan
from .environment_snapshot import EnvironmentSnapshot


@wire_name("wink:Trajectory", "weakincentives.rollouts._trajectory:Trajectory")
@frozen_generic
@fast_init
@dataclass(frozen=True, slots=True)
class Trajectory(Generic[OutputT]):
    """The conversation of one attempt and its output.

    `latency_ms` is the agent's own time, that of its tools included, without rate limiting and
    scoring; `cost` is in US dollars. Both are None if unknown. `tokens` has one trace for each
    reply whose endpoint returned it, in order. `tool_errors` has the error of each tool that
    failed, by the id of its call. `snapshots` are those of its environment, if they were asked for.
    `calls` are the model calls and tools that were recorded from outside; an agent that leaves a
    session has them in its events.
    """

    messages: tuple[ChatMessage, ...] = ()
    output: OutputT = cast(Any, None)
    usage: TokenUsage | None = None
    stop_reason: str | None = None
    latency_ms: int | None = None
    cost: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tokens: tuple[TokenTrace, ...] = ()
    tool_errors: Mapping[str, str] = field(default_factory=dict, hash=False)
    snapshots: tuple[EnvironmentSnapshot, ...] = ()
    calls: tuple[CallSpan, ...] = ()

    def __post_init__(self) -> None:
        if self.messages.__class__ is not tuple:
            advice = "pass ChatMessage(role, content)"
            messages = tuple_of(ChatMessage, self.messages, "Trajectory.messages", advice)
            object.__setattr__(self, "messages", messages)
        for index, message in enumerate(self.messages):
            if not isinstance(message, ChatMessage):
                raise UsageError(
                    f"expected a `ChatMessage`, got {short_repr(message)} - at `messages[{index}]`"
                )
        if self.tokens.__class__ is not tuple or self.tokens:
            advice = "pass TokenTrace(prompt_ids, ids, logprobs)"
            traces = tuple_of(TokenTrace, self.tokens, "Trajectory.tokens", advice)
            object.__setattr__(self, "tokens", traces)
        if self.snapshots.__class__ is not tuple or self.snapshots:
            advice = "pass EnvironmentSnapshot.of(state)"
            taken = tuple_of(EnvironmentSnapshot, self.snapshots, "Trajectory.snapshots", advice)
            object.__setattr__(self, "snapshots", taken)
        if self.calls.__class__ is not tuple or self.calls:
            advice = "pass CallSpan(kind, name, start)"
            calls = tuple_of(CallSpan, self.calls, "Trajectory.calls", advice)
            object.__setattr__(self, "calls", calls)
        if self.usage is not None:
            advice = "pass TokenUsage(input_tokens, output_tokens)"
            instance_or_none(self, "usage", TokenUsage, advice)
        if self.stop_reason.__class__ not in (str, NoneType):
            plain_texts(self, or_none=("stop_reason",))
        if self.latency_ms.__class__ not in (int, NoneType):
            milliseconds = round(finite(self.latency_ms, "Trajectory.latency_ms"))
            object.__setattr__(self, "latency_ms", milliseconds)
        if self.cost is not None:
            if isinstance(self.cost, bool):
                raise UsageError(
                    f"expected US dollars for `Trajectory.cost`, got {self.cost} - "
                    "None means unknown"
                )
            object.__setattr__(self, "cost", finite(self.cost, "Trajectory.cost"))
        if self.metadata.__class__ is not dict or self.metadata:
            plain_metadata(self)
        if self.tool_errors.__class__ is not dict or self.tool_errors:
            errors = plain_mapping(self.tool_errors, "Trajectory.tool_errors")
            for call_id, error in errors.items():
                if not isinstance(error, str):
                    raise UsageError(
                        f"expected a text for `Trajectory.tool_errors[{call_id!r}]`, got "
                        f"{short_repr(error)}"
                    )
            object.__setattr__(self, "tool_errors", errors)

    def snapshot_at(self, turn: int | None = None) -> EnvironmentSnapshot:
        """Return the snapshot after this turn, with its messages; without a turn, the last one."""
        for snapshot in reversed(self.snapshots):
            if turn in (None, snapshot.turn):
                return replace(snapshot, messages=self.messages[: snapshot.message_count])
        known = ", ".join(str(snapshot.turn) for snapshot in self.snapshots)
        raise UsageError(
            f"expected a snapshot{'' if turn is None else f' at turn {turn}'}, got "
            + (f"those at turns {known}" if known else "none - enable them: snapshots='turn'")
        )
