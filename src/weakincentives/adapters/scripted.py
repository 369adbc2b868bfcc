"""A model that gives scripted replies: for tests, demos and teaching."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import anyio

from .. import serde
from ..chat import ChatMessage, TokenUsage, ToolCall
from ..clock import SYSTEM_CLOCK
from ..errors import ProviderError, UsageError, short_repr
from ..internal.threads import in_thread
from ..internal.typevars import OutputT
from .adapter import ModelAdapter
from .model import Model, ModelReply, ModelRequest

Script = Iterable[Any] | Callable[[ModelRequest], Any]


class ScriptedAdapter(ModelAdapter[OutputT]):
    """An adapter whose model returns these replies in order, or those that a function returns.

    A reply is a text; a `ToolCall` or several; an exception, which is raised; a `ChatMessage` or
    `ModelReply`; anything else is sent as JSON, like structured output. `latency` is in seconds.

    >>> from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
    >>> section = MarkdownSection(title="Q", template="Capital of France?", key="q")
    >>> prompt = Prompt(PromptTemplate[str](ns="demo", key="qa", sections=[section]))
    >>> ScriptedAdapter(["Paris"]).evaluate(prompt).output
    'Paris'
    """

    def __init__(
        self,
        replies: Script,
        *,
        model: str = "scripted",
        latency: float = 0.0,
        max_turns: int = 20,
    ) -> None:
        super().__init__(
            ask=scripted_model(replies, latency=latency),
            model=model,
            name="scripted",
            max_turns=max_turns,
        )


def scripted_model(replies: Script, *, latency: float = 0.0) -> Model:
    """Return the model of `ScriptedAdapter`, for code that calls models directly."""
    if callable(replies):
        next_reply = replies
        blocks = not inspect.iscoroutinefunction(replies)
    elif isinstance(replies, Iterable) and not isinstance(replies, str | bytes | Mapping):
        next_reply, blocks = _in_order(replies), False
    else:
        raise UsageError(f"expected several replies or a function, got {short_repr(replies)}")

    async def ask(request: ModelRequest) -> ModelReply:
        start = SYSTEM_CLOCK.monotonic()
        if latency:
            await anyio.sleep(latency)
        reply = await in_thread(next_reply, request) if blocks else next_reply(request)
        reply = await reply if inspect.isawaitable(reply) else reply
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, ModelReply):
            return reply
        message = _message(reply)
        return ModelReply(
            message=message,
            usage=approximate_usage(request, message),
            finish_reason="tool_calls" if message.tool_calls else "stop",
            model=request.model,
            latency_ms=(SYSTEM_CLOCK.monotonic() - start) * 1000,
        )

    return ask


def _in_order(replies: Iterable[Any]) -> Callable[[ModelRequest], Any]:
    rest, lock, used = iter(replies), threading.Lock(), 0

    def next_reply(request: ModelRequest) -> Any:
        nonlocal used
        with lock:
            for reply in rest:
                used += 1
                return reply
        raise ProviderError(f"the script has {used} replies, and one more was requested")

    return next_reply


def _message(reply: Any) -> ChatMessage:
    if isinstance(reply, ChatMessage):
        return reply
    if isinstance(reply, str):
        return ChatMessage("assistant", reply)
    if isinstance(reply, ToolCall):
        reply = [reply]
    if isinstance(reply, Sequence) and reply and all(isinstance(each, ToolCall) for each in reply):
        return ChatMessage("assistant", tool_calls=tuple(reply))
    return ChatMessage("assistant", serde.encode(reply).decode())


def approximate_usage(request: ModelRequest, reply: ChatMessage) -> TokenUsage:
    """Estimate the tokens of a call: one for each word and each tool call."""
    sent, received = (
        sum(len(each.content.split()) + len(each.tool_calls) for each in messages)
        for messages in (request.messages, [reply])
    )
    return TokenUsage(sent, max(1, received))
