"""What a hostile server can make the SDK adapters do: nothing that costs much memory or a key."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, repeat
from typing import Any

import anyio
import pytest

from tests.adapters.peak_memory import second_call
from weakincentives.adapters import ModelRequest
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.chat import ChatMessage
from weakincentives.errors import ProviderError

TIMEOUT = 60.0  # seconds, after which something hangs
MB = 1 << 20
ADAPTERS = pytest.mark.parametrize("name", ["openai", "anthropic"])


@contextmanager
def serving(*answers: Iterable[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Serve these pieces, one answer per connection; yield the URL and the received requests."""
    requests: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, suppress(OSError):  # a client may hang up early
                received = b""
                while not received.endswith(b"}"):  # a whole request: an object in JSON
                    received += peer.recv(65536)
                requests.append(received)
                for piece in answer:
                    peer.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "connection: close", "", "")).encode()


JSON, EVENTS = "content-type: application/json", "content-type: text/event-stream"
REFUSED = [head(JSON, "content-length: 2", status="400 Bad Request"), b"{}"]


def answer_of(name: str, url: str, stream: bool = False) -> Any:
    kind: Any = {"openai": OpenAIAdapter, "anthropic": AnthropicAdapter}[name]
    adapter = kind("m", base_url=url, stream=stream, retries=0)
    return anyio.run(adapter.ask, ModelRequest(model="m", messages=(ChatMessage("user", "Hi"),)))


@cache
def bomb() -> bytes:
    return gzip.compress(bytes(150 * MB), 1)


def endless_event() -> Iterator[bytes]:
    return chain([head(EVENTS), b"data: "], repeat(b"x" * MB))


def endless_events() -> Iterator[bytes]:
    """Yield events of an endless text: for OpenAI's SDK, and with a name also for Anthropic's."""

    def event(kind: str, **more: Any) -> bytes:
        about = {"type": kind, "choices": [{"index": 0, "delta": {"content": "x" * 100_000}}]}
        return f"event: {kind}\ndata: {json.dumps({**about, **more})}\n\n".encode()

    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"content": [], "model": "m", "role": "assistant", "usage": usage}
    delta = {"type": "text_delta", "text": "x" * 100_000}
    return chain(
        [head(EVENTS), event("message_start", message=message)],
        [event("content_block_start", index=0, content_block={"type": "text", "text": ""})],
        repeat(event("content_block_delta", index=0, delta=delta)),
    )


@ADAPTERS
@pytest.mark.parametrize(
    ("answer", "stream", "error", "max_mb"),
    [
        (lambda: chain([head(JSON)], repeat(b" " * MB)), False, "more than 67,108,864 bytes", 150),
        (
            lambda: chain([head(JSON, status="500 Oh")], repeat(b" " * MB)),
            False,
            "more than 67,108,864 bytes",
            150,
        ),
        (
            lambda: [head(JSON, "content-encoding: gzip"), bomb()],
            False,
            "a compressed answer (gzip, status 200)",
            50,
        ),
        (endless_event, True, "an event of more than 8,388,608 bytes", 150),
        (endless_events, True, "more than 268,435,456 bytes", 600),
    ],
    ids=["endless", "endless error", "gzip bomb", "endless event", "endless events"],
)
def test_no_answer_costs_much_memory(
    name: str, answer: Callable[[], Iterable[bytes]], stream: bool, error: str, max_mb: int
) -> None:
    with serving(REFUSED, answer()) as (url, _):
        cost, message = second_call(name, url, stream)

    assert f"False expected an answer from {name} for `m`, got {error}" in message
    assert cost < max_mb  # MB


@ADAPTERS
@pytest.mark.parametrize("place", ["/elsewhere", "http://127.0.0.1:1/", "http://[bad", ""])
@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary Redirect", "308 Permanent"])
def test_no_redirect_is_followed(name: str, place: str, status: str) -> None:
    answer = [head(f"location: {place}", "content-length: 0", status=status)]
    with serving(answer, answer) as (url, requests):
        with pytest.raises(ProviderError, match=r"got a redirect .* give .* as `base_url`") as no:
            answer_of(name, url)
        assert len(requests) == 1

    assert (no.value.retryable, no.value.status) == (False, int(status[:3]))


@ADAPTERS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_compression_is_not_requested(name: str, stream: bool) -> None:
    with serving(REFUSED) as (url, requests), pytest.raises(ProviderError):
        answer_of(name, url, stream)

    assert b"accept-encoding: identity\r\n" in requests[0].lower()


@ADAPTERS
@pytest.mark.parametrize(("status", "again"), [(429, True), (503, True), (400, False)])
def test_a_compressed_error_keeps_its_status(name: str, status: int, again: bool) -> None:
    answer = [head("content-encoding: br", "content-length: 2", status=f"{status} Oh"), b"{}"]
    with serving(answer) as (url, _), pytest.raises(ProviderError, match="compressed") as no:
        answer_of(name, url)

    assert (no.value.retryable, no.value.status) == (again, status)


@pytest.mark.parametrize("index", [10**12, -1, 128, "zero", None])
def test_a_tool_call_with_an_absurd_index_is_refused(index: Any) -> None:
    call = {"index": index, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    event = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "stop"}]}
    answer = [head(EVENTS), b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n"]
    with serving(answer) as (url, _), pytest.raises(ProviderError, match="cannot be read"):
        answer_of("openai", url, stream=True)


@ADAPTERS
def test_a_deeply_nested_answer_is_refused(name: str) -> None:
    answer = [head(JSON, "content-length: 100000"), b"[" * 100_000]
    with serving(answer) as (url, _), pytest.raises(ProviderError, match="cannot be read"):
        answer_of(name, url)
