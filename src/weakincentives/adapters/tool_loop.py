"""The tool loop that every adapter uses: ask the model, call its tools, ask again.

Rules of this file:
1. Every tool call records an event, in the order of the model's calls, even if the tool raised,
   does not exist, or was cancelled.
2. Every prompt records an event with its usage, even if it failed or was cancelled.
3. A failing tool never ends the conversation: the model gets the error as the tool's result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import anyio

from ..budget import BudgetTracker, Deadline
from ..chat import ChatMessage, TokenTrace, TokenUsage, ToolCall
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import DeadlineExceededError, ProviderError
from ..internal.concurrency import gather
from ..prompt import RenderedPrompt, Tool, ToolContext, ToolResult, parse_output
from ..runtime.agent.provider import PromptResponse
from ..runtime.events import CallSpan, PromptExecuted, PromptRendered, ToolInvoked
from ..runtime.metering import meter_call
from ..runtime.session import Session
from ..runtime.tracing import span
from ..runtime.worker.heartbeat import beat, current_heartbeat
from ..secrets import shorten
from .model import Model, ModelReply, ModelRequest, ToolSpec

AfterTurn = Callable[[Sequence[ChatMessage]], Awaitable[None]]
Price = Callable[[str, TokenUsage], float | None]

_MAX_RESULT_TEXT = 1000  # characters of a tool's result that an event stores
_CANCELLED = "cancelled before it finished"


@dataclass(slots=True, kw_only=True)
class Conversation:
    """The parameters of one conversation.

    The `transcript` is filled during the conversation, so that it survives a failure. Reaching
    `max_turns` is an error; with `allow_max_turns`, it ends the conversation with the finish
    reason `max_turns`. `after_turn` gets the messages after each turn in which tools were called.
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
    allow_max_turns: bool = False
    after_turn: AfterTurn | None = None

    @property
    def session_id(self) -> UUID | None:
        """The session that records the events, if any."""
        return None if self.session is None else self.session.session_id


@dataclass(slots=True)
class _Totals:
    """Usage and time of the conversation so far; None if no provider has reported any."""

    start: float
    usage: TokenUsage | None = None
    waited_ms: float = 0.0  # negative if replies come from a cache, with their recorded latency
    model: str | None = None
    tokens: tuple[TokenTrace, ...] = ()
    calls: list[CallSpan] = field(default_factory=list)

    def latency_ms(self, clock: Clock) -> float:
        """Return how long the conversation has taken, without the waits."""
        return max(0.0, (clock.monotonic() - self.start) * 1000 - self.waited_ms)

    def add(self, reply: ModelReply, took_ms: float) -> None:
        if reply.usage is not None:
            self.usage = reply.usage if self.usage is None else self.usage + reply.usage
        self.waited_ms += took_ms - (took_ms if reply.latency_ms is None else reply.latency_ms)
        self.model = reply.model or self.model
        if reply.tokens is not None:
            self.tokens += (reply.tokens,)


async def converse(ask: Model, chat: Conversation, price: Price | None) -> PromptResponse[Any]:
    """Run the conversation to its end and parse the output."""
    with span("prompt", chat.rendered.name, rendered=chat.rendered, adapter=chat.adapter) as seen:
        response = await _converse(ask, chat, price)
        seen.add(response=response)
        return response


async def _converse(ask: Model, chat: Conversation, price: Price | None) -> PromptResponse[Any]:
    rendered, totals = chat.rendered, _Totals(chat.clock.monotonic())
    _dispatch(
        chat,
        lambda: PromptRendered(
            prompt_ns=rendered.ns,
            prompt_key=rendered.key,
            prompt_name=rendered.name,
            adapter=chat.adapter,
            rendered_prompt=rendered.text,
            tools=tuple(tool.name for tool in rendered.tools),
            session_id=chat.session_id,
        ),
    )
    try:
        messages, reply = await _run_turns(ask, chat, totals, price)
        text = reply.message.content
        output = parse_output(text, rendered.output_type)
    except BaseException as error:
        reason = _reason(error)
        meter_call(totals.usage, _cost(chat, totals.model, totals.usage, price))
        _dispatch(chat, lambda: _executed(chat, totals, error=reason))
        raise
    cost = _cost(chat, totals.model, totals.usage, price)
    meter_call(totals.usage, cost)
    result = {"text": text, "output": output}
    _dispatch(chat, lambda: _executed(chat, totals, cost=cost, result=result))
    return PromptResponse(
        prompt_name=rendered.name,
        text=text,
        output=output,
        usage=totals.usage,
        messages=tuple(messages),
        finish_reason=reply.finish_reason,
        model=totals.model,
        latency_ms=totals.latency_ms(chat.clock),
        waited_ms=max(0.0, totals.waited_ms),
        cost=cost,
        tokens=totals.tokens,
    )


def _cost(
    chat: Conversation, model: str | None, usage: TokenUsage | None, price: Price | None
) -> float | None:
    if price is None or usage is None:
        return None
    return price(model or chat.request.model, usage)


def _executed(chat: Conversation, totals: _Totals, **fields: Any) -> PromptExecuted:
    return PromptExecuted(
        prompt_name=chat.rendered.name,
        adapter=chat.adapter,
        usage=totals.usage,
        latency_ms=totals.latency_ms(chat.clock),
        model=totals.model,
        calls=tuple(totals.calls),
        session_id=chat.session_id,
        **fields,
    )


