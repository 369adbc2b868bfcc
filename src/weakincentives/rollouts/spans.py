"""Read model calls and tool runs from spans, by the conventions that frameworks follow.

Rules of this file:
1. Two conventions are read: OpenTelemetry's for generative AI (`gen_ai.*`), in its current form
   (messages as JSON attributes) and its earlier ones (an event or numbered attributes for each
   message), and OpenInference (`openinference.span.kind`, `llm.*`, `tool.*`).
2. A model call inside another one is the same call, seen by two instrumentations: the outer counts.
3. The usage of an agent's span is the sum of its model calls. It counts only if there are none.
4. A span is data from elsewhere: one that cannot be read is logged and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from ..adapters.prices import price_of
from ..chat import ChatMessage, TokenUsage, ToolCall
from ..secrets import logger_for, shorten
from .recording import ModelCall, SpanRecord, ToolRun

logger = logger_for(__name__)

Kind = Literal["model", "tool", "agent", ""]
Attributes = Mapping[str, Any]

MAX_ERROR_CHARACTERS = 1000
_PREFIXES = ("gen_ai.", "llm.", "openinference.", "tool.")
_OPERATIONS: dict[str, Kind] = {
    "chat": "model",
    "completion": "model",
    "text_completion": "model",
    "generate_content": "model",
    "execute_tool": "tool",
    "invoke_agent": "agent",
}
_OPENINFERENCE: dict[str, Kind] = {"LLM": "model", "TOOL": "tool", "AGENT": "agent"}
_ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool")},
    "ai": "assistant",
    "model": "assistant",
    "function": "tool",
}
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
_USAGE = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
)
_AGGREGATED_USAGE = (
    ("gen_ai.aggregated_usage.input_tokens", *_USAGE[0]),
    ("gen_ai.aggregated_usage.output_tokens", *_USAGE[1]),
    ("gen_ai.aggregated_usage.cache_read.input_tokens", *_USAGE[2]),
)


def is_relevant(attributes: Attributes) -> bool:
    """Return whether a span follows one of the conventions."""
    return any(name.startswith(_PREFIXES) for name in attributes)


def items_of_spans(
    spans: Iterable[SpanRecord], parents: Mapping[int, int]
) -> list[ModelCall | ToolRun]:
    """Return the model calls and tool runs; `parents` has the parent of every span, by id."""
    by_kind: dict[Kind, dict[int, SpanRecord]] = {"model": {}, "tool": {}, "agent": {}}
    for span in spans:
        if kind := _kind(span.attributes):
            by_kind[kind][span.id] = span
    calls, tools = by_kind["model"] or by_kind["agent"], by_kind["tool"]
    usage_names = _USAGE if by_kind["model"] else _AGGREGATED_USAGE
    found: list[ModelCall | ToolRun | None] = [
        _read(partial(_model_call, usage_names=usage_names), span)
        for span in calls.values()
        if not _above(span, calls, parents)
    ]
    found += [
        _read(_tool_run, span)
        for span in tools.values()
        if all(_tool_name(outer) != _tool_name(span) for outer in _above(span, tools, parents))
    ]
    return [item for item in found if item is not None]


def _read(
    read: Callable[[SpanRecord], ModelCall | ToolRun], span: SpanRecord
) -> ModelCall | ToolRun | None:
    try:
        return read(span)
    except Exception as error:
        logger.warning("cannot read the span %r of an agent, left out: %r", span.name, error)
        return None


def _kind(attributes: Attributes) -> Kind:
    operation = attributes.get("gen_ai.operation.name")
    if operation is not None:
        return _OPERATIONS.get(str(operation), "")
    kind = attributes.get("openinference.span.kind")
    if kind is not None:
        return _OPENINFERENCE.get(str(kind).upper(), "")
    if "gen_ai.tool.name" in attributes:
        return "tool"
    has_messages = any(name.startswith(("gen_ai.prompt.", "gen_ai.usage.")) for name in attributes)
    return "model" if has_messages and "gen_ai.request.model" in attributes else ""


def _above(
    span: SpanRecord, others: Mapping[int, SpanRecord], parents: Mapping[int, int]
) -> list[SpanRecord]:
    """Return those of the others that the span is inside of."""
    found, visited = [], {span.id}
    above = parents.get(span.id)
    while above is not None and above not in visited:
        visited.add(above)
        if above in others:
            found.append(others[above])
        above = parents.get(above)
    return found


# ── model calls ─────────────────────────────────────────────────────────────────────────────────


def _model_call(span: SpanRecord, usage_names: Sequence[tuple[str, ...]]) -> ModelCall:
    details = [
        each for name, each in span.events if name == "gen_ai.client.inference.operation.details"
    ]
    attributes = {
        name: value for each in (*details, span.attributes) for name, value in each.items()
    }
    input, output = _messages(span, attributes)
    usage = _usage(attributes, usage_names)
    model = _first_text(
        attributes, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "model_name"
    )
    cost = _first_number(attributes, "operation.cost", "llm.cost.total", "gen_ai.usage.cost")
    if cost is None and usage is not None and model is not None:
        cost = price_of(model, usage)
    start, end = span.start / 1e9, span.end / 1e9
    reasons = _json_or_value(attributes.get("gen_ai.response.finish_reasons"))
    reason = reasons[-1] if isinstance(reasons, list | tuple) and reasons else reasons
    return ModelCall(
        start,
        end,
        tuple(input),
        tuple(output),
        usage,
        cost,
        model,
        reason if isinstance(reason, str) else None,
        None if span.error is None else shorten(span.error, MAX_ERROR_CHARACTERS),
    )


def _usage(attributes: Attributes, names: Sequence[tuple[str, ...]]) -> TokenUsage | None:
    counts = [_first_number(attributes, *each) for each in names]
    if counts == [None, None, None]:
        return None
    return TokenUsage(*(None if count is None else round(count) for count in counts))


def _messages(
    span: SpanRecord, attributes: Attributes
) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """Return the messages of a model call, in the first form in which they are there."""
    instructions = attributes.get("gen_ai.system_instructions")
    if "gen_ai.input.messages" in attributes or "gen_ai.output.messages" in attributes:
        system = _texts(_json(instructions)) if instructions else ""
        input = _parsed(_json(attributes.get("gen_ai.input.messages")))
        output = _parsed(_json(attributes.get("gen_ai.output.messages")), "assistant")
        return [*([ChatMessage("system", system)] if system else []), *input], output
    if "pydantic_ai.all_messages" in attributes:
        return _parsed(_json(attributes["pydantic_ai.all_messages"])), []
    for prompt, completion in (
        ("llm.input_messages.", "llm.output_messages."),
        ("gen_ai.prompt.", "gen_ai.completion."),
    ):
        input = _parsed(_numbered(attributes, prompt))
        output = _parsed(_numbered(attributes, completion), "assistant")
        if input or output:
            return input or _values(attributes, "input.value", "user"), output
    events = _json(attributes.get("events")) or ()
    named = [(each.get("event.name"), each) for each in events if isinstance(each, Mapping)]
    input, output = _event_messages([*named, *span.events])
    if input or output:
        return input, output
    return _values(attributes, "input.value", "user"), _values(
        attributes, "output.value", "assistant"
    )


def _event_messages(
    events: Iterable[tuple[Any, Attributes]],
) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """Return the messages that are events, one for each, or one for all."""
    input: list[ChatMessage] = []
    output: list[ChatMessage] = []
    for name, body in events:
        if name == "gen_ai.content.prompt":
            input += _parsed(_json(body.get("gen_ai.prompt")))
        elif name == "gen_ai.content.completion":
            output += _parsed(_json(body.get("gen_ai.completion")), "assistant")
        elif name == "gen_ai.choice":
            message = _json(body.get("message"))
            output += _parsed([message if isinstance(message, Mapping) else body], "assistant")
        elif name in _EVENT_ROLES:
            input += _parsed([body], _EVENT_ROLES[name])
    return input, output


def _values(attributes: Attributes, name: str, role: str) -> list[ChatMessage]:
    """Return the value of a whole span as messages: a text, or a list of messages as JSON."""
    value = attributes.get(name)
    parsed = _json(value)
    if isinstance(parsed, Mapping):
        parsed = parsed.get("messages")
    if isinstance(parsed, list):
        return _parsed(parsed, role)
    is_text = isinstance(value, str) and value and parsed is None
    return _parsed([{"role": role, "content": value}]) if is_text else []


def _numbered(attributes: Attributes, prefix: str) -> list[Any]:
    """Return numbered attributes, such as `PREFIX0.message.role`, as a list of nested data."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            *path, last = name[len(prefix) :].split(".")
            node = root
            for part in path:
                below = node.setdefault(part, {})
                node = below if isinstance(below, dict) else {}
            node[last] = value
    return [_without_prefix(each, "message") for each in _in_order(root)]


