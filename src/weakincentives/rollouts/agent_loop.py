"""Run one conversation of an agent with its endpoint, with or without an environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from ..adapters import ModelAdapter
from ..adapters.tool_loop import AfterTurn
from ..chat import ChatMessage, TokenUsage
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import UsageError, short_repr
from ..internal.checks import check_whole, tuple_of
from ..prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt, Tool
from ..runtime.agent.adapter_calls import adapter_call
from ..runtime.agent.provider import PromptResponse
from ..runtime.session import Session
from .endpoint import Adapter, endpoint_of
from .environment import call_user_function
from .trajectory import Trajectory

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
    after_turn: AfterTurn | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Trajectory[str]:
    """Ask the endpoint and call the environment's tools until it answers; return the trajectory.

    If the environment has `respond(messages)`, its text is the user's next message, until it
    returns None.
    If it still calls tools after `max_turns` (the endpoint's, if None), the trajectory has the
    `stop_reason` `max_turns`. The `transcript` is filled during the conversation, so that it
    survives a failure or a cancellation. The session records the events. `after_turn` gets the
    conversation after each turn in which tools were called, or the user responded.

    >>> import asyncio
    >>> from weakincentives.rollouts import CalculatorEnvironment
    >>> question = ChatMessage("user", "What is 15 * 7?")
    >>> left = asyncio.run(run_agent([question], CalculatorEnvironment(), "demo/large"))
    >>> left.output, [message.role for message in left.messages]
    ('105', ['user', 'assistant', 'tool', 'assistant'])
    """
    adapter = endpoint_of(endpoint)
    conversation = _started(messages, transcript)
    if max_turns is not None:
        check_whole(max_turns, 1, "max_turns")
    tools = () if env is None else await _tools_of(env)
    respond = getattr(env, "respond", None)
    start = clock.monotonic()
    if isinstance(adapter, ModelAdapter):

        async def converse(turns: int) -> PromptResponse[Any]:
            return await adapter.converse(
                RenderedPrompt(_NAME, "rollouts", _NAME, tuple(conversation), tools),
                epoch=epoch,
                session=session,
                max_turns=turns,
                clock=clock,
                transcript=conversation,
                allow_max_turns=True,
                after_turn=after_turn,
            )

        limit = adapter.max_turns if max_turns is None else max_turns
        response = await _conversed(converse, respond, conversation, limit, after_turn)
    else:
        if max_turns is not None or after_turn is not None or respond is not None:
            what = "`max_turns`" if max_turns is not None else "snapshots and simulated users"
            raise UsageError(
                f"expected no {what} for `{type(adapter).__qualname__}`, which counts its own turns"
            )
        response = await _prompted(adapter, conversation, tools, session)
    return _trajectory(conversation, response, clock.monotonic() - start)


def _started(
    messages: Sequence[ChatMessage], transcript: list[ChatMessage] | None
) -> list[ChatMessage]:
    """Return the list that the conversation is written to, with its first messages."""
    conversation = [] if transcript is None else transcript
    conversation[:] = tuple_of(ChatMessage, messages, "messages", "pass ChatMessage(role, content)")
    if not conversation:
        raise UsageError("expected at least one message, got none")
    return conversation


def _trajectory(
    conversation: list[ChatMessage], response: PromptResponse[Any], seconds: float
) -> Trajectory[str]:
    """Return the conversation as a trajectory; its latency is without the waits for a retry."""
    return Trajectory(
        messages=tuple(conversation),
        output=conversation[-1].content if response.text is None else response.text,
        usage=response.usage,
        stop_reason=response.finish_reason,
        latency_ms=max(0, round(seconds * 1000 - response.waited_ms)),
        cost=response.cost,
        tokens=response.tokens,
    )


async def _conversed(
    converse: Callable[[int], Awaitable[PromptResponse[Any]]],
    respond: Callable[..., Any] | None,
    conversation: list[ChatMessage],
    max_turns: int,
    after_turn: AfterTurn | None,
) -> PromptResponse[Any]:
    """Converse, and continue while the environment's user responds; combine the responses."""
    max_replies = max_turns + _replies(conversation)
    response = await converse(max_turns)
    while respond is not None and response.finish_reason != "max_turns":
        answer = await call_user_function(respond, tuple(conversation))
        if answer is None:
            return response
        conversation.append(ChatMessage("user", answer))
        if after_turn is not None:
            await after_turn(conversation)
        left = max_replies - _replies(conversation)
        if left < 1:
            return replace(response, finish_reason="max_turns")
        response = _added(response, await converse(left))
    return response


def _replies(messages: Sequence[ChatMessage]) -> int:
    return sum(message.role == "assistant" for message in messages)


def _added(before: PromptResponse[Any], after: PromptResponse[Any]) -> PromptResponse[Any]:
    """Return the later response, with the usage, cost and tokens of both."""
    usages = [each.usage for each in (before, after) if each.usage is not None]
    costs = [each.cost for each in (before, after) if each.cost is not None]
    return replace(
        after,
        usage=sum(usages, TokenUsage()) if usages else None,
        cost=sum(costs) if costs else None,
        waited_ms=before.waited_ms + after.waited_ms,
        tokens=before.tokens + after.tokens,
    )


async def _tools_of(env: Any) -> tuple[Tool[Any, Any], ...]:
    """Return the tools of an environment, which may be an attribute or a method."""
    tools = getattr(env, "tools", ())
    if callable(tools):
        tools = await call_user_function(tools)
    where = f"{type(env).__qualname__}.tools"
    found = tuple_of(Tool, tools, where, "pass Tool(name, description, handler)")
    names = [tool.name for tool in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"expected tools with different names, got two `{name}` - at `{where}`"
            )
    return found


async def _prompted(
    adapter: Adapter,
    conversation: list[ChatMessage],
    tools: tuple[Tool[Any, Any], ...],
    session: Any,
) -> PromptResponse[Any]:
    """Return the response of an adapter that takes only prompts, and calls the tools itself."""
    name = type(adapter).__qualname__
    sections: list[MarkdownSection[Any]] = []
    for number, message in enumerate(conversation):
        if message.role == "tool" or message.tool_calls:
            raise UsageError(
                f"expected messages without tool calls for `{name}`, which takes prompts only, got "
                f"{short_repr(message)} - at `messages[{number}]`"
            )
        sections.append(
            MarkdownSection("", f"$text{number}", f"message-{number}", role=message.role)
        )
    sections[-1] = replace(sections[-1], tools=tools)
    template = PromptTemplate[str]("rollouts", _NAME, sections=sections)
    prompt: Prompt[str] = template.bind(
        **{f"text{n}": each.content for n, each in enumerate(conversation)}
    )
    response = await adapter_call(adapter).ask(prompt, {"session": session})
    conversation[:] = response.messages or (
        *conversation,
        ChatMessage("assistant", str(response.text or response.output)),
    )
    return response
