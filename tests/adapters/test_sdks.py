"""The behaviour that the adapters of both SDKs share, over real connections to a local server."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.adapters.served import CLOCK, STREAMS, TIMEOUT, WEATHER, request
from weakincentives import ChatMessage, TokenUsage
from weakincentives.adapters import ModelAdapter, ModelReply
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.errors import ProviderError
from weakincentives.testing import Fault, ModelServer, Reply

Connect = Callable[..., Any]

# The SDKs leave their generators to the garbage collector, which trio warns about.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    monkeypatch.setenv(f"{name.upper()}_API_KEY", "key-very-secret")
    monkeypatch.delenv(f"{name.upper()}_BASE_URL", raising=False)
    return name


@pytest.fixture
def connect(provider: str) -> Connect:
    """Return a function that makes an adapter for a server."""

    def make(server: ModelServer, **options: Any) -> ModelAdapter[Any]:
        options = {"timeout": TIMEOUT} | options
        if provider == "openai":
            return OpenAIAdapter("m", retries=0, base_url=server.openai_base_url, **options)
        return AnthropicAdapter("m", retries=0, base_url=server.anthropic_base_url, **options)

    return make


def ask_hello(adapter: Any) -> ModelReply:
    reply: ModelReply = anyio.run(adapter.ask, request())
    return reply


def error_of(connect: Connect, script: Any, **options: Any) -> ProviderError:
    with ModelServer(script) as server, pytest.raises(ProviderError) as caught:
        ask_hello(connect(server, **options))
    return caught.value


@STREAMS
def test_a_reply_is_the_same_whole_and_streamed(connect: Connect, stream: bool) -> None:
    scripted = Reply("It is  sunny.\n", usage=TokenUsage(100, 7, 40), model="m-0513")
    with ModelServer([scripted]) as server:
        reply = ask_hello(connect(server, stream=stream))

    assert reply.message == ChatMessage("assistant", "It is  sunny.\n")
    assert (reply.usage, reply.model) == (TokenUsage(100, 7, 40), "m-0513")
    assert reply.finish_reason == "stop"
    assert reply.latency_ms is not None
    assert 0 < reply.latency_ms < TIMEOUT * 1000


@STREAMS
def test_tool_calls_come_with_their_text(connect: Connect, stream: bool) -> None:
    with ModelServer([Reply("Wait.", tool_calls=(WEATHER, CLOCK))]) as server:
        reply = ask_hello(connect(server, stream=stream))

    assert reply.message == ChatMessage("assistant", "Wait.", tool_calls=(WEATHER, CLOCK))
    assert reply.finish_reason == "tool_calls"


@STREAMS
def test_an_empty_reply_is_accepted(connect: Connect, stream: bool) -> None:
    with ModelServer([Reply()]) as server:
        assert ask_hello(connect(server, stream=stream)).message == ChatMessage("assistant")


@STREAMS
@pytest.mark.parametrize("kind", ["reset", "close", "malformed", "truncated", "garbage"])
def test_a_broken_answer_is_retryable(
    provider: str, connect: Connect, kind: Any, stream: bool
) -> None:
    error = error_of(connect, [Fault(kind)], stream=stream)

    assert (error.retryable, error.status) == (True, None)
    assert f"{provider} for `m`" in str(error)


@STREAMS
def test_a_call_has_a_time_limit(connect: Connect, stream: bool) -> None:
    error = error_of(connect, [Fault("hang")], stream=stream, timeout=0.05)

    assert error.retryable
    assert "none within 0.05 s" in str(error)


@STREAMS
@pytest.mark.anyio
async def test_cancellation_passes_through_and_leaves_the_client_whole(
    connect: Connect, stream: bool
) -> None:
    with ModelServer([Fault("hang"), "still here"]) as server:
        adapter = connect(server, stream=stream)
        async with anyio.create_task_group() as group:
            group.start_soon(adapter.ask, request())
            with anyio.fail_after(TIMEOUT):
                while not server.requests:  # noqa: ASYNC110 - the server's thread has no event
                    await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        assert (await adapter.ask(request())).message.content == "still here"


@STREAMS
@pytest.mark.anyio
async def test_a_connection_is_kept_and_shared_by_adapters(connect: Connect, stream: bool) -> None:
    with ModelServer(["yes"], repeat=True) as server:
        for _ in range(3):
            adapter = connect(server, stream=stream)
            await adapter.ask(request())
            await adapter.ask(request())

        assert (server.connections, len(server.requests)) == (1, 6)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_event_loop_has_its_own_client_and_takes_it_along(
    connect: Connect, backend: str
) -> None:
    with ModelServer(["yes"], repeat=True) as server:
        adapter = connect(server)
        for _ in range(3):
            anyio.run(adapter.ask, request(), backend=backend)

        assert server.connections == 3
    gc.collect()  # a connection that is left open would be a ResourceWarning now
