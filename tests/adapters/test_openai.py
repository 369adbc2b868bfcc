"""OpenAI's adapter, with the real SDK and real connections to a local server."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import pytest

from tests.adapters.served import (
    CITY,
    STREAMS,
    TIMEOUT,
    WEATHER,
    as_json,
    http,
    request,
    saying,
)
from weakincentives import ChatMessage, TokenUsage, ToolCall
from weakincentives.adapters import ModelReply, ModelRequest, ModelSettings, ToolSpec, sdk as shared
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.adapters.prices import Price
from weakincentives.errors import MissingExtraError, ProviderError, UsageError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.testing import Fault, ModelServer, Reply, ServedRequest

KEY = "sk-test-very-secret"

# The SDK stops at `[DONE]` and leaves its generators to the garbage collector: trio warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def adapter_of(server: ModelServer, **options: Any) -> OpenAIAdapter[Any]:
    options = {"timeout": TIMEOUT} | options
    return OpenAIAdapter("m", retries=0, base_url=server.openai_base_url, **options)


def ask_server(
    server: ModelServer, model_request: ModelRequest | None = None, **options: Any
) -> ModelReply:
    return anyio.run(adapter_of(server, **options).ask, model_request or request())


def error_of(script: Any, **options: Any) -> ProviderError:
    with ModelServer(script) as server, pytest.raises(ProviderError) as caught:
        ask_server(server, **options)
    return caught.value


def as_events(*events: object) -> bytes:
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return http(body, "content-type: text/event-stream")


def parse_reply(answer: bytes, **options: Any) -> ModelReply:
    with saying(answer) as url:
        return anyio.run(
            OpenAIAdapter("m", retries=0, base_url=url, timeout=TIMEOUT, **options).ask, request()
        )


def parse_error(answer: bytes, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        parse_reply(answer, **options)
    return caught.value


def completion(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}


def called(arguments: Any, id: str | None = "c") -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return completion(tool_calls=[{"id": id, "type": "function", "function": function}])


# --- answers ---------------------------------------------------------------------------------


@STREAMS
def test_latency_is_the_providers_time(stream: bool) -> None:
    with ModelServer([Reply("late", delay=0.05)]) as server:
        reply = ask_server(server, stream=stream)

    assert reply.latency_ms is not None
    assert reply.latency_ms >= 50


def test_every_part_of_a_request_is_sent() -> None:
    messages = (
        ChatMessage("system", "Be brief."),
        ChatMessage("developer", "In German."),
        ChatMessage("user", "Hi", name="ann"),
        ChatMessage("assistant", tool_calls=(WEATHER,)),
        ChatMessage("tool", "22", tool_call_id="call_1", name="weather"),
    )
    settings = ModelSettings(0.5, 9, 0.9, ("END",), 7, {"guided": True, "top_k": 3})
    tools = (ToolSpec("weather", "Of a city", CITY),)
    with ModelServer(["ok"]) as server:
        ask_server(server, request(messages=messages, settings=settings, tools=tools))
        body = server.requests[0].body

    function = {"name": "weather", "arguments": '{"city":"Zürich","days":[1,2]}'}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "In German."},
        {"role": "user", "content": "Hi", "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "22", "tool_call_id": "call_1"},
    ]
    assert body["tools"][0]["function"] == {
        "name": "weather",
        "description": "Of a city",
        "parameters": CITY,
    }
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.5, 0.9, 7)
    assert (body["max_tokens"], body["stop"]) == (9, ["END"])
    assert (body["guided"], body["top_k"]) == (True, 3)


def test_unset_options_are_not_sent() -> None:
    with ModelServer(["ok"]) as server:
        ask_server(server)

    assert server.requests[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "What is the weather?"}],
    }


def test_a_setting_of_zero_is_sent() -> None:
    with ModelServer(["ok"]) as server:
        ask_server(server, request(settings=ModelSettings(temperature=0.0, seed=0)))

    assert server.requests[0].body.items() >= {"temperature": 0.0, "seed": 0}.items()


def test_a_refusal_becomes_the_text_of_the_reply() -> None:
    reply = parse_reply(as_json(completion(content=None, refusal="I can't help with that.")))

    assert reply.message.content == "I can't help with that."
    assert reply.usage is None


# --- prompts, tools and structured output ----------------------------------------------------


@dataclass(frozen=True)
class City:
    city: str


@dataclass(frozen=True)
class Options:
    city: str = "Zürich"


@dataclass(frozen=True)
class Weather:
    city: str
    degrees: int = 20
    nearby: list[City] = field(default_factory=list)


def prompt_for(output: Any, *tools: Tool[Any, Any], key: str = "weather") -> Prompt[Any]:
    section = MarkdownSection(title="Q", template="Weather in Zürich?", key="q", tools=tools)
    return Prompt(PromptTemplate[output](ns="tests", key=key, sections=[section]))


@STREAMS
def test_a_conversation_with_tools_ends_in_a_typed_output(stream: bool) -> None:
    cities: list[str] = []

    def look_up(params: City) -> str:
        cities.append(params.city)
        return "22 degrees"

    def script(served: ServedRequest) -> Reply:
        if served.body["messages"][-1]["role"] == "tool":
            return Reply('{"city": "Zürich", "degrees": 22}', usage=TokenUsage(20, 10))
        return Reply(
            tool_calls=(ToolCall("1", "look", {"city": "Zürich"}),), usage=TokenUsage(9, 1)
        )

    tool = Tool[City, str](name="look", description="Look out", handler=look_up)
    with ModelServer(script) as server:
        adapter = adapter_of(server, stream=stream, prices={"m": Price(1e6, 1e6, 1e6)})
        response = adapter.evaluate(prompt_for(Weather, tool))

    assert response.output == Weather("Zürich", 22)
    assert cities == ["Zürich"]
    assert (response.usage, response.cost) == (TokenUsage(29, 11, 0), 40.0)


def test_a_schema_is_made_strict() -> None:
    with ModelServer(['{"city": "Zürich"}']) as server:
        adapter_of(server).evaluate(prompt_for(Weather))

    sent = server.requests[0].body["response_format"]
    assert (sent["type"], sent["json_schema"]["strict"]) == ("json_schema", True)
    schema = sent["json_schema"]["schema"]
    assert schema["required"] == ["city", "degrees", "nearby"]
    assert schema["additionalProperties"] is False
    assert "default" not in json.dumps(schema)
    assert schema["$defs"]["City"]["required"] == ["city"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        {
            "type": "object",
            "properties": {"a": {"oneOf": [{"type": "string"}]}},
            "additionalProperties": False,
        },
    ],
)
def test_a_schema_that_cannot_be_strict_is_sent_as_it_is(schema: dict[str, Any]) -> None:
    with ModelServer(["{}"]) as server:
        ask_server(server, request(output_schema=schema, output_name="a b!"))

    sent = server.requests[0].body["response_format"]["json_schema"]
    assert sent == {"name": "a_b_", "schema": schema, "strict": False}


def test_strict_reaches_into_choices() -> None:
    one = {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {**one, "properties": {"a": {"anyOf": [{"type": "null"}, one]}}}
    with ModelServer(["{}"]) as server:
        ask_server(server, request(output_schema=schema, output_name=""))

    sent = server.requests[0].body["response_format"]["json_schema"]
    assert (sent["name"], sent["strict"]) == ("output", True)
    assert sent["schema"]["properties"]["a"]["anyOf"][1]["required"] == []


def test_a_schema_that_is_not_an_object_is_described_in_the_prompt() -> None:
    with ModelServer(["[1, 2]"]) as server:
        assert adapter_of(server).evaluate(prompt_for(list[int])).output == [1, 2]
        body = server.requests[0].body

    assert "response_format" not in body
    assert body["messages"][0]["role"] == "system"
    assert '"type":"array"' in body["messages"][0]["content"]


def test_a_server_without_schema_support_gets_the_schema_in_the_prompt() -> None:
    def script(served: ServedRequest) -> str | Fault:
        if "response_format" in served.body:
            return Fault("status", 400, message="Unknown parameter: 'response_format'")
        return '{"city": "Zürich"}'

    with ModelServer(script) as server:
        adapter = adapter_of(server)
        for _ in range(2):
            assert adapter.evaluate(prompt_for(City)).output == City("Zürich")

    assert ["response_format" in each.body for each in server.requests] == [True, False, False]


@pytest.mark.parametrize(
    ("status", "message"), [(400, "no such thing"), (500, "response_format is broken")]
)
def test_another_error_is_not_about_the_schema(status: int, message: str) -> None:
    fault = Fault("status", status, message=message)
    with ModelServer([fault]) as server, pytest.raises(ProviderError, match=message):
        adapter_of(server).evaluate(prompt_for(City))

    assert len(server.requests) == 1


@pytest.mark.parametrize("text", ['{"city": "Zü', "[1]", '{"a": NaN}', "nonsense", '{"a":"\\ud8"}'])
def test_arguments_that_are_no_json_object_are_kept_as_text(text: str) -> None:
    (call,) = parse_reply(as_json(called(text))).message.tool_calls

    assert call.arguments == {"__invalid_json__": text}


def test_a_tool_refuses_broken_arguments_and_the_conversation_goes_on() -> None:
    broken = ToolCall("1", "look", {"__invalid_json__": '{"city": "Zü'})
    tool = Tool[Options, str](name="look", description="Look", handler=lambda params: params.city)
    with ModelServer([Reply(tool_calls=(broken,)), "Sorry."]) as server:
        assert adapter_of(server).evaluate(prompt_for(str, tool)).output == "Sorry."

    tool_message = server.requests[1].body["messages"][-1]
    assert tool_message["role"] == "tool"
    assert "__invalid_json__" in tool_message["content"]


def test_no_arguments_and_no_id_are_filled_in() -> None:
    assert parse_reply(as_json(called("", id=None))).message.tool_calls == (
        ToolCall("call_1_0", "weather", {}),
    )


# --- failures --------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_a_transient_status_is_retryable(status: int, stream: bool) -> None:
    error = error_of([Fault("status", status, message="busy")], stream=stream)

    assert (error.retryable, error.status) == (True, status)
    assert "openai for `m`" in str(error)
    assert f"status {status} (busy)" in str(error)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "change the request"),
        (401, "set the environment variable OPENAI_API_KEY"),
        (403, "use a key that may use this model"),
        (404, "check the model's name and the base URL"),
        (413, "send a shorter request"),
        (422, "change the request"),
    ],
)
def test_a_permanent_status_is_not_retryable(status: int, advice: str) -> None:
    error = error_of([Fault("status", status)])

    assert (error.retryable, error.status) == (False, status)
    assert advice in str(error)


def test_an_error_hints_at_the_setting_to_omit() -> None:
    message = "Unsupported parameter: 'max_tokens' is not supported with this model."

    assert "max_completion_tokens" in str(error_of([Fault("status", 400, message=message)]))


@STREAMS
def test_retry_after_is_kept(stream: bool) -> None:
    fault = Fault("status", 429, retry_after=1.5)

    assert error_of([fault], stream=stream).retry_after == 1.5
    assert error_of([Fault("status", 429)], stream=stream).retry_after is None


def test_a_wait_may_be_a_date_or_in_milliseconds() -> None:
    def wait(*headers: str) -> float | None:
        error = {"error": {"message": "x"}}
        return parse_error(as_json(error, *headers, status="429 Too Many")).retry_after

    soon = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert wait("retry-after-ms: 250", "retry-after: 9") == 0.25
    assert 3000 < (wait(f"retry-after: {soon}") or 0) <= 3600
    assert wait("retry-after: Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert wait("retry-after: -3") == 0.0
    assert wait("retry-after: soon") is None
    assert wait("retry-after: inf") is None


def test_an_exhausted_quota_is_not_retryable() -> None:
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}

    assert not parse_error(as_json(body, status="429 Too Many")).retryable


def test_the_retry_header_of_the_service_wins() -> None:
    error = {"error": {"message": "x"}}

    assert not parse_error(as_json(error, "x-should-retry: false", status="500 X")).retryable
    assert parse_error(as_json(error, "x-should-retry: true", status="400 X")).retryable


def test_an_error_page_is_cut_short() -> None:
    page = http(b"<html>\n" + b"x " * 5000, "content-type: text/html", status="502 Bad Gateway")

    assert len(str(parse_error(page))) < 500
    assert "without a message" in str(parse_error(http(b"", status="502 Bad Gateway")))


@pytest.mark.parametrize(
    "answer",
    [
        http(b"<html>hello</html>", "content-type: text/html"),
        as_json({}),
        as_json([1]),
        as_json({"choices": []}),
        as_json({"choices": [{"message": None}]}),
        as_json({**completion(content="x"), "usage": {"prompt_tokens": -1}}),
        as_json(completion(content=["x"])),
        http(b"\xff\xfe", "content-type: application/json"),
    ],
)
def test_a_malformed_answer_is_retryable(answer: bytes) -> None:
    error = parse_error(answer)

    assert error.retryable
    assert "cannot be read" in str(error)


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def test_a_stream_that_breaks_off_between_events_is_noticed() -> None:
    error = parse_error(as_events(chunk({"content": "half"})), stream=True)

    assert error.retryable
    assert "a truncated stream" in str(error)


@pytest.mark.parametrize(
    ("kind", "retryable"), [("server_error", True), ("invalid_request_error", False)]
)
def test_an_error_in_the_middle_of_a_stream_is_raised(kind: str, retryable: bool) -> None:
    events = as_events(chunk({"content": "half"}), {"error": {"message": "oh no", "type": kind}})
    error = parse_error(events, stream=True)

    assert error.retryable is retryable
    assert "oh no" in str(error)


def test_a_refused_connection_is_retryable() -> None:
    with socket.socket() as closed_port:
        closed_port.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://me:pass@127.0.0.1:{closed_port.getsockname()[1]}/v1"
        with pytest.raises(ProviderError, match=r"check that 127\.0\.0\.1 is reachable") as caught:
            anyio.run(OpenAIAdapter("m", retries=0, base_url=url).ask, request())

    assert caught.value.retryable
    assert "pass" not in str(caught.value)


def test_settings_without_a_json_form_are_a_usage_error() -> None:
    with ModelServer([]) as server, pytest.raises(ProviderError, match="TypeError") as caught:
        ask_server(server, request(settings=ModelSettings(extra={"x": object()})))

    assert not caught.value.retryable


# --- keys ------------------------------------------------------------------------------------


def test_the_key_is_sent_and_never_printed() -> None:
    def echo(served: ServedRequest) -> Fault:
        return Fault("status", 401, message=f"Incorrect API key provided: {KEY}, sk-pr***9z.")

    with ModelServer(echo, require_key=KEY) as server:
        adapter = adapter_of(server)
        with pytest.raises(ProviderError) as caught:
            anyio.run(adapter.ask, request())

    assert "provided: ***, ***." in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert KEY not in repr(adapter)
    assert KEY not in repr({name: getattr(adapter, name) for name in ("settings", "price", "ask")})


def test_without_a_key_the_error_says_which_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ProviderError, match="environment variable OPENAI_API_KEY") as caught:
        anyio.run(OpenAIAdapter("gpt-4o").ask, request())

    assert not caught.value.retryable


def test_a_custom_server_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with ModelServer(["hello"]) as server:
        assert ask_server(server).message.content == "hello"


def test_a_new_key_is_used_from_the_next_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def twice(adapter: OpenAIAdapter[Any]) -> None:
        with pytest.raises(ProviderError, match="status 401"):
            await adapter.ask(request())
        monkeypatch.setenv("OPENAI_API_KEY", "sk-new")
        await adapter.ask(request())

    with ModelServer(["hello"], require_key="sk-new") as server:
        anyio.run(twice, adapter_of(server))


def test_the_base_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(["hello"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        assert anyio.run(OpenAIAdapter("m").ask, request()).message.content == "hello"


def test_openai_itself_gets_the_newer_name_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    official: OpenAIAdapter[str] = OpenAIAdapter("m")
    with ModelServer(["yes"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)  # the SDK reads it as well
        anyio.run(official.ask, request(settings=ModelSettings(max_tokens=5)))

    body = server.requests[0].body
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body


# --- clients ---------------------------------------------------------------------------------


def test_threads_with_separate_event_loops_share_an_adapter() -> None:
    with ModelServer(["yes"], repeat=True) as server:
        adapter = adapter_of(server)
        work = [threading.Thread(target=anyio.run, args=(adapter.ask, request())) for _ in range(8)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()

    assert len(server.requests) == 8


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_clients_of_a_loop_that_was_just_closed_are_dropped() -> None:
    with ModelServer(["yes"], repeat=True) as server:
        adapter = adapter_of(server)
        closed_loop = asyncio.new_event_loop()
        closed_loop.run_until_complete(adapter.ask(request()))  # type: ignore[arg-type]
        closed_loop.close()
        clients = shared._clients_by_loop[closed_loop]
        assert clients
        anyio.run(adapter.ask, request())

    assert not clients
    assert closed_loop not in shared._clients_by_loop
    gc.collect()


# --- construction ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": ""}, "expected a model's name"),
        ({"model": 3}, "expected a model's name"),
        ({"timeout": 0}, "expected seconds > 0"),
        ({"timeout": "1"}, "expected seconds > 0"),
        ({"base_url": "localhost:8000"}, "expected `http://"),
    ],
)
def test_a_wrong_argument_is_refused_at_construction(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OpenAIAdapter(**({"model": "m"} | options))


def test_the_type_of_the_output_may_be_given() -> None:
    adapter = OpenAIAdapter[str](model="gpt-4o", timeout=None)

    assert (adapter.name, adapter.model, adapter.max_turns) == ("openai", "gpt-4o", 20)
    assert "gpt-4o" in repr(adapter)


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_the_sdk_is_imported_late_and_its_absence_names_the_extra(name: str) -> None:
    code = (
        "import sys\n"
        "import weakincentives.adapters.model_names as names\n"
        "assert not {'openai', 'anthropic'} & set(sys.modules)\n"
        f"sys.modules[{name!r}] = None\n"
        "try:\n"
        f"    names.adapter_for('{name}/m')\n"
        "except names.UsageError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )

    assert done.stdout.startswith(MissingExtraError.__name__)
    assert f"pip install 'weakincentives-evals[{name}]'" in done.stdout
