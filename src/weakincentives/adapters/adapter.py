"""`ModelAdapter`: turn a model, which takes requests, into an adapter, which takes prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Generic

from ..budget import BudgetTracker, Deadline
from ..chat import ChatMessage
from ..clock import SYSTEM_CLOCK, Clock
from ..internal.event_loop import run_sync
from ..internal.frozen import frozen_generic
from ..internal.typevars import OutputT
from ..prompt import Prompt, RenderedPrompt
from ..runtime.agent.adapter_calls import records_prompts
from ..runtime.agent.provider import PromptResponse
from ..runtime.session import Session
from .model import Model, ModelRequest, ModelSettings
from .provider_retry import RetryingModel
from .tool_loop import AfterTurn, Conversation, Price, converse, specs


def _nothing_to_check() -> None:
    """Do nothing: this model needs no key."""


@frozen_generic
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelAdapter(Generic[OutputT]):
    """Any model as a `ProviderAdapter`.

    `check` raises a `UsageError` if no call can succeed, as without a key. A run calls it before
    its first sample.
    """

    ask: Model
    model: str
    name: str
    settings: ModelSettings = field(default_factory=ModelSettings)
    max_turns: int = 20
    price: Price | None = None
    clock: Clock = SYSTEM_CLOCK
    check: Callable[[], None] = _nothing_to_check

    def __str__(self) -> str:
        return f"{self.name}/{self.model}"

    def __repr__(self) -> str:
        settings = f" ({self.settings})" if str(self.settings) else ""
        return f"<{type(self).__name__} {self}{settings}>"

    def around(self, wrap: Callable[[Model], Model]) -> ModelAdapter[OutputT]:
        """Return a copy whose model is wrapped: `adapter.around(Limiter(16))`.

        If the model retries, it still does so once, outside the wrapper.
        """
        ask = self.ask
        wrapped = ask.around(wrap) if isinstance(ask, RetryingModel) else wrap(ask)
        settings = {each.name: getattr(self, each.name) for each in fields(ModelAdapter)}
        return ModelAdapter(**{**settings, "ask": wrapped})

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        epoch: int = 1,
    ) -> PromptResponse[OutputT]:
        """Evaluate the prompt from synchronous code."""
        return run_sync(
            partial(
                self.evaluate_async,
                prompt,
                session=session,
                deadline=deadline,
                budget_tracker=budget_tracker,
                epoch=epoch,
            )
        )

    async def evaluate_async(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        epoch: int = 1,
    ) -> PromptResponse[OutputT]:
        """Evaluate the prompt. `epoch` distinguishes repeats of one prompt, for caches."""
        return await self.converse(
            prompt.render(),
            epoch=epoch,
            session=session,
            deadline=deadline,
            budget_tracker=budget_tracker,
        )

    records_prompts(evaluate_async)

    async def converse(
        self,
        rendered: RenderedPrompt[OutputT],
        *,
        epoch: int = 1,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        max_turns: int | None = None,
        clock: Clock | None = None,
        transcript: list[ChatMessage] | None = None,
        allow_max_turns: bool = False,
        after_turn: AfterTurn | None = None,
    ) -> PromptResponse[OutputT]:
        """Evaluate a rendered prompt; the options are the fields of `Conversation`."""
        request = ModelRequest(
            model=self.model,
            messages=rendered.messages,
            tools=specs(rendered.tools),
            output_name=rendered.name,
            output_schema=rendered.output_schema,
            settings=self.settings,
            epoch=epoch,
        )
        conversation = Conversation(
            rendered=rendered,
            request=request,
            adapter=self.name,
            session=session,
            deadline=deadline,
            budget_tracker=budget_tracker,
            max_turns=self.max_turns if max_turns is None else max_turns,
            clock=clock or self.clock,
            transcript=transcript,
            allow_max_turns=allow_max_turns,
            after_turn=after_turn,
        )
        return await converse(self.ask, conversation, self.price)
