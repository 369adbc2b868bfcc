"""The fast path sends what the SDK sends, keeps its connections, and names every failure."""

from __future__ import annotations

import gc
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import pytest

from weakincentives.adapters import (
    ModelReply,
    ModelRequest,
    ModelSettings,
    ToolSpec,
    http_pool as pool_module,
    http_stream as stream_module,
)
from weakincentives.adapters.http import HTTPAdapter
from weakincentives.chat import ChatMessage, TokenUsage, ToolCall
from weakincentives.errors import MissingExtraError, ProviderError, UsageError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.testing import FakeClock, Fault, ModelServer, Reply, ServedRequest

TIMEOUT = 60.0  # seconds, after which something hangs
KEY = "sk-very-secret"

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def adapter(server: ModelServer, **options: Any) -> HTTPAdapter[Any]:
    return HTTPAdapter(
        "m", retries=0, base_url=server.openai_base_url, **{"timeout": TIMEOUT} | options
    )


def asking(text: str = "Capital of France?", **more: Any) -> ModelRequest:
    return ModelRequest(model="m", messages=(ChatMessage("user", text),), **more)


async def ask(
    adapter: HTTPAdapter[Any], text: str = "Capital of France?", **more: Any
) -> ModelReply:
    return await adapter.ask(asking(text, **more))


async def failure(adapter: HTTPAdapter[Any], text: str = "Capital of France?") -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(adapter, text)
    return caught.value


def question_of(request: ServedRequest) -> str:
    """Return the last message that the model got."""
    return str(request.body["messages"][0]["content"])


async def wait_until(true: Callable[[], object]) -> None:
    with anyio.fail_after(TIMEOUT):
        while not true():  # noqa: ASYNC110 - what another thread or the kernel does has no event
            await anyio.sleep(0.001)


