"""Anthropic's Messages on the wire: requests, responses, streams and errors.

The constants and functions are what `ModelServer` needs of a wire format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .script import Reply, ServedRequest, arguments, pieces, reply_usage

PATH = "/v1/messages"
REQUEST_ID = "request-id"

# From this version on (the SDK's since 2.0), sampling parameters are refused, even defaults.
_WITHOUT_SAMPLING = "2026-10-21"
_FINISH = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def key(headers: Mapping[str, str]) -> str:
    """Return the key in the request, or an empty string."""
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    return headers.get("x-api-key", bearer)


def problem(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return why the service would refuse the request, or None."""
    if "anthropic-version" not in headers:
        return "anthropic-version: header is required"
    for name in ("model", "messages", "max_tokens"):
        if name not in body:
            return f"{name}: Field required"
    if not isinstance(body["model"], str) or not body["model"]:
        return "model: Input should be a valid string"
    if not isinstance(body["messages"], list) or not body["messages"]:
        return "messages: at least one message is required"
    if headers["anthropic-version"] >= _WITHOUT_SAMPLING:
        for name in ("temperature", "top_p", "top_k"):
            if name in body:
                return f"{name}: Extra inputs are not permitted"
    return None


def error(status: int, message: str) -> dict[str, Any]:
    """Return the body of an error."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def response_body(request: ServedRequest, reply: Reply) -> dict[str, Any]:
    """Return the body of a response that is not streamed."""
    texts = [{"type": "text", "text": reply.text}] if reply.text else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in reply.tool_calls
    ]
    return {
        **_envelope(request, reply),
        "content": [*texts, *calls],
        "stop_reason": _stop_reason(reply),
        "usage": _usage(request, reply),
    }


def events(request: ServedRequest, reply: Reply) -> Iterator[bytes]:
    """Yield the server-sent events of a streamed response."""
    usage = _usage(request, reply)
    start = {**_envelope(request, reply), "content": [], "usage": {**usage, "output_tokens": 1}}
    yield _event("message_start", message=start)
    blocks: list[tuple[dict[str, Any], list[dict[str, str]]]] = []
    if reply.text:
        texts = [{"type": "text_delta", "text": piece} for piece in pieces(reply.text)]
        blocks.append(({"type": "text", "text": ""}, texts))
    for call in reply.tool_calls:
        jsons = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in ("", *pieces(arguments(call)))
        ]
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, jsons))
    for index, (block, deltas) in enumerate(blocks):
        yield _event("content_block_start", index=index, content_block=block)
        if index == 0:
            yield _event("ping")
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    end = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": usage["output_tokens"]})
    yield _event("message_stop")


def _event(kind: str, **data: object) -> bytes:
    body = msgspec.json.encode({"type": kind, **data})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)


def _envelope(request: ServedRequest, reply: Reply) -> dict[str, Any]:
    return {
        "id": f"msg_{request.number}",
        "type": "message",
        "role": "assistant",
        "model": reply.model or request.body["model"],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop_reason(reply: Reply) -> str:
    reason = reply.finish_reason or ("tool_use" if reply.tool_calls else "end_turn")
    return _FINISH.get(reason, reason)


def _usage(request: ServedRequest, reply: Reply) -> dict[str, int]:
    input, output, cached = reply_usage(request, reply)
    return {
        "input_tokens": max(0, input - cached),  # cached tokens are counted separately
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    }
