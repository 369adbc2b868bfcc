"""A model that says what it was told to say: for tests, demos and teaching."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import anyio

from .. import serde
from .._typevars import OutputT
from ..chat import ChatMessage, TokenUsage, ToolCall
from ..clock import SYSTEM_CLOCK
from ..errors import ProviderError, UsageError, shown
from ._adapter import ModelAdapter
from ._model import Model, ModelReply, ModelRequest

__all__ = ["ScriptedAdapter", "scripted_model"]

Script = Iterable[Any] | Callable[[ModelRequest], Any]


class ScriptedAdapter(ModelAdapter[OutputT]):
    """An adapter whose model gives these replies, in order, or those that a function gives.

    A reply is a text; a `ToolCall` or several; an exception, which is raised; a `ChatMessage` or
    `ModelReply`; anything else is sent as JSON, as a structured answer would be. `latency` is in
    seconds.

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
    """The model behind `ScriptedAdapter`, for code that talks to models directly."""
    if isinstance(replies, (str, bytes)) or not (callable(replies) or _is_many(replies)):
        raise UsageError(f"expected several replies or a function, got {shown(replies)}")
    next_reply = replies if callable(replies) else _in_order(replies)

    async def ask(request: ModelRequest) -> ModelReply:
        start = SYSTEM_CLOCK.monotonic()
        if latency:
            await anyio.sleep(latency)
        said = next_reply(request)
        said = await said if inspect.isawaitable(said) else said
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, ModelReply):
            return said
        message = _message(said)
        return ModelReply(
            message=message,
            usage=TokenUsage(
                sum(_words(each) for each in request.messages), max(1, _words(message))
            ),
            finish_reason="tool_calls" if message.tool_calls else "stop",
            model=request.model,
            latency_ms=(SYSTEM_CLOCK.monotonic() - start) * 1000,
        )

    return ask


def _is_many(replies: Any) -> bool:
    return isinstance(replies, Iterable) and not isinstance(replies, Mapping)


def _in_order(replies: Iterable[Any]) -> Callable[[ModelRequest], Any]:
    rest, lock, given = iter(replies), threading.Lock(), 0

    def next_reply(request: ModelRequest) -> Any:
        nonlocal given
        with lock:
            for reply in rest:
                given += 1
                return reply
        raise ProviderError(f"the script has {given} replies, and one more was asked for")

    return next_reply


def _message(said: Any) -> ChatMessage:
    if isinstance(said, ChatMessage):
        return said
    if isinstance(said, str):
        return ChatMessage("assistant", said)
    if isinstance(said, ToolCall):
        said = [said]
    if isinstance(said, Sequence) and said and all(isinstance(each, ToolCall) for each in said):
        return ChatMessage("assistant", tool_calls=tuple(said))
    return ChatMessage("assistant", serde.encode(said).decode())


def _words(message: ChatMessage) -> int:
    """Tokens, near enough for something that is only a script."""
    return len(message.content.split()) + len(message.tool_calls)
