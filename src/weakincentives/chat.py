"""What is said to and by a model: chat messages, tool calls, and what they cost in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import UsageError

__all__ = ["ChatMessage", "Role", "TokenUsage", "ToolCall"]

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the provider counted them; None where it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "cached_tokens"):
            count = getattr(self, name)
            if count is not None and count < 0:
                raise UsageError(f"expected `{name}` >= 0, got {count}")

    @property
    def total_tokens(self) -> int:
        """Input plus output; an unknown part counts as 0. Cached tokens are part of the input."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Both together; unknown plus known is the known part."""
        if not isinstance(other, TokenUsage):
            return NotImplemented
        return TokenUsage(
            _add(self.input_tokens, other.input_tokens),
            _add(self.output_tokens, other.output_tokens),
            _add(self.cached_tokens, other.cached_tokens),
        )


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to call a tool. `arguments` is the JSON object that it sent."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation.

    A tool's answer has the role `tool` and the `tool_call_id` that it answers.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ("system", "user", "assistant", "tool"):
            raise UsageError(
                f"expected the role `system`, `user`, `assistant` or `tool`, got {self.role!r}"
            )
        object.__setattr__(self, "tool_calls", tuple(self.tool_calls))
