"""An agent that sends the request of a sample as it is: one call of the model, no tool is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...chat import ChatMessage
from ...errors import UsageError, short_repr
from ...rollouts import Trajectory
from .._types import Sample, endpoint_label
from .agents import Agent, AgentOutput, current, name_agent

_SETTINGS = ("temperature", "max_tokens", "top_p", "seed")
_OURS = {"messages", "model", "stream", "stream_options", "tools", *_SETTINGS}
_ROLES = {"_input": "system"}  # as K2 Vendor Verifier renames it


def request_agent(endpoint: Any) -> Agent:
    """Return an agent that answers requests: inputs with `messages`, `tools` and settings.

    An input is the body of a Chat Completions request. Settings of the endpoint win over those of
    the request; other fields of the request are sent along. The output is the text of the reply,
    and the stop reason is the provider's finish reason.
    """
    from ...adapters import ModelAdapter
    from ...adapters.model import ModelRequest
    from ...rollouts import endpoint_of

    adapter = endpoint_of(endpoint)
    if not isinstance(adapter, ModelAdapter):
        raise UsageError(
            f"expected a model that can be asked directly, got {short_repr(endpoint)} - pass a "
            "name such as `openai/gpt-4o`"
        )
    price = adapter.price

    async def agent(sample: Sample[Any, Any]) -> AgentOutput:
        body = sample.input
        if not isinstance(body, Mapping) or not body.get("messages"):
            raise UsageError(f"expected a request with `messages`, got {short_repr(body)}")
        messages = tuple(map(_message, body["messages"]))
        request = ModelRequest(
            model=adapter.model,
            messages=messages,
            tools=_tools(body.get("tools") or ()),
            settings=_settings(adapter.settings, body),
            epoch=current().epoch,
        )
        reply = await adapter.ask(request)
        priced = price is not None and reply.usage is not None
        return Trajectory(
            messages=(*messages, reply.message),
            output=reply.message.content,
            usage=reply.usage,
            stop_reason=reply.finish_reason,
            latency_ms=None if reply.latency_ms is None else round(reply.latency_ms),
            cost=price(reply.model or adapter.model, reply.usage) if priced else None,  # type: ignore[misc, arg-type]
            tokens=() if reply.tokens is None else (reply.tokens,),
        ), None

    name = endpoint_label(endpoint)
    return name_agent(agent, name, name, code="request_agent", adapter=adapter)


def _settings(own: Any, body: Mapping[str, Any]) -> Any:
    given = {name: body[name] for name in _SETTINGS if body.get(name) is not None}
    missing = {name: value for name, value in given.items() if getattr(own, name) is None}
    others = {name: value for name, value in body.items() if name not in _OURS}
    return replace(own, **missing, extra={**others, **own.extra})


def _message(data: Mapping[str, Any]) -> ChatMessage:
    from ...adapters.wire import wire_calls

    content = data.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
    role: Any = data.get("role", "user")
    return ChatMessage(
        _ROLES.get(role, role),
        content or "",
        wire_calls(data),
        data.get("tool_call_id"),
        data.get("name"),
    )


def _tools(tools: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    from ...adapters.model import ToolSpec

    return tuple(
        ToolSpec(
            function["name"],
            function.get("description") or "",
            function.get("parameters") or {"type": "object", "properties": {}},
        )
        for tool in tools
        for function in [tool.get("function", tool)]
    )
