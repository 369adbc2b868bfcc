"""Anthropic's models, through their SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .._typevars import OutputT
from ..chat import ChatMessage, TokenUsage, ToolCall
from ..errors import UsageError
from ._adapter import ModelAdapter
from ._model import Model, ModelReply, ModelRequest, ModelSettings
from ._prices import PRICES, Price, price_of
from ._sdk import MalformedError, Service, reading, service_for, timed
from ._wire import schema_in_words, tool_arguments

__all__ = ["AnthropicAdapter"]

MAX_TOKENS = 4096  # Anthropic wants a limit; this is it where the settings have none
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_NO_SAMPLING = "leave `temperature` and `top_p` out of the settings: this API takes them no more"
_HINTS = {"temperature": _NO_SAMPLING, "top_p": _NO_SAMPLING}
_CACHES = ("cache_read_input_tokens", "cache_creation_input_tokens")
_COUNTS = (*_CACHES, "input_tokens", "output_tokens")


class AnthropicAdapter(ModelAdapter[OutputT]):
    """A model behind Anthropic's Messages.

    Without `base_url` it is ANTHROPIC_BASE_URL or Anthropic itself. The key is ANTHROPIC_API_KEY.
    `timeout` is for one whole call, in seconds.

    >>> AnthropicAdapter("claude-opus-5").name
    'anthropic'
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        settings: ModelSettings | None = None,
        max_turns: int = 20,
        timeout: float | None = 600.0,
        stream: bool = False,
        prices: Mapping[str, Price] = PRICES,
    ) -> None:
        settings = settings or ModelSettings()
        if settings.seed is not None:
            raise UsageError("expected no `seed` in the settings, which Anthropic does not have")
        how = {"client": "AsyncAnthropic", "create": "messages.create", "hints": _HINTS}
        super().__init__(
            ask=_messages(service_for("anthropic", model, base_url, timeout, **how), stream),
            model=model,
            name="anthropic",
            settings=settings,
            max_turns=max_turns,
            price=partial(price_of, prices=prices),
        )


def _messages(service: Service, stream: bool) -> Model:
    async def ask(request: ModelRequest) -> ModelReply:
        body = _body(request, stream)

        async def call(create: Callable[..., Any]) -> ModelReply:
            got = await create(**body)
            with reading():
                return _reply(await _gathered(got) if stream else got)

        return await timed(service, request.model, call)

    return ask


def _reply(message: Any) -> ModelReply:
    texts = [block.text for block in message.content if block.type == "text"]
    uses = [block for block in message.content if block.type == "tool_use"]
    given = [getattr(message.usage, name, None) for name in _COUNTS]
    usage = TokenUsage(sum(number or 0 for number in given[:3]), given[3], given[0])
    calls = [ToolCall(use.id, use.name, tool_arguments(use.input)) for use in uses]
    return ModelReply(
        message=ChatMessage("assistant", "".join(texts), tool_calls=tuple(calls)),
        usage=usage if message.usage is not None else None,
        finish_reason=_FINISH.get(message.stop_reason, message.stop_reason),
        model=message.model,
    )


async def _gathered(stream: Any) -> Any:
    """The message that the events of a stream add up to; a tool's input stays text."""
    message: Any = None
    async with stream:
        async for event in stream:
            if event.type == "message_start":
                message = event.message
            elif event.type == "content_block_start":
                message.content.append(event.content_block)
            elif event.type == "content_block_delta":
                block = message.content[event.index]
                if event.delta.type == "text_delta":
                    block.text += event.delta.text
                elif event.delta.type == "input_json_delta":
                    block.input = (block.input or "") + event.delta.partial_json
            elif event.type == "message_delta":
                message.stop_reason = event.delta.stop_reason
                for name in _COUNTS:  # it counts at its start and its end: the last word holds
                    if (number := getattr(event.usage, name, None)) is not None:
                        setattr(message.usage, name, number)
    if message is None or message.stop_reason is None:
        raise MalformedError("a stream that broke off")
    return message


def _body(request: ModelRequest, stream: bool) -> dict[str, Any]:
    """The arguments of `messages.create`."""
    settings = request.settings
    said = [each.content for each in request.messages if each.role in ("system", "developer")]
    if request.output_schema is not None:
        said.append(schema_in_words(request.output_schema))
    # Newer SDKs have no parameters for these two, and their API refuses them; older ones take them.
    extra = {name: v for name in _HINTS if (v := getattr(settings, name)) is not None}
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
        for tool in request.tools
    ]
    body = {
        "model": request.model,
        "stream": stream,
        "max_tokens": MAX_TOKENS if settings.max_tokens is None else settings.max_tokens,
        "messages": _turns(request.messages),
        "system": "\n\n".join(said),
        "tools": tools,
        "stop_sequences": list(settings.stop),
        "extra_body": extra | dict(settings.extra),
    }
    return {name: value for name, value in body.items() if value or name == "messages"}


def _turns(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The user and the assistant in turn; it is the user who says what tools answered."""
    turns: list[tuple[str, list[Any]]] = []
    for message in messages:
        blocks: list[Any] = [{"type": "text", "text": message.content}] if message.content else []
        if message.role == "tool":
            about = {"type": "tool_result", "tool_use_id": message.tool_call_id}
            blocks = [{**about, "content": message.content}]
        for use in message.tool_calls:
            about = {"type": "tool_use", "id": use.id, "name": use.name}
            blocks.append({**about, "input": use.arguments})
        role = "assistant" if message.role == "assistant" else "user"
        if message.role in ("system", "developer") or not blocks:
            continue  # they are said apart, and empty ones are refused
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    return [{"role": role, "content": blocks} for role, blocks in turns]
