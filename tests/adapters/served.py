"""Requests, and servers that answer them with given bytes, for the tests of the SDK adapters."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from weakincentives import ChatMessage, ToolCall
from weakincentives.adapters import ModelRequest

__all__ = [
    "CITY",
    "CLOCK",
    "HELLO",
    "STREAMS",
    "TIMEOUT",
    "WEATHER",
    "as_json",
    "http",
    "request",
    "saying",
]

TIMEOUT = 60.0  # seconds, after which something hangs
HELLO = (ChatMessage("user", "What is the weather?"),)
WEATHER = ToolCall("call_1", "weather", {"city": "Zürich", "days": [1, 2]})
CLOCK = ToolCall("call_2", "clock", {})
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def request(**more: Any) -> ModelRequest:
    return ModelRequest(**({"model": "m", "messages": HELLO} | more))


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """Return an HTTP response with this body."""
    lines = (f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}")
    return "\r\n".join((*lines, "connection: close", "", "")).encode() + body


def as_json(value: object, *headers: str, status: str = "200 OK") -> bytes:
    """Return an HTTP response with this value as JSON."""
    return http(
        json.dumps(value).encode(), "content-type: application/json", *headers, status=status
    )


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """Answer every request with these bytes, for answers that `ModelServer` never gives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    received = b""
                    while b"\r\n\r\n" not in received:
                        received += peer.recv(65536)
                    head, _, body = received.partition(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    while len(body) < length:
                        body += peer.recv(65536)
                    peer.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(TIMEOUT)
