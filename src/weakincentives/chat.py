"""What is said to and by a model: chat messages, tool calls, and their tokens.

What can be constructed here comes back equal from JSON (if `arguments` holds JSON data): a value of
another type is made plain where it is clear what it means, and refused by name where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ._checks import plain_mapping, plain_numbers, plain_texts, tuple_of, whole_or_none
from .errors import UsageError, shown

__all__ = ["ChatMessage", "Role", "TokenTrace", "TokenUsage", "ToolCall"]

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


_MOST = 2**63 - 1  # of a whole number that every reader of JSON takes
_ABOVE_ZERO = 1e-3  # how far rounding may lift the logarithm of a probability of 1


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """One reply in tokens: what went in, what came out, and how likely each was.

    `logprobs` and `mask` are of `ids`, and empty where unknown: without a mask, all are trained on.
    What an environment says is in a later `prompt_ids` and never in `ids`.

    >>> TokenTrace(prompt_ids=[1, 15], ids=[7, 2], logprobs=[-0.1, -0.7]).ids
    (7, 2)
    """

    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    mask: tuple[int, ...] = ()
    policy_version: str | None = None

    def __post_init__(self) -> None:
        plain_texts(self, or_none=("policy_version",))
        for name in ("prompt_ids", "ids"):
            plain_numbers(
                self, name, int, "a whole number from 0 to 2**63 - 1", least=0, most=_MOST
            )
        plain_numbers(self, "mask", int, "0 or 1", least=0, most=1)
        plain_numbers(
            self, "logprobs", float, "a finite number <= 0", least=-math.inf, most=_ABOVE_ZERO
        )
        for name in ("logprobs", "mask"):
            if len(given := getattr(self, name)) not in (0, len(self.ids)):
                raise UsageError(
                    f"expected {len(self.ids)} or no numbers for `TokenTrace.{name}`, one for each "
                    f"of `ids`, got {len(given)}"
                )


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
