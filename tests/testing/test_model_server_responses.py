"""OpenAI's SDK works with the Responses API of the local server as with the provider's."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from weakincentives.chat import TokenUsage, ToolCall
from weakincentives.testing import Fault, ModelServer, Reply

WEATHER = ToolCall("call_1", "weather", {"city": "Zürich", "days": [1, 2]})
TIMEOUT = 60.0  # seconds; only a hanging test takes that long


def client(server: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=server.openai_base_url, api_key="k", max_retries=0, timeout=TIMEOUT
    )


def create_response(server: ModelServer, **options: Any) -> Any:
    with client(server) as sdk:
        return sdk.responses.create(**{"model": "m", "input": "How are you today?"} | options)


def test_a_response_has_a_text_and_its_usage() -> None:
    with ModelServer(["It is sunny."]) as server:
        response = create_response(server, instructions="Be brief.")

    assert (response.output_text, response.status, response.model) == (
        "It is sunny.",
        "completed",
        "m",
    )
    assert (response.usage.input_tokens, response.usage.output_tokens) == (6, 3)


def test_tool_calls_and_their_results_are_exchanged() -> None:
    with ModelServer([Reply("Wait.", (WEATHER,)), "Rain."]) as server:
        message, call = create_response(server).output
        answer = {"type": "function_call_output", "call_id": call.call_id, "output": "it rains"}
        response = create_response(server, input=[call.model_dump(), answer])

    assert message.content[0].text == "Wait."
    assert (call.type, call.name, call.call_id) == ("function_call", "weather", "call_1")
    assert call.arguments == '{"city":"Zürich","days":[1,2]}'
    assert (response.output_text, response.usage.input_tokens) == ("Rain.", 2)


def test_a_stream_ends_with_the_complete_response() -> None:
    reply = Reply("It is sunny.", (WEATHER,), usage=TokenUsage(7, 8, 3))
    with ModelServer([reply, reply]) as server, client(server) as sdk:
        complete = sdk.responses.create(model="m", input="hi")
        with sdk.responses.stream(model="m", input="hi") as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()

    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") > 1
    assert final.output_text == complete.output_text == "It is sunny."
    assert final.output[1].model_dump()["arguments"] == complete.output[1].model_dump()["arguments"]
    assert final.usage == complete.usage


def test_a_truncated_response_is_incomplete() -> None:
    with ModelServer([Reply("It is", finish_reason="max_tokens")]) as server:
        response = create_response(server)

    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"


def test_faults_and_invalid_requests_are_errors_of_the_sdk() -> None:
    with ModelServer([Fault("status", 429)]) as server:
        with pytest.raises(openai.RateLimitError):
            create_response(server)
        with pytest.raises(openai.BadRequestError, match="'input'"):
            create_response(server, input=[])
        with pytest.raises(openai.BadRequestError, match="'model'"):
            create_response(server, model="")
