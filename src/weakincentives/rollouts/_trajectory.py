"""What an attempt leaves behind, as data: it goes to disk, to a trainer and to a page as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Generic, cast

from .._checks import tuple_of
from .._frozen import truly_frozen
from .._typevars import OutputT
from ..chat import ChatMessage, TokenTrace, TokenUsage
from ..errors import UsageError, shown

__all__ = ["Trajectory"]


@truly_frozen
@dataclass(frozen=True, slots=True)
class Trajectory(Generic[OutputT]):
    """The conversation of one attempt and the output that it ended in.

    `latency_ms` is the agent's own time, without waiting and without scoring; `cost` is in US
    dollars. Both are None where nobody measured them. `tokens` has one trace for each reply whose
    endpoint gave it, in order.
    """

    messages: tuple[ChatMessage, ...] = ()
    output: OutputT = cast(Any, None)
    usage: TokenUsage | None = None
    stop_reason: str | None = None
    latency_ms: int | None = None
    cost: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tokens: tuple[TokenTrace, ...] = ()

    def __post_init__(self) -> None:
        if self.messages.__class__ is not tuple:
            object.__setattr__(self, "messages", tuple(self.messages))
        for index, message in enumerate(self.messages):
            if not isinstance(message, ChatMessage):
                raise UsageError(
                    f"expected a `ChatMessage`, got {shown(message)} - at `messages[{index}]`"
                )
        if self.tokens != ():
            advice = "pass TokenTrace(prompt_ids, ids, logprobs)"
            traces = tuple_of(TokenTrace, self.tokens, "Trajectory.tokens", advice)
            object.__setattr__(self, "tokens", traces)
        if self.latency_ms.__class__ not in (int, NoneType):
            object.__setattr__(self, "latency_ms", _milliseconds(self.latency_ms))
        if self.cost is not None and not math.isfinite(self.cost):
            raise UsageError(f"expected a finite `cost`, got {self.cost} - None means unknown")


def _milliseconds(value: Any) -> int:
    try:
        return round(float(value))
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"expected milliseconds for `latency_ms`, got {shown(value)}") from None
