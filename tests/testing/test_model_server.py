"""The official SDKs, sync and async, work with the local server as with their provider."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import openai
import pytest

from weakincentives.chat import TokenUsage, ToolCall
from weakincentives.errors import UsageError
from weakincentives.testing import Fault, ModelServer, Reply, ServedRequest

if TYPE_CHECKING:
    from anthropic import Anthropic  # which takes a second, in every process that collects

HELLO: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = ToolCall("call_1", "weather", {"city": "Zürich", "days": [1, 2]})
CLOCK = ToolCall("call_2", "clock", {})
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
TIMEOUT = 60.0  # seconds; only a hanging test takes that long


def openai_client(server: ModelServer, **options: Any) -> openai.OpenAI:
    options = {"api_key": "k", "max_retries": 0, "timeout": TIMEOUT} | options
    return openai.OpenAI(base_url=server.openai_base_url, **options)


def anthropic_client(server: ModelServer, **options: Any) -> Anthropic:
    from anthropic import Anthropic

    options = {"api_key": "k", "max_retries": 0, "timeout": TIMEOUT} | options
    return Anthropic(base_url=server.anthropic_base_url, **options)


def call_openai(server: ModelServer, **options: Any) -> Any:
    with openai_client(server) as client:
        return client.chat.completions.create(model="m", messages=HELLO, **options)


def call_anthropic(server: ModelServer, **options: Any) -> Any:
    with anthropic_client(server) as client:
        return client.messages.create(model="m", max_tokens=9, messages=HELLO, **options)


def drain_openai(server: ModelServer) -> Any:
    with openai_client(server) as client:
        return list(client.chat.completions.create(model="m", messages=HELLO, stream=True))


def drain_anthropic(server: ModelServer) -> Any:
    with anthropic_client(server) as client:
        return list(client.messages.create(model="m", max_tokens=9, messages=HELLO, stream=True))


@pytest.fixture
def sdk(request: pytest.FixtureRequest) -> ModuleType:
    """Return the package of this name."""
    return import_module(request.param)


BOTH_SDKS = pytest.mark.parametrize(
    ("call", "sdk"),
    [(call_openai, "openai"), (call_anthropic, "anthropic")],
    ids=["openai", "anthropic"],
    indirect=["sdk"],
)
BOTH_STREAMS = pytest.mark.parametrize(
    ("drain", "sdk"),
    [(drain_openai, "openai"), (drain_anthropic, "anthropic")],
    ids=["openai", "anthropic"],
    indirect=["sdk"],
)
Call = Callable[..., Any]


def connect(server: ModelServer) -> socket.socket:
    port = int(server.url.rsplit(":", 1)[1])
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)


def post(body: object, path: str = "/v1/chat/completions", *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = (f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(data)}", *headers)
    return "\r\n".join((*lines, "", "")).encode() + data


def exchange(server: ModelServer, data: bytes) -> bytes:
    """Send bytes; return what the server sends until it closes the connection."""
    with connect(server) as peer:
        peer.sendall(data)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def status_and_error(server: ModelServer, data: bytes) -> tuple[int, Any]:
    head, _, body = exchange(server, data).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


# --- answers ---------------------------------------------------------------------------------


def test_openai_gets_a_plain_answer() -> None:
    with ModelServer(["It is sunny."]) as server:
        completion = call_openai(server)

    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("It is sunny.", "stop")
    assert (choice.message.tool_calls, completion.model) == (None, "m")
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (6, 3)
    assert completion.usage.total_tokens == 9
    assert completion._request_id == "req_1"


def test_anthropic_gets_a_plain_answer() -> None:
    with ModelServer(["It is sunny."]) as server:
        message = call_anthropic(server, system=[{"type": "text", "text": "Be brief."}])

    (block,) = message.content
    assert (block.text, message.stop_reason, message.model) == ("It is sunny.", "end_turn", "m")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (8, 3)
    assert message._request_id == "req_1"


def test_an_empty_reply_is_still_an_answer() -> None:
    with ModelServer([Reply(), Reply()]) as server:
        assert call_openai(server).choices[0].message.content == ""
        assert call_anthropic(server).content == []


def test_openai_tool_calls_and_their_results_are_exchanged() -> None:
    def script(request: ServedRequest) -> Reply:
        last = request.body["messages"][-1]
        if last["role"] == "tool":
            return Reply(f"The tool said {last['content']}")
        return Reply(tool_calls=(WEATHER, CLOCK))

    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
    with ModelServer(script) as server, openai_client(server) as client:
        create = client.chat.completions.create
        choice = create(model="m", messages=HELLO, tools=[tool]).choices[0]
        calls: Any = choice.message.tool_calls
        answers: Any = [
            {"role": "tool", "tool_call_id": call.id, "content": "22"} for call in calls
        ]
        final = create(model="m", messages=[*HELLO, choice.message, *answers], tools=[tool])

    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert [(call.id, call.function.name) for call in calls] == [
        ("call_1", "weather"),
        ("call_2", "clock"),
    ]
    assert json.loads(calls[0].function.arguments) == WEATHER.arguments
    assert final.choices[0].message.content == "The tool said 22"
    assert server.requests[0].body["tools"] == [tool]


def test_anthropic_tool_calls_and_their_results_are_exchanged() -> None:
    script: list[str | Reply | Fault] = [Reply("Let me look.", tool_calls=(WEATHER,)), "22 degrees"]
    tool: Any = {"name": "weather", "input_schema": SCHEMA}
    with ModelServer(script) as server, anthropic_client(server) as client:
        options: Any = {"model": "m", "max_tokens": 9, "tools": [tool]}
        response = client.messages.create(messages=HELLO, **options)
        text, call = response.content
        assert (text.type, call.type) == ("text", "tool_use")
        result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "22"}
        turns: Any = [
            *HELLO,
            {"role": "assistant", "content": response.content},
            {"role": "user", "content": [result]},
        ]
        final = client.messages.create(messages=turns, **options)

    assert (response.stop_reason, call.name) == ("tool_use", "weather")
    assert call.input == WEATHER.arguments
    assert final.content[0].type == "text"
    assert server.requests[1].body["messages"][-1]["content"] == [result]
    assert final.usage.input_tokens == 6 + 3 + 1  # the question, the text beside the call, the 22


def test_usage_model_and_finish_reason_can_be_scripted() -> None:
    reply = Reply("cut", usage=TokenUsage(100, 7, 40), finish_reason="length", model="m-0513")
    with ModelServer([reply], repeat=True) as server:
        completion, message = call_openai(server), call_anthropic(server)

    assert (completion.model, message.model) == ("m-0513", "m-0513")
    assert (completion.choices[0].finish_reason, message.stop_reason) == ("length", "max_tokens")
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (100, 7)
    assert completion.usage.prompt_tokens_details.cached_tokens == 40
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (60, 40)
    assert message.usage.output_tokens == 7


def test_a_reply_can_be_delayed_and_pipelined_requests_are_answered_in_order() -> None:
    with ModelServer([Reply("slow", delay=0.02), "quick"]) as server:
        request = post({"model": "m", "messages": HELLO})
        last = post({"model": "m", "messages": HELLO}, "/v1/chat/completions", "Connection: close")
        received = exchange(server, request + last)

    assert 0 < received.index(b'"slow"') < received.index(b'"quick"')
    assert server.connections == 1


# --- streams ---------------------------------------------------------------------------------


def test_openai_streams_text_and_usage() -> None:
    text = "It is  sunny,\nand extraordinarily so. "
    with ModelServer([text]) as server, openai_client(server) as client:
        stream = client.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        *chunks, last = list(stream)

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert len(chunks) > 5
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert {chunk.usage for chunk in chunks} == {None}
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (6, 6)


def test_openai_streams_tool_calls() -> None:
    with (
        ModelServer([Reply("Wait.", tool_calls=(WEATHER, CLOCK))]) as server,
        openai_client(server) as client,
        client.chat.completions.stream(model="m", messages=HELLO) as stream,
    ):
        event_types = [event.type for event in stream]
        choice = stream.get_final_completion().choices[0]

    calls = choice.message.tool_calls
    assert calls is not None
    assert [json.loads(call.function.arguments) for call in calls] == [
        WEATHER.arguments,
        CLOCK.arguments,
    ]
    assert [(call.id, call.function.name) for call in calls][1] == ("call_2", "clock")
    assert (choice.message.content, choice.finish_reason) == ("Wait.", "tool_calls")
    assert event_types.count("tool_calls.function.arguments.delta") > 3


def test_anthropic_streams_text_and_tool_calls() -> None:
    with (
        ModelServer([Reply("One moment, please.", tool_calls=(WEATHER, CLOCK))]) as server,
        anthropic_client(server) as client,
        client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream,
    ):
        event_types = [event.type for event in stream]
        message = stream.get_final_message()

    text, first, second = message.content
    assert text.type == "text"
    assert text.text == "One moment, please."
    assert first.type == second.type == "tool_use"
    assert (first.input, second.input) == (WEATHER.arguments, {})
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (6, 7)
    assert event_types.count("input_json") > 3
    assert (event_types[0], event_types[-1]) == ("message_start", "message_stop")


def test_empty_streams_end_properly() -> None:
    with ModelServer([Reply(), Reply(tool_calls=(CLOCK,)), Reply()]) as server:
        assert [chunk.choices[0].delta.content for chunk in drain_openai(server)] == ["", None]
        assert drain_openai(server)[0].choices[0].delta.content is None
        assert [event.type for event in drain_anthropic(server)] == [
            "message_start",
            "message_delta",
            "message_stop",
        ]


# --- async, under asyncio and trio -----------------------------------------------------------


# The SDK stops at `[DONE]` and leaves its generators to the collector; trio warns about that.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
@pytest.mark.anyio
async def test_async_openai_answers_streams_and_keeps_its_connection() -> None:
    with ModelServer(["It is sunny."], repeat=True) as server:
        async with openai.AsyncOpenAI(
            base_url=server.openai_base_url, api_key="k", max_retries=0, timeout=TIMEOUT
        ) as client:
            plain = await client.chat.completions.create(model="m", messages=HELLO)
            stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
            parts = [chunk.choices[0].delta.content or "" async for chunk in stream]

    assert plain.choices[0].message.content == "".join(parts) == "It is sunny."
    assert (server.connections, len(server.requests)) == (1, 2)


@pytest.mark.anyio
async def test_async_anthropic_answers_streams_and_keeps_its_connection() -> None:
    from anthropic import AsyncAnthropic

    with ModelServer([Reply("Look:", tool_calls=(WEATHER,))], repeat=True) as server:
        async with AsyncAnthropic(
            base_url=server.anthropic_base_url, api_key="k", max_retries=0, timeout=TIMEOUT
        ) as client:
            plain = await client.messages.create(model="m", max_tokens=9, messages=HELLO)
            async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
                streamed = await stream.get_final_message()

    assert plain.content[1].type == streamed.content[1].type == "tool_use"
    assert plain.content[1].input == streamed.content[1].input == WEATHER.arguments
    assert (server.connections, len(server.requests)) == (1, 2)


@pytest.mark.anyio
async def test_many_concurrent_connections_are_all_answered() -> None:
    request = post({"model": "m", "messages": HELLO})
    answered: list[bytes] = []

    async def send_request(port: int) -> None:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(request)
            answered.append(await stream.receive())
            await all_answered.wait()

    with ModelServer(["yes"], repeat=True) as server, anyio.fail_after(TIMEOUT):
        all_answered = anyio.Event()
        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(send_request, int(server.url.rsplit(":", 1)[1]))
            while len(answered) < 200:  # noqa: ASYNC110 - polling is the simplest way
                await anyio.sleep(0.001)
            all_answered.set()

    assert server.connections == 200
    assert all(reply.startswith(b"HTTP/1.1 200 OK\r\n") for reply in answered)
    assert [request.number for request in server.requests] == list(range(1, 201))


# --- faults ----------------------------------------------------------------------------------


@BOTH_SDKS
def test_a_429_has_retry_after(call: Call, sdk: Any) -> None:
    fault = Fault("status", 429, retry_after=1.5, message="slow down")
    with (
        ModelServer([fault]) as server,
        pytest.raises(sdk.RateLimitError, match="slow down") as caught,
    ):
        call(server)

    assert caught.value.response.headers["retry-after"] == "1.5"
    assert caught.value.request_id == "req_1"


@pytest.mark.parametrize("status", [500, 503, 529])
@BOTH_SDKS
def test_a_server_error_has_its_status(call: Call, sdk: Any, status: int) -> None:
    with (
        ModelServer([Fault("status", status)]) as server,
        pytest.raises(sdk.InternalServerError, match="a scripted fault") as caught,
    ):
        call(server)

    assert caught.value.status_code == status


def test_the_sdk_retries_past_a_fault() -> None:
    script: list[str | Reply | Fault] = [Fault("status", 429, retry_after=0.001), "at last"]
    with ModelServer(script) as server, openai_client(server, max_retries=2) as client:
        completion = client.chat.completions.create(model="m", messages=HELLO)

    assert completion.choices[0].message.content == "at last"
    assert [request.number for request in server.requests] == [1, 2]


def test_a_hang_ends_in_the_sdks_timeout() -> None:
    import anthropic

    with ModelServer([Fault("hang")], repeat=True) as server:
        with openai_client(server, timeout=0.05) as client, pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model="m", messages=HELLO)
        with (
            anthropic_client(server, timeout=0.05) as other,
            pytest.raises(anthropic.APITimeoutError),
        ):
            other.messages.create(model="m", max_tokens=9, messages=HELLO)
        late = time.monotonic() + TIMEOUT
        while len(server.requests) < 2 and time.monotonic() < late:
            time.sleep(0.001)  # the client's timeout may end before the server reads

    assert len(server.requests) == 2


@pytest.mark.parametrize("kind", ["reset", "close", "garbage"])
@BOTH_SDKS
def test_a_lost_connection_is_a_connection_error(call: Call, sdk: Any, kind: Any) -> None:
    with ModelServer([Fault(kind)]) as server, pytest.raises(sdk.APIConnectionError):
        call(server)


def test_a_reset_sends_rst_and_a_close_does_not() -> None:
    request = post({"model": "m", "messages": HELLO})
    with ModelServer([Fault("reset"), Fault("close")]) as server:
        with pytest.raises(ConnectionResetError):
            exchange(server, request)
        assert exchange(server, request) == b""


@BOTH_SDKS
def test_malformed_json_is_an_error_of_the_sdk(call: Call, sdk: Any) -> None:
    with (
        ModelServer([Fault("malformed")]) as server,
        pytest.raises(json.JSONDecodeError),
    ):
        call(server)


@BOTH_SDKS
def test_a_truncated_answer_is_an_error_of_the_sdk(call: Call, sdk: Any) -> None:
    with (
        ModelServer([Fault("truncated")]) as server,
        pytest.raises(sdk.APIConnectionError),
    ):
        call(server)


@BOTH_STREAMS
def test_an_interrupted_stream_is_an_error_of_the_sdk(drain: Call, sdk: Any) -> None:
    with (
        ModelServer([Fault("truncated")]) as server,
        pytest.raises((sdk.APIConnectionError, httpx2.RemoteProtocolError)),
    ):
        drain(server)


@BOTH_STREAMS
def test_a_malformed_stream_is_an_error_of_the_sdk(drain: Call, sdk: Any) -> None:
    with (
        ModelServer([Fault("malformed")]) as server,
        pytest.raises(json.JSONDecodeError),
    ):
        drain(server)


def test_a_truncated_answer_has_half_of_its_announced_length() -> None:
    with ModelServer([Fault("truncated", message="long " * 100)]) as server:
        head, _, body = exchange(server, post({"model": "m", "messages": HELLO})).partition(
            b"\r\n\r\n"
        )

    announced = int(head.partition(b"content-length: ")[2].split()[0])
    assert 0 < len(body) < announced


# --- invalid requests ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"messages": HELLO}, "provide a model"),
        ({"model": "m"}, "Missing required parameter: 'messages'"),
        ({"model": "m", "messages": []}, "non-empty array"),
        ({"model": "", "messages": HELLO}, "provide a model"),
        ([1], "not a JSON object"),
        (b"{", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b'"\xff"', "not a JSON object"),
    ],
)
def test_requests_that_openai_refuses_are_refused(body: object, problem: str) -> None:
    with ModelServer(["unused"]) as server:
        data = post(body, "/v1/chat/completions", "connection: close")
        status, error = status_and_error(server, data)

    assert (status, error["type"]) == (400, "invalid_request_error")
    assert problem in error["message"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"messages": HELLO, "max_tokens": 1}, "model: Field required"),
        ({"model": "m", "max_tokens": 1}, "messages: Field required"),
        ({"model": "m", "messages": HELLO}, "max_tokens: Field required"),
        ({"model": 1, "messages": HELLO, "max_tokens": 1}, "valid string"),
        ({"model": "m", "messages": "hi", "max_tokens": 1}, "at least one message"),
    ],
)
def test_requests_that_anthropic_refuses_are_refused(body: object, problem: str) -> None:
    with ModelServer(["unused"]) as server:
        headers = ("anthropic-version: 2023-06-01", "connection: close")
        status, error = status_and_error(server, post(body, "/v1/messages", *headers))

    assert (status, error["type"]) == (400, "invalid_request_error")
    assert problem in error["message"]


@pytest.mark.parametrize(("version", "status"), [("2023-06-01", 200), ("2026-10-21", 400)])
def test_anthropic_accepts_a_temperature_only_for_older_models(version: str, status: int) -> None:
    body = {"model": "m", "messages": HELLO, "max_tokens": 1, "temperature": 1.0}
    headers = (f"anthropic-version: {version}", "connection: close")
    with ModelServer(["hi"]) as server:
        received = exchange(server, post(body, "/v1/messages", *headers))

    assert int(received.split()[1]) == status


def test_anthropic_requires_its_version_header() -> None:
    with ModelServer(["unused"]) as server:
        data = post({"model": "m"}, "/v1/messages", "connection: close")
        assert "anthropic-version" in status_and_error(server, data)[1]["message"]


def test_unknown_paths_and_methods_are_answered_in_the_callers_format() -> None:
    import anthropic

    with ModelServer(["unused"]) as server:
        with (
            openai_client(server) as client,
            pytest.raises(openai.NotFoundError, match="/v1/models"),
        ):
            client.models.list()
        with anthropic_client(server) as other, pytest.raises(anthropic.NotFoundError) as caught:
            other.models.list()
        get = b"GET /v1/messages?x=1 HTTP/1.1\r\nconnection: close\r\n\r\n"
        assert status_and_error(server, get)[0] == 405

    assert caught.value.type == "not_found_error"
    assert [request.path for request in server.requests][2] == "/v1/messages"


@BOTH_SDKS
def test_a_wrong_key_is_refused_if_one_is_required(call: Call, sdk: Any) -> None:
    with (
        ModelServer(["unused"], require_key="secret") as server,
        pytest.raises(sdk.AuthenticationError),
    ):
        call(server)


def test_the_right_key_is_accepted_and_not_stored() -> None:
    body = {"model": "m", "messages": HELLO, "max_tokens": 1}
    headers = ("X-Api-Key: secret", "anthropic-version: 2023-06-01", "connection: close")
    with ModelServer(["hi"], repeat=True, require_key="secret") as server:
        with openai_client(server, api_key="secret") as client:
            client.chat.completions.create(model="m", messages=HELLO)
        with anthropic_client(server, api_key="secret") as other:
            other.messages.create(model="m", max_tokens=9, messages=HELLO)
        assert exchange(server, post(body, "/v1/messages", *headers)).startswith(b"HTTP/1.1 200")

    assert "secret" not in repr(server.requests)
    assert server.requests[0].headers["authorization"] == "***"
    assert server.requests[2].headers["x-api-key"] == "***"
    assert server.requests[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nspace : x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * 65536, 431),
    ],
)
def test_invalid_http_requests_are_refused(data: bytes, status: int) -> None:
    with (
        ModelServer([]) as server,
        connect(server) as peer,
    ):
        peer.sendall(data)
        assert int(peer.recv(65536).split()[1]) == status

    assert server.requests == ()


def test_a_request_may_arrive_byte_by_byte_and_repeat_a_header() -> None:
    data = post({"model": "m", "messages": HELLO}, "/v1/chat/completions", "x-a: 1", "X-A: 2")
    with ModelServer(["yes"]) as server, connect(server) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(len(data)):
            peer.sendall(data[index : index + 1])
        assert peer.recv(65536).startswith(b"HTTP/1.1 200 OK")

    assert server.requests[0].headers["x-a"] == "1, 2"


# --- the script ------------------------------------------------------------------------------


def test_an_exhausted_script_is_an_error_that_is_not_retried() -> None:
    with ModelServer(["only one"]) as server, openai_client(server, max_retries=2) as client:
        client.chat.completions.create(model="m", messages=HELLO)
        with pytest.raises(openai.InternalServerError, match="used up at request 2"):
            client.chat.completions.create(model="m", messages=HELLO)

    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (lambda request: request.body["absent"], "KeyError: 'absent'"),
        (lambda request: 42, "expected `str`, `Reply` or `Fault` as what the script returned"),
        ([Reply(tool_calls=(ToolCall("1", "f", {"x": object()}),))], "TypeError"),
    ],
)
def test_an_error_of_the_script_is_sent_to_the_client(script: Any, problem: str) -> None:
    with (
        ModelServer(script) as server,
        openai_client(server, max_retries=2) as client,
        pytest.raises(openai.InternalServerError, match=problem),
    ):
        client.chat.completions.create(model="m", messages=HELLO)

    assert len(server.requests) == 1


async def an_async_script(request: ServedRequest) -> str:
    return "too late"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ModelServer("Paris"), "pass one reply as"),
        (lambda: ModelServer(7), "expected a sequence"),  # type: ignore[arg-type]
        (lambda: ModelServer([7]), r"script\[0\]"),  # type: ignore[list-item]
        (lambda: ModelServer([], repeat=True), "empty `script`"),
        (lambda: ModelServer(an_async_script), "plain function"),  # type: ignore[arg-type]
        (lambda: ModelServer([], tls=True), "ssl.SSLContext"),  # type: ignore[arg-type]
        (lambda: ModelServer([], tls=ssl.create_default_context()), "PROTOCOL_TLS_SERVER"),
        (lambda: ModelServer([]).url, "not started"),
        (lambda: Fault("explode"), "`hang`"),  # type: ignore[arg-type]
        (lambda: Fault("status", 200), "400 to 599"),
        (lambda: Fault("status", 429, retry_after=-1), "Fault.retry_after"),
        (lambda: Reply(delay=float("nan")), "Reply.delay"),
        (lambda: Reply(usage=3), "Reply.usage"),  # type: ignore[arg-type]
        (lambda: Reply(tool_calls="f"), "Reply.tool_calls"),  # type: ignore[arg-type]
        (lambda: Reply(text=None), "Reply.text"),  # type: ignore[arg-type]
    ],
)
def test_misuse_is_refused_at_construction(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make()


# --- start and shutdown ----------------------------------------------------------------------


def test_closing_ends_every_connection_and_the_thread() -> None:
    received = threading.Event()

    def hang(request: ServedRequest) -> Fault:
        received.set()
        return Fault("hang")

    others = set(threading.enumerate())  # e.g. that of the demo model, which keeps running
    with ModelServer(hang) as server, connect(server) as busy, connect(server) as idle:
        busy.sendall(post({"model": "m", "messages": HELLO}))
        assert received.wait(TIMEOUT)
        server.close()
        assert (busy.recv(1), idle.recv(1)) == (b"", b"")
        with pytest.raises(ConnectionRefusedError):
            connect(server)

    remaining = {thread.name for thread in threading.enumerate() if thread not in others}
    assert "wink-model-server" not in remaining
    assert len(server.requests) == 1  # still available


def test_a_client_may_disconnect_before_a_delayed_reply() -> None:
    received = threading.Event()

    def slow(request: ServedRequest) -> Reply:
        received.set()
        return Reply("never heard", delay=3600)

    with (
        ModelServer(slow) as server,
        connect(server) as peer,
    ):
        peer.sendall(post({"model": "m", "messages": HELLO}))
        assert received.wait(TIMEOUT)


def test_a_server_starts_once() -> None:
    with ModelServer([]) as server:
        assert server.url.startswith("http://127.0.0.1:")
    with pytest.raises(UsageError, match="only once"), server:
        pass


def test_tls_certificates_are_verified_and_connections_can_be_reset(
    tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    import anthropic

    with ModelServer(["sealed", Fault("reset"), "sealed"], tls=tls) as server:
        assert server.url.startswith("https://")
        with openai_client(
            server, http_client=openai.DefaultHttpxClient(verify=trusting)
        ) as client:
            answer = client.chat.completions.create(model="m", messages=HELLO)
            with pytest.raises(openai.APIConnectionError):
                client.chat.completions.create(model="m", messages=HELLO)
        with anthropic_client(
            server, http_client=anthropic.DefaultHttpxClient(verify=trusting)
        ) as other:
            message = other.messages.create(model="m", max_tokens=9, messages=HELLO)
        with pytest.raises(openai.APIConnectionError):  # the client does not trust this authority
            call_openai(server)

    assert answer.choices[0].message.content == "sealed"
    assert message.content[0].type == "text"


def test_tls_closes_despite_a_client_that_never_finishes_its_handshake(tls: ssl.SSLContext) -> None:
    with ModelServer([], tls=tls) as server, connect(server) as silent:
        server.close()
        with suppress(ConnectionResetError):  # if it was not even accepted
            assert silent.recv(1) == b""
