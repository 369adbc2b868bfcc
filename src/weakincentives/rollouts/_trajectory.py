"""What an attempt leaves behind, as data: it goes to disk, to a trainer and to a page as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, cast

from .._typevars import OutputT
from ..chat import ChatMessage, TokenUsage

__all__ = ["Trajectory"]


@dataclass(frozen=True, slots=True)
class Trajectory(Generic[OutputT]):
    """The conversation of one attempt and the output that it ended in.

    `latency_ms` is the agent's own time, without waiting and without scoring; `cost` is in US
    dollars. Both are None where nobody measured them.
    """

    messages: tuple[ChatMessage, ...] = ()
    output: OutputT = cast(Any, None)
    usage: TokenUsage | None = None
    stop_reason: str | None = None
    latency_ms: int | None = None
    cost: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.messages.__class__ is not tuple:
            object.__setattr__(self, "messages", tuple(self.messages))