@contextmanager
def serving_bytes(*answers: bytes, then_close: bool = True) -> Iterator[str]:
    """Serve these bytes, one answer per request, each on a new connection; yield the URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                with suppress(OSError):
                    peer.sendall(answer)
                if not then_close:
                    peer.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.close()
        thread.join(TIMEOUT)


def http_response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", "")
    return "\r\n".join(lines).encode() + body


HELLO = b'{"choices": [{"message": {"content": "hello"}}]}'


# --- messages ------------------------------------------------------------------------------


async def test_a_reply_has_text_usage_reason_model_and_time() -> None:
    scripted = Reply(
        "Paris", usage=TokenUsage(7, 2, 3), finish_reason="length", model="m-1", delay=0.02
    )
    with ModelServer([scripted]) as server:
        reply = await ask(adapter(server))

    assert reply.message == ChatMessage("assistant", "Paris")
    assert reply.usage == TokenUsage(7, 2, 3)
    assert (reply.finish_reason, reply.model, reply.cached) == ("length", "m-1", False)
    assert reply.latency_ms is not None
    assert 20 <= reply.latency_ms < TIMEOUT * 1000


async def test_the_request_carries_messages_tools_schema_and_settings() -> None:
    call = ToolCall("1", "weather", {"city": "Zürich"})
    settings = ModelSettings(
        temperature=0.5, max_tokens=9, top_p=0.9, stop=("END",), seed=3, extra={"top_k": 40}
    )
    request = ModelRequest(
        model="m",
        messages=(
            ChatMessage("system", "Be brief."),
            ChatMessage("user", "Weather?", name="ann"),
            ChatMessage("assistant", tool_calls=(call,)),
            ChatMessage("tool", "rain", tool_call_id="1", name="weather"),
        ),
        tools=(ToolSpec("weather", "Tells it.", {"type": "object"}),),
        output_name="my answer",
        output_schema={"type": "object"},
        settings=settings,
    )
    with ModelServer(["wet"]) as server:
        await adapter(server).ask(request)

    function = {"name": "weather", "arguments": '{"city":"Zürich"}'}
    assert server.requests[0].body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?", "name": "ann"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
            },
            {"role": "tool", "content": "rain", "tool_call_id": "1"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "Tells it.",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "my_answer", "schema": {"type": "object"}, "strict": False},
        },
        "temperature": 0.5,
        "max_tokens": 9,
        "top_p": 0.9,
        "seed": 3,
        "stop": ["END"],
        "top_k": 40,
    }


@dataclass(frozen=True)
class City:
    city: str


@dataclass(frozen=True)
class Weather:
    sky: str


async def test_a_prompt_with_a_tool_ends_in_structured_output() -> None:
    tool = Tool[City, Weather](
        name="weather", description="Tells it.", handler=lambda params: Weather("rain")
    )
    section = MarkdownSection(title="Q", template="Weather in Paris?", key="q", tools=[tool])
    prompt = Prompt(PromptTemplate[Weather](ns="t", key="w", sections=[section]))
    script = [Reply(tool_calls=(ToolCall("1", "weather", {"city": "Paris"}),)), '{"sky": "rain"}']
    with ModelServer(script) as server:
        response = await adapter(server).evaluate_async(prompt)

    assert response.output == Weather("rain")
    assert response.finish_reason == "stop"
    assert [m["role"] for m in server.requests[1].body["messages"]][-2:] == ["assistant", "tool"]
    assert server.connections == 1


async def test_deviations_of_servers_are_understood() -> None:
    call = b'{"function": {"name": "f", "arguments": %b}}'
    calls = b", ".join(
        call % arguments for arguments in (b'{"x": 1}', b'""', b"null", b'"{\\"x\\": 2}"')
    )
    body = b'{"choices": [{"message": {"content": null, "tool_calls": [%b]}}]}' % calls
    refusal = b'{"choices": [{"message": {"refusal": "No."}}], "usage": {"prompt_tokens": 3}}'
    with serving_bytes(http_response(body), http_response(refusal)) as url:
        http: HTTPAdapter[Any] = HTTPAdapter("m", retries=0, base_url=url)
        reply, refused = await ask(http), await ask(http)

    assert [c.arguments for c in reply.message.tool_calls] == [{"x": 1}, {}, {}, {"x": 2}]
    assert [c.id for c in reply.message.tool_calls] == [
        "call_1_0",
        "call_1_1",
        "call_1_2",
        "call_1_3",
    ]
    assert (reply.model, reply.usage, reply.finish_reason) == ("m", None, None)
    assert refused.message.content == "No."
    assert refused.usage == TokenUsage(3)


async def test_a_lone_surrogate_goes_out_and_comes_back() -> None:
    with serving_bytes(http_response(b'{"choices": [{"message": {"content": "\\ud800"}}]}')) as url:
        reply = await ask(HTTPAdapter("m", retries=0, base_url=url), "\ud800")

    assert reply.message.content == "\ud800"


def test_synchronous_code_shares_one_connection() -> None:
    section = MarkdownSection(title="Q", template="Capital of France?", key="q")
    prompt = Prompt(PromptTemplate[str](ns="t", key="q", sections=[section]))
    with ModelServer(["Paris", "Rome"]) as server:
        http = adapter(server)
        assert [http.evaluate(prompt).output for _ in range(2)] == ["Paris", "Rome"]

    assert server.connections == 1


# --- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reset", "close", "malformed", "truncated", "garbage"])
async def test_a_broken_answer_is_retryable_and_leaves_no_connection_behind(kind: Any) -> None:
    with ModelServer([Fault(kind), "Paris"]) as server:
        http = adapter(server)
        error = await failure(http)
        assert (await ask(http)).message.content == "Paris"

    assert error.retryable
    assert "expected" in str(error)
    assert len(server.requests) == 2  # it was not resent


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 422, 429, 500, 503, 529])
async def test_a_status_decides_whether_an_error_is_retryable(status: int) -> None:
    with ModelServer([Fault("status", status, message="because"), "Paris"]) as server:
        http = adapter(server)
        error = await failure(http)
        await ask(http)

    assert error.retryable is (status in {408, 409, 429} or status >= 500)
    assert (error.status, error.retry_after) == (status, None)
    assert "because" in str(error)
    assert server.connections == 1  # an error is a complete answer, too


async def test_retry_after_in_seconds() -> None:
    with ModelServer([Fault("status", 429, retry_after=1.5)]) as server:
        error = await failure(adapter(server))

    assert (error.retryable, error.retry_after, error.status) == (True, 1.5, 429)


@pytest.mark.parametrize(
    ("value", "lowest", "highest"),
    [
        (lambda: format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True), 3000, 3600),
        (format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True), 0, 0),
        ("Wed, 01 Jan 2020 00:00:00 -0000", 0, 0),
        ("soon", None, None),
        ("-3", 0, 0),
        ("inf", None, None),
    ],
    ids=["in an hour", "past", "past, no zone", "words", "negative", "endless"],
)
async def test_retry_after_as_a_date_or_nonsense(value: Any, lowest: Any, highest: Any) -> None:
    value = value() if callable(value) else value
    with serving_bytes(http_response(b"", f"retry-after: {value}", status="503 Busy")) as url:
        error = await failure(HTTPAdapter("m", retries=0, base_url=url))

    assert error.retryable
    if lowest is None:
        assert error.retry_after is None
    else:
        assert error.retry_after is not None
        assert lowest <= error.retry_after <= highest


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"error": {"message": "no such model"}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"object": "error", "message": "no such model"}', "no such model"),
        (b'{"detail": "no such model"}', "no such model"),
        (b'{"detail": [{"loc": ["body"]}]}', '"loc"'),
        (b'{"error": {"code": 7}}', '"code"'),
        (b"<html>no such model</html>", "no such model"),
    ],
)
async def test_the_reason_of_an_error_is_found_in_the_body(body: bytes, says: str) -> None:
    with serving_bytes(http_response(body, status="404 Not Found")) as url:
        error = await failure(HTTPAdapter("m", retries=0, base_url=url))

    assert says in str(error)
    assert (error.retryable, error.retry_after) == (False, None)


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": []}',
        b'{"error": {"message": "200, and yet an error"}}',
        b'{"choices": [{"message": {"content": 3}}]}',
        b'{"choices": [{"message": {}}], "usage": {"prompt_tokens": -1}}',
        b'{"choices": [{"message": {"content": "\xff"}}]}',
        b"",
    ],
)
async def test_an_answer_that_is_not_a_completion_is_retryable(body: bytes) -> None:
    with serving_bytes(http_response(body)) as url:
        assert (await failure(HTTPAdapter("m", retries=0, base_url=url))).retryable


async def test_a_redirect_is_refused() -> None:
    answer = http_response(b"", "location: http://127.0.0.1:1/", status="307 Temporary Redirect")
    with serving_bytes(answer) as url:
        error = await failure(HTTPAdapter("m", retries=0, base_url=url))

    assert (error.retryable, error.status) == (False, 307)
    assert "redirect" in str(error)


async def test_a_refused_connection_is_retryable() -> None:
    with socket.socket() as closed_port:
        closed_port.bind(("127.0.0.1", 0))  # but does not listen
        url = f"http://127.0.0.1:{closed_port.getsockname()[1]}/v1"
        error = await failure(HTTPAdapter("m", retries=0, base_url=url))

    assert error.retryable
    assert "could not connect" in str(error)


async def test_a_timeout_is_retryable() -> None:
    with ModelServer(
        lambda request: Fault("hang") if question_of(request) == "?" else "Paris"
    ) as server:
        error = await failure(adapter(server, timeout=0.05), "?")
        assert (await ask(adapter(server))).message.content == "Paris"

    assert error.retryable
    assert "after 0.05 s" in str(error)


async def test_the_timeout_of_a_call_starts_with_that_call() -> None:
    replies: dict[str, Reply | Fault] = {"soon": Reply("soon", delay=0.2), "never": Fault("hang")}
    with (
        ModelServer(lambda request: replies[question_of(request)]) as server,
        anyio.fail_after(TIMEOUT),
    ):
        http, reply = adapter(server, timeout=0.3), None
        while reply is None:  # usually the first time, unless the machine is busy
            with suppress(ProviderError):
                reply = await ask(http, "soon")
        connections, start = server.connections, time.monotonic()
        error = await failure(http, "never")
        seconds = time.monotonic() - start

    assert server.connections == connections  # the one whose first answer came in time
    assert "after 0.3 s" in str(error)
    assert seconds > 0.29


async def test_a_host_is_found_by_its_name() -> None:
    with ModelServer(["Paris"]) as server:
        url = server.openai_base_url.replace("127.0.0.1", "localhost")
        assert (await ask(HTTPAdapter("m", retries=0, base_url=url))).message.content == "Paris"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with ModelServer(["Paris"]) as server:
        assert (await ask(adapter(server))).message.content == "Paris"


# --- the key -----------------------------------------------------------------------------------


async def test_the_key_is_read_at_each_call_and_never_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ModelServer(["one", "two"], require_key=KEY) as server:
        http = adapter(server)
        assert (await failure(http)).status == 401
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
        assert (await ask(http)).message.content == "one"
        assert (await failure(adapter(server, key_variable=None))).status == 401
        monkeypatch.setenv("OTHER_KEY", KEY)
        monkeypatch.delenv("OPENAI_API_KEY")
        assert (await ask(adapter(server, key_variable="OTHER_KEY"))).message.content == "two"

    assert KEY not in repr(http)


async def test_a_key_is_never_part_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ModelServer([Fault("status", 400, message=f"Incorrect key: {KEY}")]) as server:
        error = await failure(adapter(server))
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\r\nx: y")
        broken = await failure(adapter(server))

    assert "Incorrect key: ***" in str(error)
    assert "printable ASCII" in str(broken)
    assert KEY not in str(broken)


async def test_a_key_goes_over_plain_http_only_to_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def only_this_machine(host: Any, *more: Any, **options: Any) -> Any:
        if "wink.invalid" in str(host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return getaddrinfo(host, *more, **options)

    getaddrinfo = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", only_this_machine)  # so that no real network is used
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    options: dict[str, Any] = {"base_url": "http://wink.invalid/v1", "timeout": TIMEOUT}
    refused = await failure(HTTPAdapter("m", retries=0, **options))
    allowed = await failure(HTTPAdapter("m", retries=0, allow_plain=True, **options))
    without = await failure(HTTPAdapter("m", retries=0, key_variable=None, **options))
    with ModelServer(["Paris"]) as server:
        url = server.openai_base_url.replace("127.0.0.1", "localhost")
        await ask(HTTPAdapter("m", retries=0, base_url=url))

    assert not refused.retryable
    assert "allow_plain=True" in str(refused)
    assert "could not connect" in str(allowed)
    assert "could not connect" in str(without)


# --- connections -------------------------------------------------------------------------------


async def test_a_connection_is_used_again() -> None:
    with ModelServer(["Paris"], repeat=True) as server:
        http = adapter(server)
        for _ in range(20):
            await ask(http)

    assert (len(server.requests), server.connections) == (20, 1)


async def test_the_connection_used_last_is_used_next() -> None:
    with ModelServer(["Paris"], repeat=True) as server:
        http = adapter(server)
        await ask_concurrently(http, 5)
        (pool,) = http._client._pools.values()  # type: ignore[attr-defined]
        before = list(pool.idle)
        await ask(http)

    assert len(before) == server.connections
    assert pool.idle == before


async def ask_concurrently(http: HTTPAdapter[Any], count: int) -> list[str]:
    answers: list[str] = []

    async def one(number: int) -> None:
        answers.append((await ask(http, str(number))).message.content)

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(one, number)
    return answers


def echo(request: ServedRequest) -> Reply:
    return Reply(question_of(request), delay=0.01)


async def test_200_concurrent_calls_each_get_their_own_answer() -> None:
    with ModelServer(echo) as server:
        http = adapter(server)
        for _ in range(3):
            assert sorted(await ask_concurrently(http, 200), key=int) == [
                str(n) for n in range(200)
            ]

    assert len(server.requests) == 600
    assert server.connections <= 200


async def test_the_limit_of_connections_is_kept() -> None:
    with ModelServer(echo) as server:
        assert len(await ask_concurrently(adapter(server, max_connections=3), 30)) == 30

    assert server.connections == 3


async def test_a_connection_that_died_while_idle_is_noticed_before_sending() -> None:
    with serving_bytes(
        http_response(HELLO), http_response(HELLO)
    ) as url:  # closes each connection without announcing it
        http: HTTPAdapter[Any] = HTTPAdapter("m", retries=0, base_url=url, timeout=TIMEOUT)
        await ask(http)
        (pool,) = http._client._pools.values()  # type: ignore[attr-defined]
        await wait_until(lambda: not pool.idle[0].stream.is_idle)
        assert (await ask(http)).message.content == "hello"


async def test_a_connection_with_unexpected_data_is_not_reused() -> None:
    late = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            peer.sendall(http_response(HELLO))
            late.wait(TIMEOUT)
            peer.sendall(http_response(b"", status="408 Request Timeout"))
            second, _ = listener.accept()
            with second:
                second.recv(65536)
                second.sendall(http_response(HELLO))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        http: HTTPAdapter[Any] = HTTPAdapter("m", retries=0, base_url=url, timeout=TIMEOUT)
        await ask(http)
        late.set()
        (pool,) = http._client._pools.values()  # type: ignore[attr-defined]
        await wait_until(lambda: not pool.idle[0].stream.is_idle)
        assert (await ask(http)).message.content == "hello"
        thread.join(TIMEOUT)


@pytest.mark.parametrize("kind", ["reset", "close"])
async def test_a_kept_connection_that_ends_before_the_answer_is_replaced_once(kind: Any) -> None:
    with ModelServer(["one", Fault(kind), "two", Fault(kind), Fault(kind)]) as server:
        http = adapter(server)
        answers = [(await ask(http)).message.content for _ in range(2)]
        error = await failure(http)

    assert answers == ["one", "two"]
    assert error.retryable
    assert (len(server.requests), server.connections) == (5, 3)


@pytest.mark.parametrize("kind", ["truncated", "garbage", "malformed"])
async def test_a_call_is_not_sent_again_once_an_answer_began(kind: Any) -> None:
    with ModelServer(["one", Fault(kind), "never asked"]) as server:
        http = adapter(server)
        await ask(http)
        assert (await failure(http)).retryable

    assert len(server.requests) == 2


async def test_a_cancelled_call_closes_its_connection_and_the_next_one_works() -> None:
    with ModelServer([Fault("hang"), "Paris"]) as server:
        http = adapter(server, max_connections=1)
        async with anyio.create_task_group() as group:
            group.start_soon(ask, http)
            await wait_until(lambda: server.requests)
            group.cancel_scope.cancel()
        (pool,) = http._client._pools.values()  # type: ignore[attr-defined]
        assert pool.idle == []
        assert (await ask(http)).message.content == "Paris"
        await wait_until(lambda: len(server._open) == 1)

    assert server.connections == 2


async def test_a_cancelled_wait_for_a_connection_uses_none() -> None:
    with blocked_server() as (server, release):
        http = adapter(server, max_connections=1)
        async with anyio.create_task_group() as group:
            group.start_soon(ask, http, "first")
            await wait_until(lambda: server.requests)
            with anyio.CancelScope() as scope:
                group.start_soon(cancel_waiting_call, scope)
                await ask(http, "cancelled")
            release()
        assert (await ask(http, "next")).message.content == "next"

    assert scope.cancelled_caught
    assert [question_of(request) for request in server.requests] == ["first", "next"]
    assert server.connections == 1


async def test_waiting_for_a_connection_is_neither_latency_nor_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, latencies = FakeClock(), dict[str, float | None]()
    for module in (pool_module, stream_module):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", clock)

    async def one(text: str) -> None:
        latencies[text] = (await ask(http, text)).latency_ms

    with blocked_server() as (server, release):
        http = adapter(server, max_connections=1)
        async with anyio.create_task_group() as group:
            group.start_soon(one, "first")
            await wait_until(lambda: server.requests)
            group.start_soon(one, "second")
            await anyio.wait_all_tasks_blocked()
            await http.aclose()  # so that the second call opens a new connection
            clock.advance(2 * TIMEOUT)
            release()

    assert latencies == {"first": 2 * TIMEOUT * 1000, "second": 0}


@contextmanager
def blocked_server() -> Iterator[tuple[ModelServer, Callable[[], None]]]:
    """Yield a server that blocks until it is released and then echoes, and its release function."""
    free = threading.Event()

    def answer(request: ServedRequest) -> str:
        free.wait(TIMEOUT)
        return question_of(request)

    with ModelServer(answer) as server:
        yield server, free.set


async def cancel_waiting_call(scope: anyio.CancelScope) -> None:
    await anyio.wait_all_tasks_blocked()
    scope.cancel()


async def test_aclose_closes_what_is_idle_and_later_what_is_in_use() -> None:
    with ModelServer(["one", Reply("two", delay=0.1), "three"]) as server:
        http = adapter(server)
        await http.aclose()  # nothing yet
        await ask(http)
        await http.aclose()
        await wait_until(lambda: not server._open)
        async with anyio.create_task_group() as group:
            group.start_soon(ask, http)
            await wait_until(lambda: len(server.requests) == 2)
            await http.aclose()
        await wait_until(lambda: not server._open)
        assert (await ask(http)).message.content == "three"

    assert server.connections == 3


async def test_an_adapter_that_is_dropped_closes_its_connections() -> None:
    with ModelServer(["Paris"]) as server:
        http = adapter(server)
        await ask(http)
        assert len(server._open) == 1
        del http
        gc.collect()
        await wait_until(lambda: not server._open)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_end_of_the_event_loop_closes_what_is_idle(backend: str) -> None:
    with ModelServer(["Paris"], repeat=True) as server:
        http = adapter(server)
        for loops in (1, 2):
            anyio.run(ask_concurrently, http, 3, backend=backend)
            assert http._client._pools == {}  # type: ignore[attr-defined]
            anyio.run(wait_until, lambda: not server._open)
            assert server.connections <= 3 * loops
    del http  # without an event loop


def test_an_adapter_dropped_after_its_loop_was_closed_by_force_is_no_error() -> None:
    import asyncio

    with ModelServer(["Paris"]) as server:
        http = adapter(server)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask(http))
        pools = http._client._pools  # type: ignore[attr-defined]
        del http
        gc.collect()
        loop.run_until_complete(wait_until(lambda: not server._open))
        loop.close()
        pool_module._close_soon(pools)


# --- bodies ------------------------------------------------------------------------------------


async def test_a_chunked_answer_is_put_together_and_the_connection_kept() -> None:
    pieces = [HELLO[:10], HELLO[10:11], HELLO[11:]]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    answer = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    answer += b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    with serving_bytes(answer) as url:
        http: HTTPAdapter[Any] = HTTPAdapter("m", retries=0, base_url=url, timeout=TIMEOUT)
        assert (await ask(http)).message.content == "hello"
        (pool,) = http._client._pools.values()  # type: ignore[attr-defined]
        assert len(pool.idle) == 1


@pytest.mark.parametrize(
    "answer",
    [
        http_response(HELLO, "connection: close"),
        b"HTTP/1.0 200 OK\r\n\r\n" + HELLO,
        http_response(HELLO) + http_response(b"an unexpected answer"),
    ],
)
async def test_a_connection_that_cannot_be_reused_is_closed(answer: bytes) -> None:
    with serving_bytes(answer) as url:
        http: HTTPAdapter[Any] = HTTPAdapter("m", retries=0, base_url=url, timeout=TIMEOUT)
        assert (await ask(http)).message.content == "hello"
        (pool,) = http._client._pools.values()  # type: ignore[attr-defined]
        assert pool.idle == []


async def test_an_answer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_RESPONSE_BYTES", 1000)
    with serving_bytes(http_response(b"x" * 1001)) as url:
        error = await failure(HTTPAdapter("m", retries=0, base_url=url, timeout=TIMEOUT))

    assert not error.retryable
    assert "at most 1000 bytes" in str(error)


async def test_headers_without_end_are_refused() -> None:
    with serving_bytes(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 300_000) as url:
        assert (await failure(HTTPAdapter("m", retries=0, base_url=url, timeout=TIMEOUT))).retryable


async def test_a_long_conversation_goes_out_and_a_long_answer_comes_back() -> None:
    text = "wörd " * 400_000
    with ModelServer(lambda request: request.body["messages"][0]["content"]) as server:
        assert (await ask(adapter(server), text)).message.content == text


async def test_a_reset_in_the_middle_of_an_answer_is_retryable() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        peer.recv(65536)
        peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{")
        going.wait(TIMEOUT)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()

    going = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    http: HTTPAdapter[Any] = HTTPAdapter("m", retries=0, base_url=url, timeout=TIMEOUT)
    async with anyio.create_task_group() as group:

        async def one() -> None:
            assert (await failure(http)).retryable

        group.start_soon(one)
        await anyio.sleep(0.05)  # so that the first bytes arrive separately
        going.set()
    thread.join()
    listener.close()


# --- TLS ---------------------------------------------------------------------------------------


async def test_tls_keeps_connections_and_sends_the_key(
    tls: ssl.SSLContext, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ModelServer(["sealed"], repeat=True, require_key=KEY, tls=tls) as server:
        http = adapter(server, verify=trusting)
        for _ in range(5):
            assert (await ask(http)).message.content == "sealed"
        assert server.connections == 1
        assert len(await ask_concurrently(http, 50)) == 50


@pytest.mark.parametrize("kind", ["reset", "close", "truncated", "malformed", "garbage"])
async def test_a_failure_over_tls_names_its_cause(
    kind: Any, tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with ModelServer([Fault(kind), "sealed", Fault(kind), "sealed"], tls=tls) as server:
        http = adapter(server, verify=trusting)
        assert (await failure(http)).retryable
        assert (await ask(http)).message.content == "sealed"


async def test_tls_refuses_an_unknown_authority_and_another_name(
    tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with ModelServer(["sealed"], tls=tls) as server:
        unknown = await failure(adapter(server))
        other = server.openai_base_url.replace("127.0.0.1", "localhost")
        named = await failure(HTTPAdapter("m", retries=0, base_url=other, verify=trusting))
        assert server.requests == ()
        assert (await ask(adapter(server, verify=False))).message.content == "sealed"

    assert "certificate verify failed" in str(unknown)
    assert (unknown.retryable, named.retryable) == (False, False)


async def test_tls_to_a_plain_server_is_an_error(trusting: ssl.SSLContext) -> None:
    with serving_bytes(http_response(b"", status="400 Bad Request")) as url:
        secure = url.replace("http:", "https:")
        error = await failure(
            HTTPAdapter("m", retries=0, base_url=secure, verify=trusting, timeout=TIMEOUT)
        )

    assert not error.retryable


async def test_tls_to_a_server_that_hangs_up_is_an_error(trusting: ssl.SSLContext) -> None:
    with serving_bytes(b"") as url:
        secure = url.replace("http:", "https:")
        error = await failure(
            HTTPAdapter("m", retries=0, base_url=secure, verify=trusting, timeout=TIMEOUT)
        )

    assert error.retryable


# --- construction ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"base_url": "localhost:8000"}, "http://localhost:8000/v1"),
        ({"base_url": None}, "http://localhost:8000/v1"),
        ({"base_url": "http://"}, "base_url"),
        ({"base_url": "http://:80/v1"}, "base_url"),
        ({"base_url": "http://a b/v1"}, "base_url"),
        ({"base_url": "http://h:99999/v1"}, "Port"),
        ({"base_url": "http://h/v1#x"}, "base_url"),
        ({"base_url": "http://user:pass@h/v1"}, "no user or password"),
        ({"model": ""}, "`model`"),
        ({"timeout": 0}, "`timeout`"),
        ({"timeout": float("nan")}, "`timeout`"),
        ({"max_connections": 0}, "`max_connections`"),
        ({"verify": "ca.pem", "base_url": "https://h"}, "`verify`"),
        ({"settings": ModelSettings(extra={"stream": True})}, "stream"),
    ],
)
def test_misuse_is_refused_at_construction(change: dict[str, Any], says: str) -> None:
    options = {"model": "m", "base_url": "http://localhost:8000/v1"} | change
    with pytest.raises(UsageError, match=says) as caught:
        HTTPAdapter(options.pop("model"), **options)

    assert "pass@" not in str(caught.value)


async def test_a_query_in_the_address_is_kept() -> None:
    with ModelServer(["Paris"]) as server:
        url = f"{server.openai_base_url}/?api-version=1"
        assert (await ask(HTTPAdapter("m", retries=0, base_url=url))).message.content == "Paris"


@pytest.mark.parametrize(
    ("url", "host", "port", "header"),
    [
        ("http://[::1]:8000/v1", "::1", 8000, "[::1]:8000"),
        ("http://Host/v1", "host", 80, "Host"),
        ("https://host", "host", 443, "host"),
    ],
)
def test_a_url_is_parsed(url: str, host: str, port: int, header: str) -> None:
    from weakincentives.adapters.http import _parse_url

    origin, target, host_header = _parse_url(url, True)

    assert (origin.host, origin.port, host_header) == (host, port, header)
    assert target.endswith(b"/chat/completions")


def test_without_h11_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(MissingExtraError, match=r"\[http\]"):
        HTTPAdapter("m", retries=0, base_url="http://localhost:8000/v1")
