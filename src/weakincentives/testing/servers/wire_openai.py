"""OpenAI's Chat Completions on the wire: requests, responses, streams and errors.

The constants and functions are what `ModelServer` needs of a wire format.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ...chat import ToolCall
from .script import Reply, ServedRequest, arguments, pieces, reply_usage, tokens_of

PATH = "/v1/chat/completions"
REQUEST_ID = "x-request-id"

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_CODES = {401: "invalid_api_key", 404: "unknown_url", 429: "rate_limit_exceeded"}


def key(headers: Mapping[str, str]) -> str:
    """Return the key in the request, or an empty string."""
    return headers.get("authorization", "").removeprefix("Bearer ")


def problem(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return why the service would refuse the request, or None."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        return "you must provide a model parameter"
    if "messages" not in body:
        return "Missing required parameter: 'messages'."
    if not isinstance(body["messages"], list) or not body["messages"]:
        return "Invalid 'messages': expected a non-empty array of messages."
    return None


def error(status: int, message: str) -> dict[str, Any]:
    """Return the body of an error."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    if status == 429:
        kind = "requests"
    details = {"message": message, "type": kind, "param": None, "code": _CODES.get(status)}
    return {"error": details}


def response_body(request: ServedRequest, reply: Reply) -> dict[str, Any]:
    """Return the body of a response that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.tool_calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [_tool_call(call, arguments(call)) for call in reply.tool_calls]
    with_tokens = request.body.get("logprobs") or request.body.get("return_token_ids")
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": _finish_reason(reply),
        **_tokens(request, tokens_of(reply) if with_tokens else ()),
    }
    return {
        **_envelope(request, reply, "chat.completion"),
        **_prompt_tokens(request),
        "choices": [choice],
        "usage": _usage(request, reply),
    }


def events(request: ServedRequest, reply: Reply) -> Iterator[bytes]:
    """Yield the server-sent events of a streamed response."""
    base = _envelope(request, reply, "chat.completion.chunk") | _prompt_tokens(request)
    with_usage = (request.body.get("stream_options") or {}).get("include_usage") is True
    if with_usage:  # the real service then sends null on every chunk but the last
        base["usage"] = None

    def chunk(delta: Mapping[str, Any], *tokens: str, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return _event({**base, "choices": [{**choice, **_tokens(request, tokens)}]})

    content = None if reply.tool_calls and not reply.text else ""
    yield chunk({"role": "assistant", "content": content, "refusal": None})
    base.pop("prompt_token_ids", None)  # only the first chunk has them
    for piece in pieces(reply.text):
        yield chunk({"content": piece}, piece)
    for index, call in enumerate(reply.tool_calls):
        yield chunk({"tool_calls": [{"index": index, **_tool_call(call, "")}]}, call.name)
        for piece in pieces(arguments(call)):
            part = {"index": index, "function": {"arguments": piece}}
            yield chunk({"tool_calls": [part]}, piece)
    yield chunk({}, finish_reason=_finish_reason(reply))
    if with_usage:
        yield _event({**base, "choices": [], "usage": _usage(request, reply)})
    yield b"data: [DONE]\n\n"


def _event(data: object) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _envelope(request: ServedRequest, reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{request.number}",
        "object": kind,
        "created": int(time.time()),
        "model": reply.model or request.body["model"],
        "system_fingerprint": None,
    }


def _tool_call(call: ToolCall, text: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _tokens(request: ServedRequest, tokens: Sequence[str]) -> dict[str, Any]:
    """Return the requested fields about tokens, the same for the same text."""
    fields: dict[str, Any] = {"logprobs": None}
    if request.body.get("logprobs") is True and tokens:
        content: list[dict[str, Any]] = [
            {
                "token": each,
                "logprob": -(_id(each) % 1000) / 1000,
                "bytes": None,
                "top_logprobs": [],
            }
            for each in tokens
        ]
        fields["logprobs"] = {"content": content, "refusal": None}
    if request.body.get("return_token_ids") is True:
        fields["token_ids"] = [_id(each) for each in tokens]
    return fields


def _prompt_tokens(request: ServedRequest) -> dict[str, Any]:
    if request.body.get("return_token_ids") is not True:
        return {}
    texts = (message.get("content") for message in request.body["messages"])
    return {"prompt_token_ids": [_id(each) for text in texts for each in pieces(str(text or ""))]}


def _id(piece: str) -> int:
    return zlib.crc32(piece.encode("utf-8", "surrogatepass")) % 50_000


def _finish_reason(reply: Reply) -> str:
    reason = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
    return _FINISH.get(reason, reason)


def _usage(request: ServedRequest, reply: Reply) -> dict[str, Any]:
    input, output, cached = reply_usage(request, reply)
    return {
        "prompt_tokens": input,
        "completion_tokens": output,
        "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