def _in_order(data: Any) -> list[Any]:
    """Return the items of a list, or of a mapping whose keys are their numbers."""
    if isinstance(data, Mapping):
        return [data[key] for key in sorted(data, key=lambda key: (len(key), key))]
    return data if isinstance(data, list) else []


def _without_prefix(data: Any, name: str) -> Any:
    inner = data.get(name) if isinstance(data, Mapping) else None
    return inner if isinstance(inner, Mapping) else data


def _parsed(messages: Any, role: str = "user") -> list[ChatMessage]:
    """Return messages in the form of a convention as ours; `role` is for those that have none."""
    if isinstance(messages, str) and messages:
        messages = [{"content": messages}]
    found: list[ChatMessage] = []
    for each in messages if isinstance(messages, list | tuple) else ():
        if isinstance(each, str):
            found.append(ChatMessage(_role(role), each))
        elif isinstance(each, Mapping):
            found += _parsed_message(each, _role(each.get("role") or role))
    return found


def _role(name: Any) -> Any:
    return _ROLES.get(str(name).lower(), "user")


def _parsed_message(data: Mapping[str, Any], role: Any) -> list[ChatMessage]:
    parts = data.get("parts")
    if isinstance(parts, list):
        return _from_parts([part for part in parts if isinstance(part, Mapping)], role)
    content = data.get("content")
    text = _texts(data.get("contents") if content is None else content)
    calls = [_tool_call(each) for each in _in_order(_json_or_value(data.get("tool_calls")))]
    id = data.get("tool_call_id") or (data.get("id") if role == "tool" else None)
    name = data.get("name")
    return [
        ChatMessage(
            role,
            text,
            tuple(call for call in calls if call is not None),
            str(id) if id else None,
            str(name) if name and role == "tool" else None,
        )
    ]


