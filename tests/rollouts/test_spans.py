"""Spans by the conventions of generative AI and of OpenInference become a trajectory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weakincentives.adapters.prices import price_of
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.rollouts import Trajectory, TrajectorySession
from weakincentives.rollouts.recording import SpanRecord, recorded_trajectory
from weakincentives.rollouts.spans import is_relevant, items_of_spans
from weakincentives.runtime import ToolInvoked

CALL = ToolCall("c1", "search", {"query": "wink"})
CONVERSATION = (
    ChatMessage("system", "Help."),
    ChatMessage("user", "What is it?"),
    ChatMessage("assistant", "", (CALL,)),
    ChatMessage("tool", "a library", tool_call_id="c1"),
    ChatMessage("assistant", "A library."),
)
USAGE = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
LLM = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4o"}

Event = tuple[str, dict[str, Any]]


def span(
    id: int, attributes: dict[str, Any], *events: Event, error: str | None = None
) -> SpanRecord:
    """Return a span that starts at second `id` and takes half a second."""
    start = id * 10**9
    return SpanRecord(id, f"span {id}", start, start + 5 * 10**8, attributes, events, error)


def trajectory(*spans: SpanRecord, parents: dict[int, int] | None = None) -> Trajectory[Any]:
    return recorded_trajectory(items_of_spans(spans, parents or {}), "A library.")


# ── the forms of a message ──────────────────────────────────────────────────────────────────────


def as_parts(message: ChatMessage) -> dict[str, Any]:
    """Return a message in the current form: a list of parts."""
    if message.role == "tool":
        part = {"type": "tool_call_response", "id": "c1", "response": message.content}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = [
        {"type": "tool_call", "id": c.id, "name": c.name, "arguments": dict(c.arguments)}
        for c in message.tool_calls
    ]
    text = [{"type": "text", "content": message.content}] if message.content else []
    return {"role": message.role, "parts": [{"type": "reasoning", "content": "hm"}, *text, *parts]}


def as_openai(message: ChatMessage) -> dict[str, Any]:
    """Return a message in the form of OpenAI's API, as in earlier conventions."""
    calls = [
        {
            "id": c.id,
            "type": "function",
            "function": {"name": c.name, "arguments": '{"query":"wink"}'},
        }
        for c in message.tool_calls
    ]
    data: dict[str, Any] = {"role": message.role, "content": message.content or None}
    data |= {"tool_calls": calls} if calls else {}
    return data | ({"tool_call_id": message.tool_call_id} if message.tool_call_id else {})


def current(*messages: ChatMessage) -> tuple[dict[str, Any], list[Event]]:
    *before, reply = messages
    return {
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": before[0].content}]),
        "gen_ai.input.messages": json.dumps([as_parts(message) for message in before[1:]]),
        "gen_ai.output.messages": json.dumps([as_parts(reply)]),
        **CHAT,
        **USAGE,
    }, []


def details(*messages: ChatMessage) -> tuple[dict[str, Any], list[Event]]:
    attributes, _ = current(*messages)
    body = {name: attributes.pop(name) for name in list(attributes) if "messages" in name}
    return attributes, [("gen_ai.client.inference.operation.details", body)]


def events(*messages: ChatMessage) -> tuple[dict[str, Any], list[Event]]:
    *before, reply = messages
    messages_before: list[Event] = []
    for message in before:
        body = as_openai(message)
        body.pop("role")
        if "tool_calls" in body:
            body["tool_calls"] = json.dumps(body["tool_calls"])
        if "tool_call_id" in body:
            body["id"] = body.pop("tool_call_id")
        messages_before.append((f"gen_ai.{message.role}.message", body))
    choice = {"index": 0, "message": json.dumps(as_openai(reply))}
    return {**CHAT, **USAGE}, [*messages_before, ("gen_ai.choice", choice)]


def events_attribute(*messages: ChatMessage) -> tuple[dict[str, Any], list[Event]]:
    _, message_events = events(*messages)
    listed = [{"event.name": name, **body} for name, body in message_events]
    return {**CHAT, **USAGE, "events": json.dumps(listed)}, []


def content_events(*messages: ChatMessage) -> tuple[dict[str, Any], list[Event]]:
    *before, reply = messages
    prompt = json.dumps([as_openai(message) for message in before])
    return {**CHAT, "gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 2}, [
        ("gen_ai.content.prompt", {"gen_ai.prompt": prompt}),
        ("gen_ai.content.completion", {"gen_ai.completion": json.dumps([as_openai(reply)])}),
    ]


