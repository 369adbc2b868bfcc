"""One conversation of an agent with its endpoint, in an environment or in none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .._checks import tuple_of
from ..adapters import ModelAdapter
from ..chat import ChatMessage
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import UsageError, shown
from ..prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt, Tool
from ..runtime.provider import PromptResponse
from ..runtime.session import Session
from ._endpoint import Adapter, endpoint_of
from ._environment import called
from ._trajectory import Trajectory

__all__ = ["run_agent"]

_NAME = "agent"


async def run_agent(
    messages: Sequence[ChatMessage],
    env: Any,
    endpoint: Any,
    *,
    session: Session | None = None,
    epoch: int = 1,
    max_turns: int | None = None,
    transcript: list[ChatMessage] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Trajectory[str]:
    """Ask the endpoint, call the environment's tools as it wishes, until it answers.

    Whoever still calls tools after `max_turns` (of the endpoint, if None) leaves a trajectory whose
    `stop_reason` is `max_turns`. A `transcript` is filled as the conversation goes, so that what
    was said is there after a failure or a cancellation too. The session records what happened.

    >>> import asyncio
    >>> from weakincentives.rollouts import CalculatorEnvironment
    >>> question = ChatMessage("user", "What is 15 * 7?")
    >>> left = asyncio.run(run_agent([question], CalculatorEnvironment(), "demo/large"))
    >>> left.output, [message.role for message in left.messages]
    ('105', ['user', 'assistant', 'tool', 'assistant'])
    """
    adapter = endpoint_of(endpoint)
    said = [] if transcript is None else transcript
    said[:] = tuple_of(ChatMessage, messages, "messages", "pass ChatMessage(role, content)")
    if not said:
        raise UsageError("expected at least one message, got none")
    tools = () if env is None else await _tools_of(env)
    start = clock.monotonic()
    if isinstance(adapter, ModelAdapter):
        response = await adapter.converse(
            RenderedPrompt(_NAME, "rollouts", _NAME, tuple(said), tools),
            epoch=epoch,
            session=session,
            max_turns=adapter.max_turns if max_turns is None else _whole(max_turns),
            clock=clock,
            transcript=said,
            open_end=True,
        )
    else:
        if max_turns is not None:
            raise UsageError(
                f"expected no `max_turns` for `{type(adapter).__qualname__}`, which counts its own"
            )
        response = await _prompted(adapter, said, tools, session)
    took = (clock.monotonic() - start) * 1000 - response.waited_ms
    return Trajectory(
        messages=tuple(said),
        output=said[-1].content if response.text is None else response.text,
        usage=response.usage,
        stop_reason=response.finish_reason,
        latency_ms=max(0, round(took)),
        cost=response.cost,
        tokens=response.tokens,
    )


async def _tools_of(env: Any) -> tuple[Tool[Any, Any], ...]:
    """The tools that an environment offers, as they are or by a method; none without any."""
    tools = getattr(env, "tools", ())
    if callable(tools):
        tools = await called(tools)
    where = f"{type(env).__qualname__}.tools"
    found = tuple_of(Tool, tools, where, "pass Tool(name, description, handler)")
    names = [tool.name for tool in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"expected tools of different names, got two `{name}` - at `{where}`")
    return found


def _whole(turns: Any) -> int:
    if type(turns) is not int or turns < 1:
        raise UsageError(f"expected a whole number >= 1 for `max_turns`, got {shown(turns)}")
    return turns


async def _prompted(
    adapter: Adapter, said: list[ChatMessage], tools: tuple[Tool[Any, Any], ...], session: Any
) -> PromptResponse[Any]:
    """The answer of an adapter that takes prompts only, and calls the tools by itself."""
    who = type(adapter).__qualname__
    sections: list[MarkdownSection[Any]] = []
    for number, message in enumerate(said):
        if message.role == "tool" or message.tool_calls:
            raise UsageError(
                f"expected messages without tool calls for `{who}`, which takes prompts only, got "
                f"{shown(message)} - at `messages[{number}]`"
            )
        sections.append(
            MarkdownSection("", f"$text{number}", f"message-{number}", role=message.role)
        )
    sections[-1] = replace(sections[-1], tools=tools)
    template = PromptTemplate[str]("rollouts", _NAME, sections=sections)
    prompt: Prompt[str] = template.bind(**{f"text{n}": each.content for n, each in enumerate(said)})
    ask: Callable[..., Any] = getattr(adapter, "evaluate_async", None) or adapter.evaluate  # type: ignore[union-attr]
    response: PromptResponse[Any] = await called(partial(ask, prompt, session=session))
    said[:] = response.messages or (
        *said,
        ChatMessage("assistant", str(response.text or response.output)),
    )
    return response