def _from_parts(parts: list[Mapping[str, Any]], role: Any) -> list[ChatMessage]:
    """Return a message of parts; each result of a tool is a separate message."""
    results = [
        ChatMessage(
            "tool",
            text_or_json(next((part[key] for key in ("response", "result") if key in part), "")),
            tool_call_id=str(part["id"]) if part.get("id") else None,
            name=str(part["name"]) if part.get("name") else None,
        )
        for part in parts
        if part.get("type") == "tool_call_response"
    ]
    others = [part for part in parts if part.get("type") != "tool_call_response"]
    calls = [_tool_call(part) for part in others if part.get("type") == "tool_call"]
    text = _texts([part for part in others if part.get("type") != "tool_call"])
    message = ChatMessage(role, text, tuple(call for call in calls if call is not None))
    return [*results, message] if others or not results else results


def _tool_call(data: Any) -> ToolCall | None:
    data = _without_prefix(data, "tool_call")
    function = _without_prefix(data, "function")
    if not isinstance(function, Mapping) or not function.get("name"):
        return None
    return ToolCall(
        str(data.get("id") or ""), str(function["name"]), _arguments(function.get("arguments"))
    )


def _arguments(value: Any) -> dict[str, Any]:
    parsed = _json_or_value(value)
    if isinstance(parsed, Mapping):
        return {str(key): each for key, each in parsed.items()}
    return {} if parsed in (None, "") else {"input": parsed}


def _texts(value: Any) -> str:
    """Return the text of a content, which may be a list of parts."""
    if not isinstance(value, list | tuple | Mapping):
        return "" if value is None else str(value)
    texts = []
    for part in _in_order(value):
        part = _without_prefix(part, "message_content")
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type") not in ("reasoning", "thinking"):
            text = next((part[key] for key in ("content", "text") if key in part), None)
            texts.append(str(text) if text is not None else f"[{part.get('type', 'content')}]")
    return "\n".join(texts)


# ── tools ───────────────────────────────────────────────────────────────────────────────────────


def _tool_name(span: SpanRecord) -> str:
    return _first_text(span.attributes, "gen_ai.tool.name", "tool.name") or span.name


def _tool_run(span: SpanRecord) -> ToolRun:
    attributes = span.attributes
    arguments = _first(attributes, "gen_ai.tool.call.arguments", "tool_arguments", "input.value")
    result = _json_or_value(
        _first(attributes, "gen_ai.tool.call.result", "tool_response", "output.value")
    )
    id = _first_text(attributes, "gen_ai.tool.call.id", "tool_call.id", "tool.call_id")
    error = span.error
    message = _langchain_message(result)
    if message is not None:
        result, id = message.get("content"), id or message["tool_call_id"]
        if error is None and message.get("status") == "error":
            error = text_or_json(result)
    return ToolRun(
        span.start / 1e9,
        span.end / 1e9,
        _tool_name(span),
        _arguments(arguments),
        "" if result is None else text_or_json(result),
        None if error is None else shorten(error, MAX_ERROR_CHARACTERS),
        id,
    )


def _langchain_message(result: Any) -> Mapping[str, Any] | None:
    """Return LangChain's tool message, which its instrumentation has as the tool's output."""
    message = result.get("data", result.get("kwargs")) if isinstance(result, Mapping) else None
    is_message = isinstance(message, Mapping) and isinstance(message.get("tool_call_id"), str)
    return message if is_message else None


# ── values ──────────────────────────────────────────────────────────────────────────────────────


def _first(attributes: Attributes, *names: str) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _first_text(attributes: Attributes, *names: str) -> str | None:
    value = _first(attributes, *names)
    return str(value) if value not in (None, "") else None


def _first_number(attributes: Attributes, *names: str) -> float | None:
    value = _first(attributes, *names)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 2**53 else None


def _json(value: Any) -> Any:
    """Return JSON text as data, data as it is, and None for any other text."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _json_or_value(value: Any) -> Any:
    parsed = _json(value)
    return value if parsed is None else parsed


def text_or_json(value: Any) -> str:
    """Return a text as it is, and other data as JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return str(value)
