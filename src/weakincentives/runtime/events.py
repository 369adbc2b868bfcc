"""Telemetry of an agent run: the events that sessions record and evaluators read.

Rules of this file:
1. An event holds only what JSON can carry, from its construction on. An evaluator therefore sees
   the same event live, in a snapshot, and in a run stored a month ago.
2. No value of `params` or `result` breaks an agent: what has no JSON form is kept as its `repr`.
   A value of the wrong type in another field is refused at once.
3. `success` is always set, so that no reader has to guess it from the shape of `result`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import NoneType
from typing import Any, Literal
from uuid import UUID

from ..chat import TokenUsage
from ..clock import SYSTEM_CLOCK
from ..errors import UsageError, short_repr
from ..internal.checks import plain_texts, tuple_of
from ..internal.frozen import fast_init
from ..internal.ids import new_uuid
from ..internal.wire_names import wire_name
from ..serde import plain
from .dispatcher import (
    ControlDispatcher,
    Dispatcher,
    DispatchResult,
    EventBus,
    InProcessDispatcher,
    InProcessEventBus,
)

__all__ = [
    "TELEMETRY",
    "CallSpan",
    "ControlDispatcher",
    "DispatchResult",
    "Dispatcher",
    "EventBus",
    "InProcessDispatcher",
    "InProcessEventBus",
    "PromptExecuted",
    "PromptRendered",
    "TokenUsage",
    "ToolInvoked",
]

_set = object.__setattr__


@wire_name("wink:ToolInvoked", "weakincentives.runtime.events:ToolInvoked")
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvoked:
    """A tool was called. If it raised, `error` is the message.

    Without an explicit `success`, the attempt failed if `error` is set or if the result's own
    `success` is False:

    >>> ToolInvoked(name="search", result={"success": False}).success
    False
    """

    name: str
    prompt_name: str = ""
    adapter: str = ""
    params: Any = field(default_factory=dict, hash=False)
    result: Any = field(default=None, hash=False)
    # None only until `__post_init__`: for every reader this is a plain bool.
    success: bool = None  # type: ignore[assignment]
    error: str | None = None
    rendered_output: str = ""
    call_id: str | None = None
    usage: TokenUsage | None = None
    latency_ms: float | None = None
    session_id: UUID | None = None
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    event_id: UUID = field(default_factory=new_uuid)

    def __post_init__(self) -> None:
        success: Any = self.success
        if success is None:
            success = self.error is None and not _says_failed(self.result)
        _set(self, "success", bool(success))
        if isinstance(self.error, BaseException):
            _set(self, "error", str(self.error) or repr(self.error))
        plain_texts(
            self, "name", "prompt_name", "adapter", "rendered_output", or_none=("error", "call_id")
        )
        _set(self, "params", _plain_or_repr(self.params))
        _set(self, "result", _plain_or_repr(self.result))
        _check_measures(self, "latency_ms")
        _check_origin(self)


@wire_name("wink:CallSpan")
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpan:
    """When a model or a tool was called, how long it took, and what it used.

    `start` is in seconds, on a clock that all spans of an attempt share. `ms` is the time of the
    model, without waits for a retry or a rate limit; None if it is unknown. `usage`, `cost` and
    `stop_reason` are those of a model, `call_id` is that of a tool call.
    """

    kind: Literal["model", "tool"]
    name: str
    start: float
    ms: float | None = None
    usage: TokenUsage | None = None
    cost: float | None = None
    stop_reason: str | None = None
    error: str | None = None
    call_id: str | None = None


@wire_name("wink:PromptExecuted", "weakincentives.runtime.events:PromptExecuted")
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PromptExecuted:
    """A prompt was executed: a model answered, or `error` says why none did.

    `cost` is in US dollars; None if it is unknown. `latency_ms` is the time until the answer, with
    that of tools, without waits for a retry or a rate limit. `calls` are the calls of the model.
    """

    prompt_name: str = ""
    adapter: str = ""
    result: Any = field(default=None, hash=False)
    error: str | None = None
    model: str | None = None
    usage: TokenUsage | None = None
    cost: float | None = None
    latency_ms: float | None = None
    calls: tuple[CallSpan, ...] = ()
    session_id: UUID | None = None
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    event_id: UUID = field(default_factory=new_uuid)

    def __post_init__(self) -> None:
        plain_texts(self, "prompt_name", "adapter", or_none=("model", "error"))
        if self.calls.__class__ is not tuple or self.calls:
            advice = "pass CallSpan(kind, name, start)"
            _set(self, "calls", tuple_of(CallSpan, self.calls, "PromptExecuted.calls", advice))
        _set(self, "result", _plain_or_repr(self.result))
        _check_measures(self, "cost", "latency_ms")
        _check_origin(self)


@wire_name("wink:PromptRendered", "weakincentives.runtime.events:PromptRendered")
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered:
    """A prompt was rendered; `tools` are the names of the tools that it offered."""

    prompt_ns: str = ""
    prompt_key: str = ""
    prompt_name: str = ""
    adapter: str = ""
    rendered_prompt: str = ""
    tools: tuple[str, ...] = ()
    session_id: UUID | None = None
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    event_id: UUID = field(default_factory=new_uuid)

    def __post_init__(self) -> None:
        plain_texts(self, "prompt_ns", "prompt_key", "prompt_name", "adapter", "rendered_prompt")
        if self.tools != ():
            tools = tuple_of(str, self.tools, "PromptRendered.tools", "pass their names")
            _set(self, "tools", tuple(map(str.__str__, tools)))
        _check_origin(self)


TELEMETRY = (ToolInvoked, PromptExecuted, PromptRendered)


def _check_origin(event: ToolInvoked | PromptExecuted | PromptRendered) -> None:
    if (
        event.event_id.__class__ is UUID
        and event.session_id.__class__ in (UUID, NoneType)
        and event.created_at.__class__ is datetime
        and event.created_at.tzinfo is UTC
    ):
        return  # the usual case
    for name, value in (("session_id", event.session_id), ("event_id", event.event_id)):
        if not isinstance(value, UUID) and (value is not None or name == "event_id"):
            raise _wrong(event, name, "`UUID`")
    moment = event.created_at
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise _wrong(event, "created_at", "an aware `datetime`", " - pass tz=UTC")
    if moment.__class__ is not datetime or moment.tzinfo is not UTC:
        # A time that is ambiguous in its zone is not equal to its own UTC time after decoding.
        utc = moment.astimezone(UTC)
        _set(event, "created_at", datetime.combine(utc.date(), utc.time(), UTC))


def _check_measures(event: ToolInvoked | PromptExecuted, *names: str) -> None:
    if event.usage is not None and not isinstance(event.usage, TokenUsage):
        raise _wrong(event, "usage", "`TokenUsage`")
    for name in names:
        value = getattr(event, name)
        if value is None or (value.__class__ is float and 0 <= value < math.inf):
            continue
        try:
            number = math.nan if isinstance(value, str | bytes | bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not 0 <= number < math.inf:
            raise UsageError(
                f"expected a finite `{name}` >= 0, got {short_repr(value)} - None means unknown"
            )
        _set(event, name, number)


def _wrong(event: object, name: str, expected: str, advice: str = "") -> UsageError:
    got = short_repr(getattr(event, name))
    return UsageError(f"expected {expected} for `{type(event).__name__}.{name}`, got {got}{advice}")


def _plain_or_repr(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Return JSON data, with `repr` for parts that have none; `above` are the ids of containers."""
    try:
        return plain(value)
    except Exception:
        pass
    # Items, keys and `repr` are user code as well, and may fail.
    try:
        if not isinstance(value, Mapping | list | tuple | set | frozenset):
            return repr(value)
        if len(above) < 8 and id(value) not in above:
            above = (*above, id(value))
            if isinstance(value, Mapping):
                return {str(key): _plain_or_repr(item, above) for key, item in value.items()}
            return [_plain_or_repr(item, above) for item in value]
    except Exception:
        pass
    return object.__repr__(value)


def _says_failed(result: Any) -> bool:
    try:
        if isinstance(result, Mapping):
            return result.get("success") is False
        return getattr(result, "success", None) is False
    except Exception:
        return False
