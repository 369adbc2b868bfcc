"""Messages to and from a model: chat messages, tool calls, and their tokens.

Every value here comes back equal from JSON (if `arguments` contains JSON data): a field of another
type is converted if its meaning is clear, and refused by name if not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from .errors import UsageError, short_repr
from .internal.checks import plain_mapping, plain_numbers, plain_texts, tuple_of, whole_or_none
from .internal.frozen import fast_init
from .internal.wire_names import wire_name

__all__ = ["ChatMessage", "Role", "TokenTrace", "TokenUsage", "ToolCall"]

Role = Literal["system", "developer", "user", "assistant", "tool"]
_ROLES = get_args(Role)

_set = object.__setattr__


@wire_name("wink:TokenUsage", "weakincentives.chat:TokenUsage")
@fast_init
@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the provider counted them; None if it did not report them."""

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
        """Return the sum; unknown plus known is the known part."""
        if not isinstance(other, TokenUsage):
            return NotImplemented
        return TokenUsage(
            _add(self.input_tokens, other.input_tokens),
            _add(self.output_tokens, other.output_tokens),
            _add(self.cached_tokens, other.cached_tokens),
        )

    def __radd__(self, other: int) -> TokenUsage:
        """Return the usage for 0 + usage: `sum` starts with 0."""
        return self if other == 0 else NotImplemented


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


_MAX_INT = 2**63 - 1  # the largest integer that every JSON parser accepts
_ROUNDING = 1e-3  # rounding may lift the logarithm of a probability of 1 above 0


@wire_name("wink:TokenTrace", "weakincentives.chat:TokenTrace")
@dataclass(frozen=True, slots=True)
class TokenTrace:
    """One reply in tokens: the prompt, the reply, and the log-probability of each of its tokens.

    `logprobs` and `mask` belong to `ids`, and are empty if unknown: without a mask, all tokens are
    trained on. The output of an environment is in a later `prompt_ids`, never in `ids`.

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
                self, name, int, "a whole number from 0 to 2**63 - 1", least=0, maximum=_MAX_INT
            )
        plain_numbers(self, "mask", int, "0 or 1", least=0, maximum=1)
        plain_numbers(
            self, "logprobs", float, "a finite number <= 0", least=-math.inf, maximum=_ROUNDING
        )
        for name in ("logprobs", "mask"):
            if len(values := getattr(self, name)) not in (0, len(self.ids)):
                raise UsageError(
                    f"expected {len(self.ids)} or no numbers for `TokenTrace.{name}`, one for each "
                    f"of `ids`, got {len(values)}"
                )


@wire_name("wink:ToolCall", "weakincentives.chat:ToolCall")
@fast_init
@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to call a tool. `arguments` is the JSON object that it sent."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        plain_texts(self, "id", "name")
        advice = "pass json.loads(text) of JSON text"
        _set(self, "arguments", plain_mapping(self.arguments, "ToolCall.arguments", advice))


@wire_name("wink:ChatMessage", "weakincentives.chat:ChatMessage")
@fast_init
@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation.

    The result of a tool has the role `tool` and the `tool_call_id` of its call.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.role.__class__ is not str:
            plain_texts(self, "role")
        if self.role not in _ROLES:
            raise UsageError(
                "expected the role `system`, `developer`, `user`, `assistant` or `tool`, "
                f"got {short_repr(self.role)}"
            )
        if self.content is None:  # as OpenAI sends it with tool calls
            _set(self, "content", "")
        plain_texts(self, "role", "content", or_none=("tool_call_id", "name"))
        advice = "pass ToolCall(id, name, arguments)"
        if self.tool_calls.__class__ is not tuple or self.tool_calls:
            calls = tuple_of(ToolCall, self.tool_calls, "ChatMessage.tool_calls", advice)
            _set(self, "tool_calls", calls)