def numbered(*messages: ChatMessage) -> tuple[dict[str, Any], list[Event]]:
    *before, reply = messages
    attributes: dict[str, Any] = {"gen_ai.request.model": "gpt-4o", **USAGE}
    for prefix, group in (("gen_ai.prompt", before), ("gen_ai.completion", [reply])):
        for index, message in enumerate(group):
            at = f"{prefix}.{index}"
            attributes[f"{at}.role"] = message.role
            attributes[f"{at}.content"] = message.content
            if message.tool_call_id:
                attributes[f"{at}.tool_call_id"] = message.tool_call_id
            for number, call in enumerate(message.tool_calls):
                attributes[f"{at}.tool_calls.{number}.id"] = call.id
                attributes[f"{at}.tool_calls.{number}.name"] = call.name
                attributes[f"{at}.tool_calls.{number}.arguments"] = '{"query": "wink"}'
    return attributes, []


def openinference(*messages: ChatMessage) -> tuple[dict[str, Any], list[Event]]:
    *before, reply = messages
    attributes: dict[str, Any] = {
        **LLM,
        "llm.token_count.prompt": 10,
        "llm.token_count.completion": 2,
        "llm.token_count.prompt_details.cache_read": 4,
    }
    for prefix, group in (("llm.input_messages", before), ("llm.output_messages", [reply])):
        for index, message in enumerate(group):
            at = f"{prefix}.{index}.message"
            attributes[f"{at}.role"] = message.role
            if index % 2:
                attributes[f"{at}.contents.0.message_content.type"] = "text"
                attributes[f"{at}.contents.0.message_content.text"] = message.content
            else:
                attributes[f"{at}.content"] = message.content
            if message.tool_call_id:
                attributes[f"{at}.tool_call_id"] = message.tool_call_id
            for number, call in enumerate(message.tool_calls):
                here = f"{at}.tool_calls.{number}.tool_call"
                attributes[f"{here}.id"] = call.id
                attributes[f"{here}.function.name"] = call.name
                attributes[f"{here}.function.arguments"] = '{"query": "wink"}'
    return attributes, []


FORMS = [current, details, events, events_attribute, content_events, numbered, openinference]


@pytest.mark.parametrize("form", FORMS)
def test_two_calls_of_a_conversation_are_one_transcript(form: Any) -> None:
    first, second = form(*CONVERSATION[:3]), form(*CONVERSATION)
    parsed = trajectory(span(2, second[0], *second[1]), span(1, first[0], *first[1]))

    assert parsed.messages == CONVERSATION
    assert parsed.usage is not None
    assert (parsed.usage.input_tokens, parsed.usage.output_tokens) == (20, 4)
    assert parsed.cost == pytest.approx(price_of("gpt-4o", parsed.usage))
    assert parsed.metadata == {"model": "gpt-4o"}


# ── tools ───────────────────────────────────────────────────────────────────────────────────────

TOOLS = [
    {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"query": "wink"}',
        "gen_ai.tool.call.result": "a library",
    },
    {
        "gen_ai.tool.name": "search",
        "tool_arguments": '{"query": "wink"}',
        "tool_response": "a library",
    },
    {
        "openinference.span.kind": "TOOL",
        "tool.name": "search",
        "input.value": '{"query": "wink"}',
        "output.value": json.dumps({"data": {"content": "a library", "tool_call_id": "c1"}}),
    },
]


@pytest.mark.parametrize("attributes", TOOLS)
def test_a_tool_belongs_to_the_call_that_asked_for_it(attributes: dict[str, Any]) -> None:
    first_call, _ = current(*CONVERSATION[:3])
    second_call, _ = current(*CONVERSATION)
    tool = span(2, attributes, error="timed out")

    for spans in ([span(1, first_call), tool, span(3, second_call)], [span(1, first_call), tool]):
        parsed = trajectory(*spans)
        assert [message.role for message in parsed.messages[:4]] == [
            *("system", "user", "assistant", "tool")
        ]
        assert parsed.messages[3].content == "a library"
        assert parsed.tool_errors == {"c1": "timed out"}


@pytest.mark.parametrize("attributes", TOOLS)
def test_a_tool_span_without_messages_is_a_tool_call(attributes: dict[str, Any]) -> None:
    parsed = trajectory(span(1, attributes), span(2, attributes))
    events = TrajectorySession(parsed)[ToolInvoked].all()

    assert [(e.name, e.params, e.result, e.success) for e in events] == [
        ("search", {"query": "wink"}, "a library", True)
    ] * 2
    assert parsed.usage is None


