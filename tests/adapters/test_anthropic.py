"""Anthropic's adapter, with the real SDK and real connections to a local server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.adapters.served import (
    CITY,
    CLOCK,
    HELLO,
    STREAMS,
    TIMEOUT,
    WEATHER,
    as_json,
    http,
    request,
    saying,
)
from weakincentives import ChatMessage, TokenUsage, ToolCall
from weakincentives.adapters import ModelReply, ModelRequest, ModelSettings, ToolSpec
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.prices import Price
from weakincentives.errors import ProviderError, UsageError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.testing import Fault, ModelServer, Reply, ServedRequest

KEY = "key-very-secret"

# The SDK leaves its generators to the garbage collector, which trio warns about.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)


def adapter_of(server: ModelServer, **options: Any) -> AnthropicAdapter[Any]:
    options = {"timeout": TIMEOUT} | options
    return AnthropicAdapter("m", retries=0, base_url=server.anthropic_base_url, **options)


def ask_server(
    server: ModelServer, model_request: ModelRequest | None = None, **options: Any
) -> ModelReply:
    return anyio.run(adapter_of(server, **options).ask, model_request or request())


def error_of(
    script: Any, model_request: ModelRequest | None = None, **options: Any
) -> ProviderError:
    with ModelServer(script) as server, pytest.raises(ProviderError) as caught:
        ask_server(server, model_request, **options)
    return caught.value


def parse_reply(answer: bytes, **options: Any) -> ModelReply:
    with saying(answer) as url:
        adapter = AnthropicAdapter[Any]("m", retries=0, base_url=url, timeout=TIMEOUT, **options)
        return anyio.run(adapter.ask, request())


def parse_error(answer: bytes, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        parse_reply(answer, **options)
    return caught.value


def as_events(*events: dict[str, Any]) -> bytes:
    parts = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return http("".join(parts).encode(), "content-type: text/event-stream")


def message(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 1}
    base = {"id": "1", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    return {**base, "content": list(content), "stop_reason": "end_turn", **more}


# --- answers ---------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("max_tokens", "length"),
        ("stop_sequence", "stop"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_a_stop_reason_is_translated(theirs: str, ours: str, stream: bool) -> None:
    with ModelServer([Reply("x", finish_reason=theirs)]) as server:
        assert ask_server(server, stream=stream).finish_reason == ours


def test_every_part_of_a_request_is_sent() -> None:
    messages = (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Hi"),
        ChatMessage("developer", "In German."),
        ChatMessage("assistant", "Wait.", tool_calls=(WEATHER, CLOCK)),
        ChatMessage("tool", "22", tool_call_id="call_1", name="weather"),
        ChatMessage("tool", "", tool_call_id="call_2", name="clock"),
        ChatMessage("user", "And?"),
        ChatMessage("assistant", ""),
    )
    settings = ModelSettings(max_tokens=9, stop=("END",), extra={"metadata": {"user_id": "a"}})
    tools = (ToolSpec("weather", "Of a city", CITY),)
    with ModelServer(["ok"]) as server:
        ask_server(server, request(messages=messages, settings=settings, tools=tools))
        body = server.requests[0].body

    use = {"type": "tool_use", "id": "call_1", "name": "weather", "input": WEATHER.arguments}
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Wait."},
                use,
                {"type": "tool_use", "id": "call_2", "name": "clock", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "22"},
                {"type": "tool_result", "tool_use_id": "call_2", "content": ""},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    assert body["system"] == "Be brief.\n\nIn German."
    assert body["tools"] == [
        {"name": "weather", "description": "Of a city", "input_schema": CITY},
    ]
    assert (body["max_tokens"], body["stop_sequences"]) == (9, ["END"])
    assert body["metadata"] == {"user_id": "a"}


def test_unset_options_are_not_sent() -> None:
    with ModelServer(["ok"]) as server:
        ask_server(server)

    assert server.requests[0].body == {
        "model": "m",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": [{"type": "text", "text": HELLO[0].content}]}],
    }


def test_thoughts_are_not_part_of_the_answer() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    reply = parse_reply(as_json(message(thought, {"type": "text", "text": "Yes."})))

    assert reply.message.content == "Yes."


def test_tokens_that_are_written_to_the_cache_are_input_too() -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 20, "output_tokens": 1}
    reply = parse_reply(as_json(message(usage={**usage, "cache_read_input_tokens": 75})))

    assert reply.usage == TokenUsage(100, 1, 75)


def test_an_answer_may_come_without_usage() -> None:
    assert parse_reply(as_json(message(usage=None))).usage is None


# --- prompts, tools and structured output ----------------------------------------------------


@dataclass(frozen=True)
class City:
    city: str


def prompt_for(output: Any, *tools: Tool[Any, Any]) -> Prompt[Any]:
    section = MarkdownSection(title="Q", template="Weather in Zürich?", key="q", tools=tools)
    return Prompt(PromptTemplate[output](ns="tests", key="weather", sections=[section]))


@STREAMS
def test_a_conversation_with_tools_ends_in_a_typed_output(stream: bool) -> None:
    cities: list[str] = []

    def look_up(params: City) -> str:
        cities.append(params.city)
        return "22 degrees"

    def script(served: ServedRequest) -> Reply:
        if served.body["messages"][-1]["content"][0]["type"] == "tool_result":
            return Reply('{"city": "Zürich"}', usage=TokenUsage(20, 10))
        call = ToolCall("1", "look", {"city": "Zürich"})
        return Reply(tool_calls=(call,), usage=TokenUsage(9, 1))

    tool = Tool[City, str](name="look", description="Look out", handler=look_up)
    with ModelServer(script) as server:
        adapter = adapter_of(server, stream=stream, prices={"m": Price(1e6, 1e6, 1e6)})
        response = adapter.evaluate(prompt_for(City, tool))

    assert (response.output, cities) == (City("Zürich"), ["Zürich"])
    assert (response.usage, response.cost) == (TokenUsage(29, 11, 0), 40.0)


def test_the_output_schema_is_described_in_the_prompt() -> None:
    with ModelServer(['{"city": "Zürich"}']) as server:
        assert adapter_of(server).evaluate(prompt_for(City)).output == City("Zürich")

    system = server.requests[0].body["system"]
    assert "fits this JSON schema" in system
    assert '"required":["city"]' in system


# --- failures --------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_a_transient_status_is_retryable(status: int, stream: bool) -> None:
    fault = Fault("status", status, retry_after=1.5, message="busy")
    error = error_of([fault], stream=stream)

    assert (error.retryable, error.status, error.retry_after) == (True, status, 1.5)
    assert f"anthropic for `m`, got status {status} (busy)" in str(error)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_permanent_status_is_not_retryable(status: int) -> None:
    error = error_of([Fault("status", status)])

    assert (error.retryable, error.status) == (False, status)
    assert ("ANTHROPIC_API_KEY" in str(error)) is (status == 401)


@pytest.mark.parametrize("settings", [ModelSettings(temperature=0.0), ModelSettings(top_p=0.9)])
def test_sampling_is_sent_and_its_refusal_says_what_to_do(settings: ModelSettings) -> None:
    error = error_of(["unused"], request(settings=settings))

    assert (error.retryable, error.status) == (False, 400)
    assert "leave `temperature` and `top_p` out" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        http(b"<html>hello</html>", "content-type: text/html"),
        as_json({}),
        as_json([1]),
        as_json(message(content=None)),
        as_json(message(usage={"input_tokens": -1, "output_tokens": 1})),
        as_json(message({"type": "text", "text": 3})),
    ],
)
def test_a_malformed_answer_is_retryable(answer: bytes) -> None:
    error = parse_error(answer)

    assert error.retryable
    assert "cannot be read" in str(error)


START = {"type": "message_start", "message": message(stop_reason=None)}
END = {
    "type": "message_delta",
    "delta": {"stop_reason": "tool_use"},
    "usage": {"output_tokens": 5},
}


@pytest.mark.parametrize("events", [(START,), (), (END,)])
def test_a_stream_that_breaks_off_between_events_is_noticed(events: tuple[Any, ...]) -> None:
    error = parse_error(as_events(*events), stream=True)

    assert error.retryable
    assert "cannot be read" in str(error)


@pytest.mark.parametrize(
    ("kind", "retryable"), [("overloaded_error", True), ("invalid_request_error", False)]
)
def test_an_error_in_the_middle_of_a_stream_is_raised(kind: str, retryable: bool) -> None:
    broken = {"type": "error", "error": {"type": kind, "message": "oh no"}}
    error = parse_error(as_events(START, broken), stream=True)

    assert error.retryable is retryable
    assert "oh no" in str(error)


def test_arguments_that_break_off_in_a_stream_are_kept_as_text() -> None:
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    events = (
        START,
        {"type": "content_block_start", "index": 0, "content_block": thought},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "hm"},
        },
        {"type": "content_block_start", "index": 1, "content_block": use},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"city": "Z'},
        },
        {"type": "content_block_stop", "index": 1},
        END,
        {"type": "message_stop"},
    )
    reply = parse_reply(as_events(*events), stream=True)

    assert reply.message.tool_calls == (ToolCall("1", "look", {"__invalid_json__": '{"city": "Z'}),)
    assert reply.usage == TokenUsage(3, 5)


# --- keys, clients, construction -------------------------------------------------------------


def test_the_key_is_sent_and_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another")
    fault = Fault("status", 403, message=f"{KEY} may not")
    with ModelServer([fault], require_key=KEY) as server:
        adapter = adapter_of(server)
        with pytest.raises(ProviderError) as caught:
            anyio.run(adapter.ask, request())

    assert "(*** may not)" in str(caught.value)
    assert KEY not in repr(adapter)


def test_without_a_key_the_error_says_which_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", " ")
    with pytest.raises(ProviderError, match="environment variable ANTHROPIC_API_KEY"):
        anyio.run(AnthropicAdapter("claude-opus-5").ask, request())


def test_the_base_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with ModelServer(["hello"]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_base_url)
        assert anyio.run(AnthropicAdapter("m").ask, request()).message.content == "hello"


def test_the_type_of_the_output_may_be_given() -> None:
    adapter = AnthropicAdapter[str](model="claude-opus-5", timeout=None)

    assert (adapter.name, adapter.model) == ("anthropic", "claude-opus-5")


def test_a_seed_is_refused_at_construction() -> None:
    with pytest.raises(UsageError, match="expected no `seed`"):
        AnthropicAdapter("m", settings=ModelSettings(seed=1))
