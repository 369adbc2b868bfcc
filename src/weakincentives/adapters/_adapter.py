"""An adapter around a model: prompts in, responses out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Generic

from .._frozen import truly_frozen
from .._typevars import OutputT
from ..budget import BudgetTracker, Deadline
from ..chat import TokenUsage
from ..clock import SYSTEM_CLOCK, Clock
from ..prompt import Prompt, RenderedPrompt
from ..runtime.provider import PromptResponse
from ..runtime.session import Session
from ._model import Model, ModelRequest, ModelSettings
from ._portal import run_blocking
from ._tool_loop import Conversation, converse, specs

__all__ = ["ModelAdapter"]

Price = Callable[[str, TokenUsage], float | None]


@truly_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdapter(Generic[OutputT]):
    """Any model as a `ProviderAdapter`."""

    ask: Model
    model: str
    name: str
    settings: ModelSettings = field(default_factory=ModelSettings)
    max_turns: int = 20
    price: Price | None = None
    clock: Clock = SYSTEM_CLOCK

    def __str__(self) -> str:
        return f"{self.name}/{self.model}"

    def around(self, wrap: Callable[[Model], Model]) -> ModelAdapter[OutputT]:
        """The same adapter with something around its model: `adapter.around(retrying)`."""
        same = {each.name: getattr(self, each.name) for each in fields(ModelAdapter)}
        return ModelAdapter(**{**same, "ask": wrap(self.ask)})

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        epoch: int = 1,
    ) -> PromptResponse[OutputT]:
        """Answer the prompt, from synchronous code."""
        return run_blocking(
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
        """Answer the prompt. `epoch` tells repeats of one prompt apart, for caches."""
        return await self.converse(
            prompt.render(),
            epoch=epoch,
            session=session,
            deadline=deadline,
            budget_tracker=budget_tracker,
        )

    async def converse(
        self, rendered: RenderedPrompt[OutputT], *, epoch: int = 1, **how: Any
    ) -> PromptResponse[OutputT]:
        """Answer what is already rendered; `how` has more fields of the `Conversation`."""
        request = ModelRequest(
            model=self.model,
            messages=rendered.messages,
            tools=specs(rendered.tools),
            output_name=rendered.name,
            output_schema=rendered.output_schema,
            settings=self.settings,
            epoch=epoch,
        )
        how.setdefault("max_turns", self.max_turns)
        how.setdefault("clock", self.clock)
        talk = Conversation(rendered=rendered, request=request, adapter=self.name, **how)
        response: PromptResponse[Any] = await converse(self.ask, talk, self.price)
        return response
