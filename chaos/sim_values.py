"""Values that agents and evaluators should not return, and the row that each must lead to.

A sample of the kind `odd` has one of these, by its number. Whatever the value, the sample ends in
one row: the verdict stays, or the row is an error that names the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

from weakincentives.chat import TokenUsage

__all__ = ["Bad", "bad_value"]


class _Text(str):
    __slots__ = ()


class _Stop(Enum):
    LENGTH = "length"


@dataclass
class _Answer:
    text: str


@dataclass(frozen=True)
class Bad:
    """What the agent and evaluator of a sample return; the error, if any, names `refused`."""

    output: Callable[[], Any] = lambda: "odd"
    has_json: bool = True  # the output
    trajectory: Mapping[str, Any] = field(default_factory=dict)
    reason: Any = ""
    refused: str = ""

    def error_part(self, *, by_main_loop: bool) -> str:
        """Return what the row's error must contain; empty if the verdict must stay.

        A main loop replies with its output alone, so evaluators see nothing else.
        """
        if by_main_loop and not self.has_json:
            return "JSON"
        return "" if by_main_loop and self.trajectory else self.refused


_BAD = (
    Bad(object, has_json=False),
    Bad(lambda: math.nan, has_json=False),
    Bad(lambda: {(1, 2): 3}, has_json=False),
    Bad(lambda: _Text("odd")),
    Bad(lambda: _Answer(3)),  # type: ignore[arg-type]
    Bad(trajectory={"cost": Decimal("0.0125"), "stop_reason": _Stop.LENGTH}),
    Bad(trajectory={"cost": True}, refused="`Trajectory.cost`"),
    Bad(trajectory={"stop_reason": 3}, refused="`Trajectory.stop_reason`"),
    Bad(trajectory={"metadata": {"raw": object()}}),
    Bad(trajectory={"usage": TokenUsage(2**70)}),
    Bad(trajectory={"latency_ms": 10**5000}),
    Bad(reason=ValueError("no number")),
    Bad(reason={"why": "so"}, refused="`Score.reason`"),
    Bad(reason=3, refused="`Score.reason`"),
)


def bad_value(question: str) -> Bad:
    """Return the bad value of the sample with this input, such as `odd 7`."""
    return _BAD[int(question.partition(" ")[2]) % len(_BAD)]
