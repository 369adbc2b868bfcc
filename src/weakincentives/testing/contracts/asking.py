"""Prompts and tools for the suites of adapters, and each way to call an adapter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import anyio
import pytest

from ...chat import TokenUsage, ToolCall
from ...prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from ...runtime.agent.provider import PromptResponse
from ...runtime.events import PromptExecuted, PromptRendered
from ...runtime.session import Session
from ..servers.script import Reply

TIMEOUT_SECONDS = 30.0

T = TypeVar("T")
Call = tuple[Prompt[Any], dict[str, Any]]


@dataclass(frozen=True)
class Sum:
    """The parameters of `add` and `divide`."""

    a: int
    b: int


@dataclass(frozen=True)
class SumAnswer:
    """A structured output."""

    value: int


async def add(params: Sum) -> str:
    """Add two numbers, late: a tool that is called after it may end before it."""
    await anyio.sleep(0.01)
    return f"the sum is {params.a + params.b}"


def divide(params: Sum) -> float:
    """Divide two numbers; raise for a zero."""
    return params.a / params.b


ADD = Tool[Sum, str](name="add", description="Add two numbers.", handler=add)
DIVIDE = Tool[Sum, float](name="divide", description="Divide two numbers.", handler=divide)


def prompt_for(output: Any = str, *tools: Tool[Any, Any], text: str = "2 + 3?") -> Prompt[Any]:
    """Return a prompt with this text that asks for that output."""
    section = MarkdownSection("", "$text", "text", tools=tools)
    template = PromptTemplate[output](ns="contract", key="maths", name="Maths", sections=[section])
    return template.bind(text=text)


def calls(*tool_calls: ToolCall, usage: TokenUsage | None = None) -> Reply:
    """Return a turn in which the model calls tools."""
    return Reply(tool_calls=tool_calls, usage=usage)


def sum_call(name: str = "add", id: str = "call_1", **arguments: Any) -> ToolCall:
    """Return a call of a tool, with 2 and 3 by default."""
    return ToolCall(id, name, arguments or {"a": 2, "b": 3})


class Ask:
    """One way to call an adapter: `evaluate` in threads, or `evaluate_async` on an event loop."""

    def __init__(self, way: str) -> None:
        if way == "trio":
            pytest.importorskip("trio")
        self.way = way

    def __call__(self, adapter: Any, prompt: Prompt[Any], **more: Any) -> PromptResponse[Any]:
        """Return the response, or raise the error."""
        (outcome,) = self.each(adapter, [(prompt, more)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def each(
        self, adapter: Any, calls: Sequence[Call], *, at_once: bool = False
    ) -> list[PromptResponse[Any] | Exception]:
        """Return the outcome of each call, one after another or all concurrently."""
        if self.way == "sync":
            with ThreadPoolExecutor(len(calls) if at_once else 1) as pool:
                return list(pool.map(partial(_outcome, adapter), calls))
        outcomes: dict[int, PromptResponse[Any] | Exception] = {}

        async def ask(at: int) -> None:
            prompt, more = calls[at]
            try:
                outcomes[at] = await adapter.evaluate_async(prompt, **more)
            except Exception as error:
                outcomes[at] = error

        async def ask_all() -> None:
            async with anyio.create_task_group() as group:
                for at in range(len(calls)):
                    if at_once:
                        group.start_soon(ask, at)
                    else:
                        await ask(at)

        self.run(adapter, ask_all)
        return [outcomes[at] for at in range(len(calls))]

    def run(self, adapter: Any, main: Callable[[], Awaitable[T]]) -> T:
        """Run `main` on an event loop; skip if the adapter or the way has none."""
        if self.way == "sync" or not hasattr(adapter, "evaluate_async"):
            pytest.skip("this adapter has `evaluate` only, no `evaluate_async`")

        async def limited() -> T:
            with anyio.fail_after(TIMEOUT_SECONDS):
                return await main()

        return anyio.run(limited, backend=self.way)


def _outcome(adapter: Any, call: Call) -> PromptResponse[Any] | Exception:
    prompt, more = call
    try:
        response: PromptResponse[Any] = adapter.evaluate(prompt, **more)
    except Exception as error:
        return error
    return response


def tokens(usage: TokenUsage | None) -> tuple[int | None, int | None]:
    """Return the counts that every provider has."""
    assert usage is not None, "expected the usage that the model gave, got None"
    return usage.input_tokens, usage.output_tokens


def failed_once(session: Session) -> PromptExecuted:
    """Return the event of the prompt that failed; it and its rendering occur once."""
    assert len(session[PromptRendered]) == 1
    (executed,) = session[PromptExecuted].all()
    assert executed.error
    return executed
