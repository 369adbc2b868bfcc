"""Anthropic's models, through their SDK."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..chat import ChatMessage, TokenUsage, ToolCall
from ..internal.typevars import OutputT
from .answer_limits import ACCEPT_EVENTS
from .model import Model, ModelReply, ModelRequest
from .sdk import MalformedError, Provider, SDKAdapter, Service, reading, timed
from .wire import schema_in_words, tool_arguments

MAX_TOKENS = 4096  # Anthropic requires a limit; this is used if the settings have none
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_NO_SAMPLING = "leave `temperature` and `top_p` out of the settings: this API rejects them now"
_HINTS = {"temperature": _NO_SAMPLING, "top_p": _NO_SAMPLING}
_CACHES = ("cache_read_input_tokens", "cache_creation_input_tokens")
_COUNTS = (*_CACHES, "input_tokens", "output_tokens")


def _messages(service: Service, stream: bool) -> Model:
    async def ask(request: ModelRequest) -> ModelReply:
        body = _body(request, stream)

        async def call(create: Callable[..., Any]) -> ModelReply:
            response = await create(**body)
            with reading():
                return _reply(await _read_stream(response) if stream else response)

        return await timed(service, request.model, call)

    return ask


def _reply(message: Any) -> ModelReply:
    texts = [block.text for block in message.content if block.type == "text"]
    uses = [block for block in message.content if block.type == "tool_use"]
    counts = [getattr(message.usage, name, None) for name in _COUNTS]
    usage = TokenUsage(sum(number or 0 for number in counts[:3]), counts[3], counts[0])
    calls = [ToolCall(use.id, use.name, tool_arguments(use.input)) for use in uses]
    return ModelReply(
        message=ChatMessage("assistant", "".join(texts), tool_calls=tuple(calls)),
        usage=usage if message.usage is not None else None,
        finish_reason=_FINISH.get(message.stop_reason, message.stop_reason),
        model=message.model,
    )


async def _read_stream(stream: Any) -> Any:
    """Return the message of a stream; the input of a tool stays JSON text."""
    message: Any = None
    pieces: list[list[str]] = []  # per block; joined once, since appending takes quadratic time
    async with stream:
        async for event in stream:
            if event.type == "message_start":
                message = event.message
            elif event.type == "content_block_start":
                message.content.append(event.content_block)
                pieces.append([])
            elif event.type == "content_block_delta":
                if event.delta.type == "text_delta":
                    pieces[event.index].append(event.delta.text)
                elif event.delta.type == "input_json_delta":
                    pieces[event.index].append(event.delta.partial_json)
            elif event.type == "message_delta":
                message.stop_reason = event.delta.stop_reason
                for name in _COUNTS:  # the counts at the end replace those at the start
                    if (number := getattr(event.usage, name, None)) is not None:
                        setattr(message.usage, name, number)
    if message is None or message.stop_reason is None:
        raise MalformedError("a truncated stream")
    for block, texts in zip(message.content, pieces, strict=False):
        if block.type == "text":
            block.text += "".join(texts)
        elif texts:
            block.input = "".join(texts)
    return message


def _body(request: ModelRequest, stream: bool) -> dict[str, Any]:
    """Return the arguments of `messages.create`."""
    settings = request.settings
    system = [each.content for each in request.messages if each.role in ("system", "developer")]
    if request.output_schema is not None:
        system.append(schema_in_words(request.output_schema))
    # Newer SDKs have no parameters for these two, and newer models refuse them; older accept them.
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
        "system": "\n\n".join(system),
        "tools": tools,
        "stop_sequences": list(settings.stop),
        "extra_body": extra | dict(settings.extra),
        "extra_headers": ACCEPT_EVENTS if stream else {},
    }
    return {name: value for name, value in body.items() if value or name == "messages"}


def _turns(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return the messages as alternating turns; tool results belong to the user's."""
    turns: list[tuple[str, list[Any]]] = []
    for message in messages:
        blocks: list[Any] = [{"type": "text", "text": message.content}] if message.content else []
        if message.role == "tool":
            blocks = [
                {
                    "type": "tool_result",
                    "tool_use_id": message.tool_call_id,
                    "content": message.content,
                }
            ]
        blocks += [
            {"type": "tool_use", "id": use.id, "name": use.name, "input": use.arguments}
            for use in message.tool_calls
        ]
        role = "assistant" if message.role == "assistant" else "user"
        if message.role in ("system", "developer") or not blocks:
            continue  # system texts are sent separately, and empty messages are refused
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    return [{"role": role, "content": blocks} for role, blocks in turns]


class AnthropicAdapter(SDKAdapter[OutputT]):
    """A model behind Anthropic's Messages.

    Without `base_url` it is ANTHROPIC_BASE_URL or Anthropic itself. The key is ANTHROPIC_API_KEY.
    `timeout` is in seconds for a whole call: 10 minutes by default, since a reasoning model may be
    silent for that long. After rate limits, overload, timeouts and lost connections a call is
    retried, `retries` times. Responses over 64 MB (256 MB if streamed), compressed responses and
    redirects are refused.

    >>> AnthropicAdapter("claude-opus-5").name
    'anthropic'
    """

    provider: ClassVar = Provider(
        name="anthropic",
        title="Anthropic",
        client="AsyncAnthropic",
        create="messages.create",
        make_model=_messages,
        hints=_HINTS,
        unsupported=("seed",),
    )
