"""Who answers a prompt: the protocol of a provider's adapter, and what it gives back.

A user's adapter needs `evaluate` and nothing else. Ours have an async twin, `evaluate_async`,
which the engine prefers where it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, cast, runtime_checkable

from .._frozen import truly_frozen
from .._typevars import OutputT
from ..budget import BudgetTracker, Deadline
from ..chat import ChatMessage, TokenTrace, TokenUsage
from ..prompt import Prompt
from .session import Session

__all__ = ["AsyncProviderAdapter", "PromptResponse", "ProviderAdapter"]


@truly_frozen
@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[OutputT]):
    """What came of a prompt: the text as it came, and the output that was read from it.

    For a prompt of plain text both are the same. `messages` is the whole conversation, tool calls
    included; `latency_ms` leaves out the time spent waiting for a free place or a rate limit, which
    is `waited_ms`. `tokens` has one trace for each reply whose provider gave it.
    """

    prompt_name: str
    text: str | None = None
    output: OutputT = cast(Any, None)
    usage: TokenUsage | None = None
    messages: tuple[ChatMessage, ...] = ()
    finish_reason: str | None = None
    model: str | None = None
    latency_ms: float | None = None
    cost: float | None = None
    waited_ms: float = 0.0
    tokens: tuple[TokenTrace, ...] = ()


@runtime_checkable
class ProviderAdapter(Protocol[OutputT]):
    """Answers prompts. `session` records what happened; without one, nothing is recorded."""

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
    ) -> PromptResponse[OutputT]:
        """Render the prompt, ask, call tools until the model is done, and read its output."""
        ...


@runtime_checkable
class AsyncProviderAdapter(Protocol[OutputT]):
    """The same, for code that must not block its event loop."""

    async def evaluate_async(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
    ) -> PromptResponse[OutputT]:
        """Like `ProviderAdapter.evaluate`."""
        ...
