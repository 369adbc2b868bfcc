"""Ask, call tools, ask again: the one conversation that every adapter holds.

Rules of this file:
1. Every tool attempt leaves an event, in the order in which the model asked: also one that
   raised, that does not exist, or that was cut off while others were done.
2. Every prompt leaves an event, also one that failed or was cut off, with what it took.
3. A failing tool never ends the conversation: the model is told what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import anyio

from ..budget import BudgetTracker, Deadline
from ..chat import ChatMessage, TokenTrace, TokenUsage, ToolCall
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import DeadlineExceededError, ProviderError
from ..prompt import RenderedPrompt, Tool, ToolContext, ToolResult, parse_output
from ..runtime.events import PromptExecuted, PromptRendered, ToolInvoked
from ..runtime.provider import PromptResponse
from ..runtime.session import Session
from ..runtime.tracing import span
from ._model import Model, ModelReply, ModelRequest, ToolSpec

__all__ = ["Conversation", "converse", "specs"]

_SHOWN = 1000
"""How much of a tool's answer an event keeps as text."""

_CUT_OFF = "cut off before it was done"


@dataclass(slots=True, kw_only=True)
class Conversation:
    """What stays the same from the first question to the last answer.

    A `transcript` is filled while they talk, so that what was said outlives a failure. Where they
    talk until `max_turns`, that is an error; with `open_end`, the conversation is over and its
    finish reason is `max_turns`.
    """

    rendered: RenderedPrompt
    request: ModelRequest
    adapter: str
    session: Session | None = None
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    max_turns: int = 20
    clock: Clock = SYSTEM_CLOCK
    transcript: list[ChatMessage] | None = None
    open_end: bool = False

    @property
    def owner(self) -> UUID | None:
        """Whose events these are."""
        return None if self.session is None else self.session.session_id


@dataclass(slots=True)
class _Spent:
    """What the conversation has taken so far; None until a provider says."""

    usage: TokenUsage | None = None
    latency_ms: float | None = None
    waited_ms: float = 0.0
    model: str | None = None
    tokens: tuple[TokenTrace, ...] = ()

    def add(self, reply: ModelReply) -> None:
        if reply.usage is not None:
            self.usage = reply.usage if self.usage is None else self.usage + reply.usage
        if reply.latency_ms is not None:
            self.latency_ms = reply.latency_ms + (self.latency_ms or 0.0)
        self.model = reply.model or self.model
        if reply.tokens is not None:
            self.tokens += (reply.tokens,)


async def converse(ask: Model, talk: Conversation, price: Any = None) -> PromptResponse[Any]:
    """Hold the conversation to its end and read the output."""
    with span("prompt", talk.rendered.name, rendered=talk.rendered, adapter=talk.adapter) as seen:
        response = await _converse(ask, talk, price)
        seen.add(response=response)
        return response


async def _converse(ask: Model, talk: Conversation, price: Any) -> PromptResponse[Any]:
    rendered, spent = talk.rendered, _Spent()
    _dispatch(
        talk,
        lambda: PromptRendered(
            prompt_ns=rendered.ns,
            prompt_key=rendered.key,
            prompt_name=rendered.name,
            adapter=talk.adapter,
            rendered_prompt=rendered.text,
            tools=tuple(tool.name for tool in rendered.tools),
            session_id=talk.owner,
        ),
    )
    try:
        messages, reply = await _turns(ask, talk, spent)
        text = reply.message.content
        output = parse_output(text, rendered.output_type)
    except BaseException as error:
        why = (str(error) or type(error).__name__) if isinstance(error, Exception) else _CUT_OFF
        _dispatch(talk, lambda: _executed(talk, spent, error=why))
        raise
    cost = price(spent.model or talk.request.model, spent.usage) if price and spent.usage else None
    result = {"text": text, "output": output}
    _dispatch(talk, lambda: _executed(talk, spent, cost=cost, result=result))
    return PromptResponse(
        prompt_name=rendered.name,
        text=text,
        output=output,
        usage=spent.usage,
        messages=tuple(messages),
        finish_reason=reply.finish_reason,
        model=spent.model,
        latency_ms=spent.latency_ms,
        waited_ms=max(0.0, spent.waited_ms),
        cost=cost,
        tokens=spent.tokens,
    )


def _executed(talk: Conversation, spent: _Spent, **more: Any) -> PromptExecuted:
    return PromptExecuted(
        prompt_name=talk.rendered.name,
        adapter=talk.adapter,
        usage=spent.usage,
        latency_ms=spent.latency_ms,
        model=spent.model,
        session_id=talk.owner,
        **more,
    )


