"""The main loops of the specifications, and an agent that runs one on a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weakincentives import (
    MainLoop,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Session,
    Tool,
    ToolContext,
)
from weakincentives.evals import Sample, Trajectory
from weakincentives.evals.engine import Agent
from weakincentives.runtime import ControlDispatcher

__all__ = ["MathLoop", "PlanStep", "QALoop", "QAParams", "agent_of"]


@dataclass(slots=True, frozen=True)
class QAParams:
    """Parameters for the QA prompt."""

    question: str


class QALoop(MainLoop[str, str]):
    """Answer questions; as the specification writes it."""

    def __init__(self, *, adapter: Any, bus: ControlDispatcher, **options: Any) -> None:
        super().__init__(adapter=adapter, bus=bus, **options)
        self._template = PromptTemplate[str](
            ns="qa",
            key="answer",
            name="qa",
            sections=[
                MarkdownSection[QAParams](
                    title="Question",
                    template="Answer concisely: $question",
                    key="q",
                ),
            ],
        )

    def initialize(self, question: str) -> tuple[Prompt[str], Session]:  # type: ignore[override]
        prompt = Prompt(self._template).bind(QAParams(question=question))
        session = Session(dispatcher=self._bus)
        return prompt, session


@dataclass(slots=True, frozen=True)
class PlanStep:
    """Step in the agent's plan."""

    name: str
    status: str  # "pending", "completed", "failed"


@dataclass(slots=True, frozen=True)
class Sum:
    left: int
    right: int


@dataclass(slots=True, frozen=True)
class Query:
    query: str


def add(params: Sum, *, context: ToolContext) -> int:
    context.session[PlanStep].append(PlanStep("add", "completed"))
    return params.left + params.right


class MathLoop(QALoop):
    """Solve problems with a calculator; there is also a web search, which no problem needs."""

    def __init__(self, *, adapter: Any, bus: ControlDispatcher) -> None:
        super().__init__(adapter=adapter, bus=bus)
        self._template = PromptTemplate[str](
            ns="math",
            key="answer",
            name="math",
            sections=[
                MarkdownSection[QAParams](
                    title="Problem",
                    template="Solve: $question",
                    key="q",
                    tools=[
                        Tool[Sum, int]("calculator", "Adds two numbers.", add),
                        Tool[Query, str]("web_search", "Searches.", lambda params: "nothing"),
                    ],
                ),
            ],
        )


def agent_of(loop: MainLoop[Any, Any]) -> Agent:
    """Return an agent that makes one request to the loop for each sample."""

    async def agent(sample: Sample[Any, Any]) -> tuple[Trajectory[Any], Session]:
        response, session = await loop.execute_async(sample.input)
        return Trajectory(response.messages, response.output, response.usage), session

    return agent
