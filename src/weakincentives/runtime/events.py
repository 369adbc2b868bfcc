"""What happened while an agent ran: the telemetry that sessions record and evaluators read.

Rules of this file:
1. An event holds only what JSON can carry, from its construction on. An evaluator therefore sees
   the same `params` and `result` live, in a snapshot, and in a run stored a month ago.
2. Making an event never breaks an agent: a value with no JSON form is kept as its `repr`.
3. `success` is always set, so that no reader has to guess it from the shape of `result`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from ..chat import TokenUsage
from ..clock import SYSTEM_CLOCK
from ..errors import UsageError
from ..serde import plain

__all__ = ["TELEMETRY", "PromptExecuted", "PromptRendered", "TokenUsage", "ToolInvoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvoked:
    """A tool was tried, also one that raised: then `error` is its message.

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
    latency_ms: int | None = None
    session_id: UUID | None = None
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    event_id: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        if self.success is None:
            failed = self.error is not None or _says_failed(self.result)
            object.__setattr__(self, "success", not failed)
        object.__setattr__(self, "params", _plain_or_repr(self.params))
        object.__setattr__(self, "result", _plain_or_repr(self.result))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptExecuted:
    """A model answered. `cost` is in US dollars; None where it is unknown."""

    prompt_name: str = ""
    adapter: str = ""
    result: Any = field(default=None, hash=False)
    model: str | None = None
    usage: TokenUsage | None = None
    cost: float | None = None
    latency_ms: int | None = None
    session_id: UUID | None = None
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    event_id: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        if self.cost is not None and not math.isfinite(self.cost):
            raise UsageError(f"expected a finite `cost`, got {self.cost} - None means unknown")
        object.__setattr__(self, "result", _plain_or_repr(self.result))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered:
    """A prompt became text; `tools` are the names of the tools that it offered."""

    prompt_ns: str = ""
    prompt_key: str = ""
    prompt_name: str = ""
    adapter: str = ""
    rendered_prompt: str = ""
    tools: tuple[str, ...] = ()
    session_id: UUID | None = None
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    event_id: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", tuple(self.tools))


TELEMETRY = (ToolInvoked, PromptExecuted, PromptRendered)


def _plain_or_repr(value: Any) -> Any:
    """JSON data; what has none becomes its `repr`, in a mapping only the values that need it."""
    try:
        return plain(value)
    except Exception:
        if isinstance(value, Mapping):
            return {str(key): _leaf(item) for key, item in value.items()}
        return _leaf(value)


def _leaf(value: Any) -> Any:
    # `repr` is other people's code as well, and fails for example on very deep nesting.
    for attempt in (plain, repr):
        try:
            return attempt(value)
        except Exception:
            continue
    return object.__repr__(value)


def _says_failed(result: Any) -> bool:
    try:
        if isinstance(result, Mapping):
            return result.get("success") is False
        return getattr(result, "success", None) is False
    except Exception:
        return False
