"""`use_demo_model`: OpenAI clients call the demo model, unless there is a key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from weakincentives.testing import use_demo_model

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
PARAMETERS = {"type": "object", "properties": {"order_id": {"type": "string"}}}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAI]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "")  # restored after the test
    monkeypatch.setenv("OPENAI_API_KEY", "")
    del os.environ["OPENAI_API_KEY"]
    use_demo_model()
    with OpenAI() as made:
        yield made


def test_chat_completions_answer_and_follow_a_schema(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "What is 6 * 7?"}]}]
    schema: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    plain = client.chat.completions.create(model="gpt-4o", messages=messages)
    typed = client.chat.completions.create(
        model="gpt-4o", messages=messages, response_format=schema
    )

    assert plain.choices[0].message.content == "42"
    assert plain.model == "demo/large (simulated)"
    assert typed.choices[0].message.content == '{"answer":"42"}'


def test_chat_completions_call_tools(client: OpenAI) -> None:
    function = {"name": "get_order", "description": "Return it.", "parameters": PARAMETERS}
    tools: Any = [{"type": "function", "function": function}]
    messages: Any = [{"role": "user", "content": "Where is order A-17?"}]
    first = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)
    message = first.choices[0].message
    (call,) = message.tool_calls or ()
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"status": "sent"}'}
    messages += [message.model_dump(exclude_none=True), result]
    second = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)

    assert call.function.arguments == '{"order_id":"A-17"}'  # type: ignore[union-attr]
    assert second.choices[0].message.content == "status: sent."


def test_responses_call_tools(client: OpenAI) -> None:
    tool = {"type": "function", "name": "get_order", "parameters": PARAMETERS, "strict": False}
    items: Any = [{"role": "user", "content": "Where is order A-17?"}]
    tools: Any = [tool]
    first = client.responses.create(model="gpt-4o", input=items, tools=tools, instructions="Help.")
    (call,) = first.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sent"}  # type: ignore[union-attr]
    items += [call.model_dump(exclude_none=True), result]
    second = client.responses.create(model="gpt-4o", input=items, tools=tools)

    assert second.output_text == "sent"


def test_a_configured_key_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    use_demo_model()

    assert (os.environ["OPENAI_API_KEY"], os.environ["OPENAI_BASE_URL"][-1]) == ("mine", "9")
