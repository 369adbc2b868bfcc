"""The protocol of a provider's adapter, and its response to a prompt.

A user's adapter needs `evaluate` and nothing else. Ours also have `evaluate_async`, which the
engine prefers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, cast, runtime_checkable

from ...budget import BudgetTracker, Deadline
from ...chat import ChatMessage, TokenTrace, TokenUsage
from ...internal.frozen import fast_init, frozen_generic
from ...internal.typevars import OutputT
from ...prompt import Prompt
from ..session import Session


@frozen_generic
@fast_init
@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[OutputT]):
    """The response to a prompt: the text of the model, and the output that was parsed from it.

    For a prompt of plain text both are the same. `messages` is the whole conversation, tool calls
    included. `latency_ms` is the time of models, tools and everything between, without the time
    spent waiting for a free slot or a rate limit, which is `waited_ms`. `tokens` has one trace for
    each reply whose provider returned it.
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
    """Answers prompts. Without a `session`, nothing is recorded."""

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
    ) -> PromptResponse[OutputT]:
        """Render the prompt, call the model and tools until it is done, and parse the output."""
        ...


@runtime_checkable
class AsyncProviderAdapter(Protocol[OutputT]):
    """Answers prompts without blocking the event loop."""

    async def evaluate_async(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
    ) -> PromptResponse[OutputT]:
        """Do the same as `ProviderAdapter.evaluate`."""
        ...