def test_an_error_in_the_message_of_a_tool_is_a_tool_error() -> None:
    message = {"content": "no such order", "tool_call_id": "c1", "status": "error"}
    tool = {**TOOLS[2], "output.value": json.dumps({"type": "tool", "data": message})}

    assert trajectory(span(1, tool)).tool_errors == {"c1": "no such order"}


def test_calls_without_ids_are_distinguished() -> None:
    call = {"type": "tool_call", "name": "search", "arguments": {"page": 1}}
    result = {"type": "tool_call_response", "name": "search", "result": {"hits": 3}}
    reply = [{"role": "assistant", "parts": [call, {**call, "arguments": {"page": 2}}]}]
    first_call = {**CHAT, "gen_ai.output.messages": json.dumps(reply)}
    second_call = {
        **CHAT,
        "gen_ai.input.messages": json.dumps([*reply, {"parts": [result, result]}]),
    }
    failed = {
        "openinference.span.kind": "TOOL",
        "tool.name": "search",
        "input.value": '{"page": 2}',
    }
    parsed = trajectory(
        span(1, first_call), span(2, failed, error="timed out"), span(3, second_call)
    )
    first, second = TrajectorySession(parsed)[ToolInvoked].all()

    assert (first.params, first.success, first.result) == ({"page": 1}, True, {"hits": 3})
    assert (second.params, second.success, second.error) == ({"page": 2}, False, "timed out")


# ── what counts once ────────────────────────────────────────────────────────────────────────────


def test_a_call_that_two_instrumentations_report_counts_once() -> None:
    outer, _ = openinference(*CONVERSATION[:3])
    inner, _ = current(*CONVERSATION[:3])
    parsed = trajectory(span(1, outer), span(2, inner), parents={2: 9, 9: 1, 1: 0})

    assert parsed.messages == CONVERSATION[:3]
    assert parsed.usage == TokenUsage(10, 2, 4)


def test_a_tool_inside_the_same_tool_counts_once() -> None:
    parsed = trajectory(span(1, TOOLS[1]), span(2, TOOLS[1]), parents={2: 1})

    assert len(TrajectorySession(parsed)[ToolInvoked]) == 1


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "invoke_agent", **USAGE},
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.aggregated_usage.input_tokens": 10,
            "gen_ai.aggregated_usage.output_tokens": 2,
            "pydantic_ai.all_messages": json.dumps([as_parts(CONVERSATION[1])]),
        },
        {"openinference.span.kind": "AGENT", "llm.token_count.prompt": 10, **USAGE},
    ],
)
def test_the_usage_of_an_agent_counts_only_without_model_calls(attributes: dict[str, Any]) -> None:
    model_call, _ = current(*CONVERSATION[:3])
    alone = trajectory(span(1, attributes), span(2, attributes), parents={2: 1})
    both = trajectory(span(1, attributes), span(2, model_call), parents={2: 1})

    assert alone.usage == both.usage == TokenUsage(10, 2)


def test_equal_messages_of_one_conversation_are_kept() -> None:
    again = [as_parts(ChatMessage("user", "Go on."))] * 2
    call = {**CHAT, "gen_ai.input.messages": json.dumps(again)}

    assert len(trajectory(span(1, call), span(2, call)).messages) == 2


# ── odd spans ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "attributes",
    [
        {**CHAT, "gen_ai.input.messages": "{not JSON", "gen_ai.usage.input_tokens": "many"},
        {**CHAT, "gen_ai.input.messages": '[1, null, {"parts": 5}, {"parts": [7]}]'},
        {**CHAT, "gen_ai.usage.input_tokens": -1, "operation.cost": float("nan")},
        {**LLM, "llm.input_messages.0": "x", "llm.input_messages.0.message.role": "alien"},
        {**LLM, "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c"},
        {"openinference.span.kind": 5, "gen_ai.tool.name": None},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.arguments": "[1]"},
        {"gen_ai.operation.name": "embeddings", **USAGE},
    ],
)
def test_a_malformed_span_raises_no_error(attributes: dict[str, Any]) -> None:
    parsed = trajectory(span(1, attributes))

    assert parsed.output == "A library."
    assert parsed.usage is None


def test_a_text_is_the_message_of_a_call_without_messages() -> None:
    call = {**LLM, "input.value": "What is it?", "output.value": "A library."}
    listed = {**LLM, "input.value": json.dumps({"messages": [as_openai(CONVERSATION[1])]})}

    assert trajectory(span(1, call)).messages == (CONVERSATION[1], CONVERSATION[4])
    assert trajectory(span(1, listed)).messages == CONVERSATION[1:2]


def test_unrelated_spans_are_ignored() -> None:
    assert not is_relevant({"http.request.method": "GET"})
    assert is_relevant(CHAT)
