"""OpenAI's models, and every server that speaks Chat Completions: vLLM, Ollama, llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..chat import ChatMessage, TokenUsage, ToolCall
from ..internal.typevars import OutputT
from .answer_limits import ACCEPT_EVENTS
from .model import Model, ModelReply, ModelRequest
from .sdk import MalformedError, Provider, SDKAdapter, Service, reading, timed
from .wire import call_id, completion_body, schema_or_words, token_trace, tool_arguments

MAX_TOOL_CALLS = 128  # in one reply: OpenAI accepts no more tools than that

_HINTS = {
    "max_tokens": "leave `max_tokens` out, or set `extra={'max_completion_tokens': ...}`",
    "temperature": "leave `temperature` out of the settings",
}


@dataclass(slots=True)
class _Completion:
    """A completion, whether it was streamed or not."""

    text: str = ""
    calls: list[list[str]] = field(default_factory=list)  # id, name, arguments
    finish_reason: str | None = None
    model: str | None = None
    usage: Any = None
    prompt_ids: list[Any] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    def add_tokens(self, response: Any, choice: Any) -> None:
        """Add the tokens of a completion or a chunk. vLLM and others send ids, OpenAI does not."""
        for source in (choice, response):
            self.prompt_ids = self.prompt_ids or getattr(source, "prompt_token_ids", None) or []
        self.ids += getattr(choice, "token_ids", None) or ()
        tokens = getattr(choice.logprobs, "content", None) or ()
        self.logprobs += [getattr(token, "logprob", None) for token in tokens]


def _chat(service: Service, stream: bool) -> Model:
    # Reasoning models reject the old name; other servers may not know the new one.
    limit = "max_completion_tokens" if service.base_url is None else "max_tokens"
    streaming: dict[str, Any] = {}
    if stream:
        streaming = {"stream": True, "stream_options": {"include_usage": True}}
        streaming["extra_headers"] = ACCEPT_EVENTS

    async def ask(request: ModelRequest, by_schema: bool) -> ModelReply:
        body = completion_body(request, by_schema=by_schema, limit=limit) | streaming

        async def call(create: Callable[..., Any]) -> ModelReply:
            response = await create(**body, extra_body=dict(request.settings.extra) or None)
            with reading():
                completion = await _read_stream(response) if stream else _read_whole(response)
                return _reply(request, completion)

        return await timed(service, request.model, call)

    return schema_or_words(ask)


def _reply(request: ModelRequest, completion: _Completion) -> ModelReply:
    calls = [
        ToolCall(call_id(given_id, request, index), name, tool_arguments(text))
        for index, (given_id, name, text) in enumerate(completion.calls)
    ]
    return ModelReply(
        message=ChatMessage("assistant", completion.text, tool_calls=tuple(calls)),
        usage=_usage(completion.usage),
        finish_reason=completion.finish_reason,
        model=completion.model,
        tokens=token_trace(completion.prompt_ids, completion.ids, completion.logprobs),
    )


def _read_whole(response: Any) -> _Completion:
    choice = response.choices[0]
    message = choice.message
    completion = _Completion(message.content or getattr(message, "refusal", None) or "")
    for call in message.tool_calls or ():
        completion.calls.append([call.id, call.function.name, call.function.arguments])
    completion.finish_reason, completion.model = choice.finish_reason, response.model
    completion.usage = response.usage
    completion.add_tokens(response, choice)
    return completion


async def _read_stream(stream: Any) -> _Completion:
    completion = _Completion()
    texts: list[str] = []  # joined once: appending to a string takes quadratic time
    arguments: list[list[str]] = []
    async with stream:
        async for chunk in stream:
            completion.usage = chunk.usage or completion.usage
            completion.model = chunk.model or completion.model
            for choice in chunk.choices or ():
                delta = choice.delta
                texts.append(delta.content or getattr(delta, "refusal", None) or "")
                for call in delta.tool_calls or ():
                    if type(call.index) is not int or not 0 <= call.index < MAX_TOOL_CALLS:
                        raise MalformedError(f"a tool call with the index {call.index!r:.80}")
                    while len(completion.calls) <= call.index:
                        completion.calls.append(["", "", ""])
                        arguments.append([])
                    entry = completion.calls[call.index]
                    entry[0] = entry[0] or call.id or ""
                    entry[1] = entry[1] or call.function.name or ""
                    arguments[call.index].append(call.function.arguments or "")
                completion.finish_reason = choice.finish_reason or completion.finish_reason
                completion.add_tokens(chunk, choice)
    if completion.finish_reason is None:
        raise MalformedError("a truncated stream")
    completion.text = "".join(texts)
    for entry, pieces in zip(completion.calls, arguments, strict=True):
        entry[2] = "".join(pieces)
    return completion


def _usage(usage: Any) -> TokenUsage | None:
    if usage is None:
        return None
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None)
    return TokenUsage(usage.prompt_tokens, usage.completion_tokens, cached)


class OpenAIAdapter(SDKAdapter[OutputT]):
    """A model behind OpenAI's Chat Completions; with `base_url`, on any compatible server.

    Without `base_url` it is OPENAI_BASE_URL or OpenAI itself. The key is OPENAI_API_KEY; with a
    `base_url` it is optional. `timeout` is in seconds for a whole call: 10 minutes by default,
    since a reasoning model may be silent for that long. After rate limits, overload, timeouts and
    lost connections a call is retried, `retries` times. Responses over 64 MB (256 MB if streamed),
    compressed responses and redirects are refused.

    >>> OpenAIAdapter("qwen", base_url="http://127.0.0.1:8000/v1").name
    'openai'
    """

    provider: ClassVar = Provider(
        name="openai",
        title="OpenAI",
        client="AsyncOpenAI",
        create="chat.completions.create",
        make_model=_chat,
        hints=_HINTS,
    )
