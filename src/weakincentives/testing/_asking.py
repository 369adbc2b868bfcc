"""How the contract asks: prompts and tools to ask with, and each way to ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import anyio
import pytest

from ..chat import TokenUsage, ToolCall
from ..prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from ..runtime.events import PromptExecuted, PromptRendered
from ..runtime.provider import PromptResponse
from ..runtime.session import Session
from ._script import Reply

__all__ = [
    "ADD",
    "DIVIDE",
    "Answer",
    "Ask",
    "Call",
    "call",
    "calls",
    "failed_once",
    "prompt_for",
    "tokens",
]

PATIENCE = 30.0  # seconds, after which something hangs

T = TypeVar("T")
Call = tuple[Prompt[Any], dict[str, Any]]


@dataclass(frozen=True)
class Sum:
    """What `add` and `divide` take."""

    a: int
    b: int


@dataclass(frozen=True)
class Answer:
    """A structured output."""

    value: int


async def add(params: Sum) -> str:
    """Adds, late: a tool that is asked for after it may be done before it."""
    await anyio.sleep(0.01)
    return f"the sum is {params.a + params.b}"


def divide(params: Sum) -> float:
    """Raises for a zero."""
    return params.a / params.b


ADD = Tool[Sum, str](name="add", description="Add two numbers.", handler=add)
DIVIDE = Tool[Sum, float](name="divide", description="Divide two numbers.", handler=divide)


def prompt_for(output: Any = str, *tools: Tool[Any, Any], text: str = "2 + 3?") -> Prompt[Any]:
    """A prompt that says `text` and asks for that output."""
    section = MarkdownSection("", "$text", "text", tools=tools)
    template = PromptTemplate[output](ns="contract", key="maths", name="Maths", sections=[section])
    return template.bind(text=text)


def calls(*wishes: ToolCall, usage: TokenUsage | None = None) -> Reply:
    """A turn in which the model calls tools."""
    return Reply(tool_calls=wishes, usage=usage)


def call(name: str = "add", id: str = "call_1", **arguments: Any) -> ToolCall:
    """A wish to call a tool, of 2 and 3 unless told."""
    return ToolCall(id, name, arguments or {"a": 2, "b": 3})


class Ask:
    """One way to ask: `evaluate` in threads, or `evaluate_async` on an event loop."""

    def __init__(self, way: str) -> None:
        if way == "trio":
            pytest.importorskip("trio")
        self.way = way

    def __call__(self, adapter: Any, prompt: Prompt[Any], **more: Any) -> PromptResponse[Any]:
        """The response, or the error that was raised."""
        (outcome,) = self.each(adapter, [(prompt, more)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def each(
        self, adapter: Any, asked: Sequence[Call], *, at_once: bool = False
    ) -> list[PromptResponse[Any] | Exception]:
        """What came of each call: one after another, on one event loop, or all at once."""
        if self.way == "sync":
            with ThreadPoolExecutor(len(asked) if at_once else 1) as pool:
                return list(pool.map(partial(_outcome, adapter), asked))
        outcomes: dict[int, PromptResponse[Any] | Exception] = {}

        async def ask(at: int) -> None:
            prompt, more = asked[at]
            try:
                outcomes[at] = await adapter.evaluate_async(prompt, **more)
            except Exception as error:
                outcomes[at] = error

        async def ask_all() -> None:
            async with anyio.create_task_group() as group:
                for at in range(len(asked)):
                    if at_once:
                        group.start_soon(ask, at)
                    else:
                        await ask(at)

        self.run(adapter, ask_all)
        return [outcomes[at] for at in range(len(asked))]

    def run(self, adapter: Any, main: Callable[[], Awaitable[T]]) -> T:
        """What `main` returns, on an event loop; skips where the adapter or the way has none."""
        if self.way == "sync" or not hasattr(adapter, "evaluate_async"):
            pytest.skip("needs `evaluate_async`")

        async def in_time() -> T:
            with anyio.fail_after(PATIENCE):
                return await main()

        return anyio.run(in_time, backend=self.way)


def _outcome(adapter: Any, asked: Call) -> PromptResponse[Any] | Exception:
    prompt, more = asked
    try:
        response: PromptResponse[Any] = adapter.evaluate(prompt, **more)
    except Exception as error:
        return error
    return response


def tokens(usage: TokenUsage | None) -> tuple[int | None, int | None]:
    """What every provider counts."""
    assert usage is not None, "expected the usage that the model gave, got None"
    return usage.input_tokens, usage.output_tokens


def failed_once(session: Session) -> PromptExecuted:
    """The event of the prompt that failed: it is there once, and so is that of its rendering."""
    assert len(session[PromptRendered]) == 1
    (executed,) = session[PromptExecuted].all()
    assert executed.error
    return executed
