"""One question to a judge: what it sees as data, how its answer is read, what asking cost.

Rules of this file:
1. What is judged goes through `slot`: JSON text in ASCII, which cannot leave its quotes or its
   line. Nothing that a judge said goes into another prompt, not even into the second question.
2. An answer that cannot be read is asked for again, `retries` times. Then, and for anything that
   the adapter raises, there is an `EvaluatorError`: never a score, and never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from .. import serde
from ..chat import TokenUsage
from ..errors import EvaluatorError, OutputParseError, UsageError, shown
from ..prompt import MarkdownSection, Prompt, PromptTemplate
from ..runtime.provider import PromptResponse
from ._score import Metric
from ._types import EvalContext

__all__ = ["Answer", "Question", "adapter_of", "checked_adapter", "run_here", "slot"]

T = TypeVar("T")

# The second question differs from the first: to the same one, a cache has the same answer.
_AGAIN: MarkdownSection[Any] = MarkdownSection(
    title="Once More",
    key="again",
    role="system",
    template="Your last answer could not be read. Answer with that JSON object and nothing else.",
)


def slot(value: Any) -> str:
    """JSON text in ASCII: no line break, no quote and no invisible character survives in it."""
    return json.dumps(value if isinstance(value, str) else serde.encode(value).decode())


def checked_adapter(adapter: Any) -> Any:
    """The adapter, unless it is none."""
    if not callable(getattr(adapter, "evaluate", None)):
        raise UsageError(f"expected an adapter with `evaluate`, got {shown(adapter)}")
    return adapter


def adapter_of(context: EvalContext, own: Any, who: str) -> Any:
    """The judge's own adapter, or else that of the context."""
    adapter = own if own is not None else context.adapter
    if adapter is None:
        raise EvaluatorError(
            f"the judge `{who}` has no adapter - pass one: llm_judge(adapter, criterion)"
        )
    return adapter


@dataclass(frozen=True, slots=True)
class Answer:
    """What a judge said, and what asking it took: None where the provider did not say."""

    output: Any
    usage: TokenUsage | None = None
    cost: float | None = None
    reasks: int = 0

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The judge's tokens, cost and repeated questions, which never count in a score.

        An answer that could not be read told us no usage: after a re-ask, the tokens are a floor.
        """
        found = {
            "judge_tokens": self.usage.total_tokens if self.usage else None,
            "judge_cost": self.cost,
            "judge_reasks": self.reasks or None,
        }
        return tuple(Metric(name, value) for name, value in found.items() if value is not None)


@dataclass(frozen=True, slots=True)
class Question:
    """A template to ask with, and `problem`: what is wrong with an output, "" if nothing is."""

    who: str
    wanted: str
    template: PromptTemplate[Any]
    problem: Callable[[Any], str]
    retries: int = 1

    def __post_init__(self) -> None:
        if type(self.retries) is not int or self.retries < 0:
            raise UsageError(f"expected a whole number >= 0 of retries, got {shown(self.retries)}")

    async def ask(self, adapter: Any, params: Any) -> Answer:
        """The judge's answer, once it can be read."""
        wrong, template = "", self.template
        for reasks in range(self.retries + 1):
            try:
                response = await _evaluate(adapter, template.bind(params))
                wrong = self.problem(response.output)
            except OutputParseError as error:
                wrong = (
                    f"expected {self.wanted} from the judge `{self.who}`, got no verdict: {error}"
                )
            except Exception as error:
                before = f"{wrong} - and asked again, " if wrong else ""
                raise EvaluatorError(
                    f"{before}the judge `{self.who}` raised {type(error).__name__}: {error}"
                ) from error
            else:
                if not wrong:
                    return Answer(response.output, response.usage, response.cost, reasks)
            *rules, data = self.template.sections
            template = replace(self.template, sections=(*rules, _AGAIN, data))
        raise EvaluatorError(wrong)


async def _evaluate(adapter: Any, prompt: Prompt[Any]) -> PromptResponse[Any]:
    if hasattr(adapter, "evaluate_async"):
        return await adapter.evaluate_async(prompt)  # type: ignore[no-any-return]
    return await to_thread.run_sync(adapter.evaluate, prompt)


def run_here(call: Callable[[], Awaitable[T]], instead: str) -> T:
    """Wait for what the call gives, from synchronous code."""
    try:
        return anyio.run(call)
    except RuntimeError as error:
        if "Already running" not in str(error):
            raise
        raise UsageError(f"an event loop is running here - write `{instead}`") from None
