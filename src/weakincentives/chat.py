"""What is said to and by a model: chat messages, tool calls, and what they cost in tokens.

What can be constructed here comes back equal from JSON (if `arguments` holds JSON data): a value of
another type is made plain where it is clear what it means, and refused by name where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ._checks import plain_mapping, plain_texts, tuple_of, whole_or_none
from .errors import UsageError, shown

__all__ = ["ChatMessage", "Role", "TokenUsage", "ToolCall"]

Role = Literal["system", "developer", "user", "assistant", "tool"]
_ROLES = get_args(Role)

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the provider counted them; None where it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "cached_tokens"):
            whole_or_none(self, name, least=0)

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

    def __radd__(self, other: int) -> TokenUsage:
        """0 plus usage is usage: `sum` begins with 0."""
        return self if other == 0 else NotImplemented


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to call a tool. `arguments` is the JSON object that it sent."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        plain_texts(self, "id", "name")
        advice = "pass json.loads(text) of JSON text"
        _set(self, "arguments", plain_mapping(self.arguments, "ToolCall.arguments", advice))


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
        if self.role not in _ROLES:
            raise UsageError(
                "expected the role `system`, `developer`, `user`, `assistant` or `tool`, "
                f"got {shown(self.role)}"
            )
        if self.content is None:  # what OpenAI says beside tool calls
            _set(self, "content", "")
        plain_texts(self, "role", "content", or_none=("tool_call_id", "name"))
        advice = "pass ToolCall(id, name, arguments)"
        if self.tool_calls != ():
            calls = tuple_of(ToolCall, self.tool_calls, "ChatMessage.tool_calls", advice)
            _set(self, "tool_calls", calls)