async def _turns(
    ask: Model, talk: Conversation, spent: _Spent
) -> tuple[list[ChatMessage], ModelReply]:
    """Ask until the model answers without calling a tool."""
    messages = [] if talk.transcript is None else talk.transcript
    messages[:] = talk.request.messages
    for turn in range(talk.max_turns):
        request = replace(talk.request, messages=tuple(messages)) if turn else talk.request
        start = talk.clock.monotonic()
        with span("model", request.model, request=request, adapter=talk.adapter) as seen:
            reply = await _ask(ask, talk, request)
            seen.add(reply=reply)
        took = (talk.clock.monotonic() - start) * 1000
        spent.add(reply)
        spent.waited_ms += took - (took if reply.latency_ms is None else reply.latency_ms)
        messages.append(reply.message)
        if talk.budget_tracker is not None and not reply.cached:  # what was paid for before is free
            talk.budget_tracker.record(reply.usage or TokenUsage())
            talk.budget_tracker.check()
        if not reply.message.tool_calls:
            return messages, reply
        messages += await _call_tools(talk, reply.message.tool_calls)
    if talk.open_end:
        return messages, replace(reply, finish_reason="max_turns")
    raise ProviderError(
        f"expected an answer within {talk.max_turns} turns, got a tool call in each of them"
    )


async def _ask(ask: Model, talk: Conversation, request: ModelRequest) -> ModelReply:
    if talk.deadline is None and talk.budget_tracker is None:
        return await ask(request)
    limits = [talk.deadline, talk.budget_tracker and talk.budget_tracker.budget.deadline]
    deadlines = [limit for limit in limits if isinstance(limit, Deadline)]
    for deadline in deadlines:
        deadline.check()
    seconds = min((deadline.remaining() for deadline in deadlines), default=None)
    with anyio.move_on_after(seconds) if seconds is not None else nullcontext():
        return await ask(request)
    raise DeadlineExceededError(f"expected an answer within {seconds:.1f} s, and none came")


async def _call_tools(talk: Conversation, calls: Sequence[ToolCall]) -> list[ChatMessage]:
    """Call them together; tell of them in the order in which they were asked for."""
    done: list[tuple[ToolResult[Any], float] | None] = [None] * len(calls)

    async def run(index: int) -> None:
        start = talk.clock.monotonic()
        with span("tool", calls[index].name, call=calls[index]) as seen:
            result = await _call_tool(talk, calls[index])
            seen.add(result=result)
        done[index] = result, (talk.clock.monotonic() - start) * 1000

    try:
        async with anyio.create_task_group() as group:
            for index in range(len(calls)):
                group.start_soon(run, index)
    finally:
        for call, outcome in zip(calls, done, strict=True):
            _dispatch(talk, partial(_invoked, talk, call, outcome))
    return [
        ChatMessage("tool", outcome[0].text, tool_call_id=call.id, name=call.name)
        for call, outcome in zip(calls, done, strict=True)
        if outcome is not None
    ]


async def _call_tool(talk: Conversation, call: ToolCall) -> ToolResult[Any]:
    known: dict[str, Tool[Any, Any]] = {tool.name: tool for tool in talk.rendered.tools}
    if call.name not in known:
        return ToolResult.failed(
            f"there is no tool `{call.name}`; known: {', '.join(known) or 'none'}"
        )
    context = ToolContext(
        session=talk.session,
        prompt_name=talk.rendered.name,
        adapter=talk.adapter,
        call_id=call.id,
        deadline=talk.deadline,
    )
    return await known[call.name].call(call.arguments, context)


def _invoked(
    talk: Conversation, call: ToolCall, outcome: tuple[ToolResult[Any], float] | None
) -> ToolInvoked:
    result, latency_ms = outcome or (ToolResult.failed(_CUT_OFF), None)
    return ToolInvoked(
        prompt_name=talk.rendered.name,
        adapter=talk.adapter,
        name=call.name,
        params=call.arguments,
        result=result.value,
        success=result.success,
        error=result.error,
        rendered_output=result.text[:_SHOWN],
        call_id=call.id,
        latency_ms=latency_ms,
        session_id=talk.owner,
    )


def _dispatch(talk: Conversation, event: Callable[[], object]) -> None:
    if isinstance(talk.session, Session):  # a view, as evaluators have it, records nothing
        talk.session.dispatch(event())


def specs(tools: Sequence[Tool[Any, Any]]) -> tuple[ToolSpec, ...]:
    """The tools as a provider sees them."""
    return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)
