"""The demo model behind OpenAI's API on loopback, for agents that have their own client."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

from ...adapters.demo import demo_reply
from ...adapters.model import ModelRequest, ToolSpec
from ...adapters.wire import tool_arguments, wire_calls
from ...chat import ChatMessage, Role, ToolCall
from .model_server import ModelServer
from .script import Reply, ServedRequest

_KEY = "simulated-model-needs-no-key"
_ROLES = get_args(Role)


def use_demo_model() -> None:
    """Let clients of OpenAI call `demo/large`, unless `OPENAI_API_KEY` is set.

    It serves the model on loopback until the process ends, and sets `OPENAI_BASE_URL` and
    `OPENAI_API_KEY`. Call it before a client is made. With your own key it does nothing, so
    the same code asks the real model. Here the demo model makes no random mistakes: which samples
    get one would depend on how a version of a framework words its requests.
    """
    if os.environ.get("OPENAI_API_KEY", _KEY) == _KEY:
        os.environ.update(OPENAI_API_KEY=_KEY, OPENAI_BASE_URL=_server().openai_base_url)


@cache
def _server() -> ModelServer:
    def answer(request: ServedRequest) -> Reply:
        reply = demo_reply("large", request_of(request.body), mistakes=False)
        return Reply(
            reply.message.content, reply.message.tool_calls, reply.usage, model=reply.model
        )

    return ModelServer(answer).__enter__()


def request_of(body: Mapping[str, Any]) -> ModelRequest:
    """Return the body of a Chat Completion or a Response as a request."""
    return ModelRequest(
        model=body["model"],
        messages=tuple(_chat(body) if "messages" in body else _items(body)),
        tools=tuple(map(_tool, body.get("tools") or ())),
        output_schema=_schema(body),
    )


def _tool(tool: Mapping[str, Any]) -> ToolSpec:
    function = tool.get("function") or tool
    return ToolSpec(
        function.get("name") or "",
        function.get("description") or "",
        function.get("parameters") or {},
    )


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    format = body.get("response_format") or (body.get("text") or {}).get("format") or {}
    return (format.get("json_schema") or format).get("schema")


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content)
    return content or ""


def _chat(body: Mapping[str, Any]) -> Iterator[ChatMessage]:
    for turn in body["messages"]:
        yield _message(
            turn["role"], turn.get("content"), wire_calls(turn), turn.get("tool_call_id")
        )


def _items(body: Mapping[str, Any]) -> Iterator[ChatMessage]:
    """Yield the messages of a Response, whose calls and results are separate items."""
    if body.get("instructions"):
        yield ChatMessage("system", body["instructions"])
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        if item.get("type") == "function_call":
            arguments = tool_arguments(item["arguments"])
            yield _message("assistant", "", (ToolCall(item["call_id"], item["name"], arguments),))
        elif item.get("type") == "function_call_output":
            yield _message("tool", item["output"], call_id=item["call_id"])
        elif "role" in item:
            yield _message(item["role"], item.get("content"))


def _message(
    role: Any, content: Any, calls: tuple[ToolCall, ...] = (), call_id: str | None = None
) -> ChatMessage:
    return ChatMessage(role if role in _ROLES else "user", _text(content), calls, call_id)
