"""OpenAI's Responses on the wire: requests, responses and streams.

The constants and functions are what `ModelServer` needs of a wire format.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .script import Reply, ServedRequest, arguments, pieces, reply_usage
from .wire_openai import REQUEST_ID, error, key

__all__ = ["PATH", "REQUEST_ID", "error", "events", "key", "problem", "response_body"]

PATH = "/v1/responses"

_INCOMPLETE = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}
_IN_PROGRESS = {"status": "in_progress"}


def problem(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return why the service would refuse the request, or None."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        return "Missing required parameter: 'model'."
    if not body.get("input"):
        return "Missing required parameter: 'input'."
    if not isinstance(body["input"], str | list):
        return "Invalid 'input': expected a string or an array of items."
    return None


def response_body(request: ServedRequest, reply: Reply) -> dict[str, Any]:
    """Return the body of a response that is not streamed."""
    reason = _INCOMPLETE.get(reply.finish_reason or "")
    input, output, cached = reply_usage(request, reply)
    return {
        **_envelope(request, reply),
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": _items(request, reply),
        "usage": {
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        },
    }


def events(request: ServedRequest, reply: Reply) -> Iterator[bytes]:
    """Yield the server-sent events of a streamed response."""
    done = response_body(request, reply)
    begun = {**done, **_IN_PROGRESS, "output": [], "usage": None, "incomplete_details": None}
    for number, (kind, data) in enumerate(_stream(begun, done)):
        body = msgspec.json.encode({"type": kind, "sequence_number": number, **data})
        yield b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"


def _stream(begun: dict[str, Any], done: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(done["output"]):
        at = {"output_index": index}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield "response.output_item.added", {**at, "item": {**item, **empty, **_IN_PROGRESS}}
        yield from _text(item, at) if item["type"] == "message" else _call(item, at)
        yield "response.output_item.done", {**at, "item": item}
    yield f"response.{done['status']}", {"response": done}


def _text(item: Mapping[str, Any], at: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    (part,) = item["content"]
    here = {**at, "item_id": item["id"], "content_index": 0}
    yield "response.content_part.added", {**here, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "response.output_text.delta", {**here, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**here, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**here, "part": part}


def _call(item: Mapping[str, Any], at: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    here = {**at, "item_id": item["id"]}
    for piece in pieces(item["arguments"]):
        yield "response.function_call_arguments.delta", {**here, "delta": piece}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield "response.function_call_arguments.done", {**here, **done}


def _items(request: ServedRequest, reply: Reply) -> list[dict[str, Any]]:
    part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    message = {
        "type": "message",
        "id": f"msg_{request.number}",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{request.number}_{index}",
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments(call),
            "status": "completed",
        }
        for index, call in enumerate(reply.tool_calls)
    ]
    return [*([message] if reply.text or not calls else []), *calls]


def _envelope(request: ServedRequest, reply: Reply) -> dict[str, Any]:
    body = request.body
    return {
        "id": f"resp_{request.number}",
        "object": "response",
        "created_at": int(time.time()),
        "model": reply.model or body["model"],
        "error": None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": body.get("previous_response_id"),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
    }
