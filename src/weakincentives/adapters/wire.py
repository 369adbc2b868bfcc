"""Request and reply formats that more than one adapter uses.

OpenAI and most inference servers speak Chat Completions: `openai.py` sends them through the SDK,
`http.py` without one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from .. import serde
from ..chat import ChatMessage, TokenTrace, ToolCall
from ..clock import SYSTEM_CLOCK
from ..errors import ProviderError, UsageError
from ..secrets import logger_for
from .model import Model, ModelReply, ModelRequest, ToolSpec

logger = logger_for(__name__)

INVALID_JSON = "__invalid_json__"  # the key of arguments that are not JSON; no tool has it

_object = serde.decoder(dict[str, Any])


def tool_arguments(arguments: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the JSON object; for invalid JSON, one that every tool refuses with an error."""
    if isinstance(arguments, Mapping):
        return arguments
    try:
        return _object((arguments or "{}").encode("utf-8", "surrogatepass"))  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {INVALID_JSON: arguments}


def call_id(given_id: str | None, request: ModelRequest, index: int) -> str:
    """Return the id of a tool call; if the server sent none, a unique one."""
    return given_id or f"call_{len(request.messages)}_{index}"


def token_trace(prompt_ids: Any, ids: Any, logprobs: Sequence[Any]) -> TokenTrace | None:
    """Return the tokens of the reply as the server sent them; None without ids.

    Inconsistent tokens are dropped with a warning, since the reply is usable without them.
    """
    if not ids:
        return None
    try:
        return TokenTrace(prompt_ids or (), ids, tuple(logprobs))
    except UsageError as error:
        logger.warning("dropped the tokens of a reply: %s", error)
        return None


def is_transient(status: int) -> bool:
    """Return whether a request with this HTTP status may succeed if it is retried."""
    return status in (408, 409, 429) or status >= 500


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, which holds a number or a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) * unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    with suppress(KeyError, ValueError, TypeError):
        until = parsedate_to_datetime(headers["retry-after"])
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, until.timestamp() - SYSTEM_CLOCK.now().timestamp())
    return None


def schema_in_words(schema: Mapping[str, Any]) -> str:
    """Return the schema as an instruction, for models and servers that accept no schema."""
    text = serde.encode(schema).decode()
    return f"Answer with one JSON value that fits this JSON schema, and with nothing else:\n{text}"


# --- Chat Completions ----------------------------------------------------------------------------


def schema_or_words(ask: Callable[[ModelRequest, bool], Awaitable[ModelReply]]) -> Model:
    """Return a model that sends the output schema, or words once the server has refused it.

    `ask` gets the request and whether to send the schema as a schema.
    """
    takes_schemas = True  # until the server refuses one, and answers without it

    async def ask_either_way(request: ModelRequest) -> ModelReply:
        nonlocal takes_schemas
        if not takes_schemas or request.output_schema is None:
            return await ask(request, False)
        try:
            return await ask(request, True)
        except ProviderError as error:
            refused = re.search("response_format|schema|guided", str(error))
            if error.status not in (400, 422) or refused is None:
                raise
        reply = await ask(request, False)
        takes_schemas = False
        return reply

    return ask_either_way


def completion_body(request: ModelRequest, *, by_schema: bool, limit: str) -> dict[str, Any]:
    """Return the body without `settings.extra`; `limit` is the server's name for `max_tokens`."""
    settings, messages = request.settings, [_message(message) for message in request.messages]
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        limit: settings.max_tokens,
        "stop": list(settings.stop) or None,
        "tools": [_tool(tool) for tool in request.tools] or None,
    }
    schema = request.output_schema
    if schema is not None and by_schema and schema.get("type") == "object":
        body["response_format"] = {"type": "json_schema", "json_schema": _format(request, schema)}
    elif schema is not None:
        messages.insert(0, {"role": "system", "content": schema_in_words(schema)})
    return {name: value for name, value in body.items() if value is not None}


def _message(message: ChatMessage) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        return {**wire, "tool_call_id": message.tool_call_id}
    if message.name is not None:
        wire["name"] = message.name
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            wire_call(call, serde.encode(call.arguments).decode()) for call in message.tool_calls
        ]
    return wire


def wire_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the tool calls of a message: in the form of Chat Completions, or a similar one."""
    return tuple(map(_wire_call, message.get("tool_calls") or ()))


def _wire_call(call: Any) -> ToolCall:
    if isinstance(call, str):  # some systems write them as texts
        call = json.loads(call)
    function = call.get("function") or call
    if isinstance(function, str):  # Inspect: the name itself
        function = {"name": function, "arguments": call.get("arguments")}
    arguments = tool_arguments(function.get("arguments"))
    return ToolCall(str(call.get("id") or ""), function["name"], arguments)


def wire_call(call: ToolCall, arguments: str) -> dict[str, Any]:
    """Return a tool call in the form of Chat Completions, with its arguments as JSON."""
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    parts = {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)}
    return {"type": "function", "function": parts}


def _format(request: ModelRequest, schema: Mapping[str, Any]) -> dict[str, Any]:
    name = re.sub(r"[^a-zA-Z0-9_-]+", "_", request.output_name)[:64] or "output"
    try:
        return {"name": name, "schema": _strict(schema), "strict": True}
    except _NotStrictError:
        return {"name": name, "schema": dict(schema), "strict": False}


class _NotStrictError(Exception):
    """A schema that strict mode does not support."""


_NOT_STRICT = {"allOf", "oneOf", "patternProperties", "prefixItems", "uniqueItems"}


def _strict(schema: Any) -> Any:
    """Return the schema for strict mode: closed objects, all properties required, no defaults."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not schema or not isinstance(schema, Mapping) or schema.keys() & _NOT_STRICT:
        raise _NotStrictError
    done: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            done[key] = {name: _strict(each) for name, each in value.items()}
        elif key in ("items", "anyOf"):
            done[key] = _strict(value)
        elif key != "default":
            done[key] = value
    if done.get("type") == "object":
        if done.get("additionalProperties") is not False:
            raise _NotStrictError
        done["required"] = list(done["properties"])
    return done