async def _run_turns(
    ask: Model, chat: Conversation, totals: _Totals, price: Price | None
) -> tuple[list[ChatMessage], ModelReply]:
    """Ask until the model replies without calling a tool."""
    messages = [] if chat.transcript is None else chat.transcript
    messages[:] = chat.request.messages
    for turn in range(chat.max_turns):
        request = replace(chat.request, messages=tuple(messages)) if turn else chat.request
        start = chat.clock.monotonic()
        with span("model", request.model, request=request, adapter=chat.adapter) as seen:
            beat()
            try:
                reply = await _ask(ask, chat, request)
            except BaseException as error:
                took_ms = (chat.clock.monotonic() - start) * 1000
                totals.calls.append(_span(chat, None, took_ms, error=_reason(error)))
                raise
            beat()
            seen.add(reply=reply)
        took_ms = (chat.clock.monotonic() - start) * 1000
        totals.add(reply, took_ms)
        cost = _cost(chat, reply.model, reply.usage, price)
        totals.calls.append(_span(chat, reply, took_ms, cost=cost))
        messages.append(reply.message)
        if chat.budget_tracker is not None and not reply.cached:  # cached replies are free
            chat.budget_tracker.record(reply.usage or TokenUsage())
            chat.budget_tracker.check()
        if not reply.message.tool_calls:
            return messages, reply
        messages += await _call_tools(chat, reply.message.tool_calls)
        if chat.after_turn is not None:
            await chat.after_turn(messages)
    if chat.allow_max_turns:
        return messages, replace(reply, finish_reason="max_turns")
    raise ProviderError(
        f"expected an answer within {chat.max_turns} turns, got a tool call in each of them"
    )


def _span(chat: Conversation, reply: ModelReply | None, took_ms: float, **fields: Any) -> CallSpan:
    """Return the span of a call that ends now; the model worked last, after any waits."""
    ms = took_ms if reply is None or reply.latency_ms is None else reply.latency_ms
    return CallSpan(
        kind="model",
        name=(reply and reply.model) or chat.request.model,
        start=SYSTEM_CLOCK.now().timestamp() - min(ms, took_ms) / 1000,
        ms=ms,
        usage=None if reply is None else reply.usage,
        stop_reason=None if reply is None else reply.finish_reason,
        **fields,
    )


def _reason(error: BaseException) -> str:
    """Return why a call ended without a reply."""
    return (str(error) or type(error).__name__) if isinstance(error, Exception) else _CANCELLED


async def _ask(ask: Model, chat: Conversation, request: ModelRequest) -> ModelReply:
    if chat.deadline is None and chat.budget_tracker is None:
        return await ask(request)
    limits = [chat.deadline, chat.budget_tracker and chat.budget_tracker.budget.deadline]
    deadlines = [limit for limit in limits if isinstance(limit, Deadline)]
    for deadline in deadlines:
        deadline.check()
    seconds = min((deadline.remaining() for deadline in deadlines), default=None)
    with anyio.move_on_after(seconds) if seconds is not None else nullcontext():
        return await ask(request)
    raise DeadlineExceededError(f"timed out after {seconds:.1f} s without an answer")


async def _call_tools(chat: Conversation, calls: Sequence[ToolCall]) -> list[ChatMessage]:
    """Call the tools concurrently; record them in the order of the calls."""
    done: list[tuple[ToolResult[Any], float, datetime] | None] = [None] * len(calls)

    async def run(index: int) -> None:
        start = chat.clock.monotonic()
        with span("tool", calls[index].name, call=calls[index]) as seen:
            result = await _call_tool(chat, calls[index])
            beat()
            seen.add(result=result)
        done[index] = result, (chat.clock.monotonic() - start) * 1000, SYSTEM_CLOCK.now()

    try:
        await gather(partial(run, index) for index in range(len(calls)))
    finally:
        for call, outcome in zip(calls, done, strict=True):
            _dispatch(chat, partial(_invoked, chat, call, outcome))
    return [
        ChatMessage("tool", outcome[0].text, tool_call_id=call.id, name=call.name)
        for call, outcome in zip(calls, done, strict=True)
        if outcome is not None
    ]


async def _call_tool(chat: Conversation, call: ToolCall) -> ToolResult[Any]:
    tools: dict[str, Tool[Any, Any]] = {tool.name: tool for tool in chat.rendered.tools}
    if call.name not in tools:
        return ToolResult.failed(
            f"there is no tool `{call.name}`; known: {', '.join(tools) or 'none'}"
        )
    context = ToolContext(
        session=chat.session,
        prompt_name=chat.rendered.name,
        adapter=chat.adapter,
        call_id=call.id,
        deadline=chat.deadline,
        heartbeat=current_heartbeat.get(),
    )
    return await tools[call.name].call(call.arguments, context)


def _invoked(
    chat: Conversation, call: ToolCall, outcome: tuple[ToolResult[Any], float, datetime] | None
) -> ToolInvoked:
    result, latency_ms, ended_at = outcome or (
        ToolResult.failed(_CANCELLED),
        None,
        SYSTEM_CLOCK.now(),
    )
    return ToolInvoked(
        prompt_name=chat.rendered.name,
        adapter=chat.adapter,
        name=call.name,
        params=call.arguments,
        result=result.value,
        success=result.success,
        error=result.error,
        rendered_output=shorten(result.text, _MAX_RESULT_TEXT),
        call_id=call.id,
        latency_ms=latency_ms,
        session_id=chat.session_id,
        created_at=ended_at,
    )


def _dispatch(chat: Conversation, event: Callable[[], object]) -> None:
    if isinstance(chat.session, Session):  # a view, as evaluators get it, is read-only
        chat.session.dispatch(event())


def specs(tools: Sequence[Tool[Any, Any]]) -> tuple[ToolSpec, ...]:
    """Return the tools as they are sent to a provider."""
    return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)
