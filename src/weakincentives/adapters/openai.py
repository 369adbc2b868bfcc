"""OpenAI's models, and every server that speaks Chat Completions: vLLM, Ollama, llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .._typevars import OutputT
from ..chat import ChatMessage, TokenUsage, ToolCall
from ._adapter import ModelAdapter
from ._model import Model, ModelReply, ModelRequest, ModelSettings
from ._prices import PRICES, Price, price_of
from ._sdk import MalformedError, Service, reading, service_for, timed
from ._wire import call_id, completion_body, schema_or_words, token_trace, tool_arguments

__all__ = ["OpenAIAdapter"]


class OpenAIAdapter(ModelAdapter[OutputT]):
    """A model behind OpenAI's Chat Completions; with `base_url`, on any server that speaks them.

    Without `base_url` it is OPENAI_BASE_URL or OpenAI itself. The key is OPENAI_API_KEY, and a
    server of one's own may do without. `timeout` is for one whole call, in seconds.

    >>> OpenAIAdapter("qwen", base_url="http://127.0.0.1:8000/v1").name
    'openai'
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
        how = {"client": "AsyncOpenAI", "create": "chat.completions.create", "hints": _HINTS}
        super().__init__(
            ask=_chat(service_for("openai", model, base_url, timeout, **how), stream),
            model=model,
            name="openai",
            settings=settings or ModelSettings(),
            max_turns=max_turns,
            price=partial(price_of, prices=prices),
        )


_HINTS = {
    "max_tokens": "leave `max_tokens` out, or set `extra={'max_completion_tokens': ...}`",
    "temperature": "leave `temperature` out of the settings",
}


@dataclass(slots=True)
class _Said:
    """A completion, whether it came whole or in pieces."""

    text: str = ""
    calls: list[list[str]] = field(default_factory=list)  # id, name, arguments
    finish_reason: str | None = None
    model: str | None = None
    usage: Any = None
    prompt_ids: list[Any] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    def add_tokens(self, got: Any, choice: Any) -> None:
        """Of a completion or a piece of it; ids are from vLLM and others, not from OpenAI."""
        for each in (choice, got):
            self.prompt_ids = self.prompt_ids or getattr(each, "prompt_token_ids", None) or []
        self.ids += getattr(choice, "token_ids", None) or ()
        said = getattr(choice.logprobs, "content", None) or ()
        self.logprobs += [getattr(each, "logprob", None) for each in said]


def _chat(service: Service, stream: bool) -> Model:
    # Reasoning models refuse the old name; servers that are not OpenAI's may not know the new one.
    limit = "max_completion_tokens" if service.base_url is None else "max_tokens"
    streaming = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}

    async def ask(request: ModelRequest, by_schema: bool) -> ModelReply:
        body = completion_body(request, by_schema=by_schema, limit=limit) | streaming

        async def call(create: Callable[..., Any]) -> ModelReply:
            got = await create(**body, extra_body=dict(request.settings.extra) or None)
            with reading():
                return _reply(request, await _streamed(got) if stream else _whole(got))

        return await timed(service, request.model, call)

    return schema_or_words(ask)


def _reply(request: ModelRequest, said: _Said) -> ModelReply:
    calls = [
        ToolCall(call_id(given, request, index), name, tool_arguments(text))
        for index, (given, name, text) in enumerate(said.calls)
    ]
    return ModelReply(
        message=ChatMessage("assistant", said.text, tool_calls=tuple(calls)),
        usage=_usage(said.usage),
        finish_reason=said.finish_reason,
        model=said.model,
        tokens=token_trace(said.prompt_ids, said.ids, said.logprobs),
    )


def _whole(completion: Any) -> _Said:
    choice = completion.choices[0]
    said = _Said(choice.message.content or getattr(choice.message, "refusal", None) or "")
    for call in choice.message.tool_calls or ():
        said.calls.append([call.id, call.function.name, call.function.arguments])
    said.finish_reason, said.model = choice.finish_reason, completion.model
    said.usage = completion.usage
    said.add_tokens(completion, choice)
    return said


async def _streamed(stream: Any) -> _Said:
    said = _Said()
    async with stream:
        async for chunk in stream:
            said.usage, said.model = chunk.usage or said.usage, chunk.model or said.model
            for choice in chunk.choices or ():
                delta = choice.delta
                said.text += delta.content or getattr(delta, "refusal", None) or ""
                for call in delta.tool_calls or ():
                    while len(said.calls) <= call.index:
                        said.calls.append(["", "", ""])
                    parts = call.id, call.function.name, call.function.arguments
                    mine = said.calls[call.index]
                    mine[:] = [mine[0] or parts[0] or "", mine[1] or parts[1] or "", mine[2]]
                    mine[2] += parts[2] or ""
                said.finish_reason = choice.finish_reason or said.finish_reason
                said.add_tokens(chunk, choice)
    if said.finish_reason is None:
        raise MalformedError("a stream that broke off")
    return said


def _usage(given: Any) -> TokenUsage | None:
    if given is None:
        return None
    details = getattr(given, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None)
    return TokenUsage(given.prompt_tokens, given.completion_tokens, cached)
