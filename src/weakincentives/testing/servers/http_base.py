"""HTTP/1.1 for `ModelServer`, on asyncio; `internal/http_server.py` says why it has its own.

`RequestReader` does no I/O. A connection answers its requests one after another; a request body
must have a Content-Length, a response may be chunked.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Literal, NamedTuple, cast

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 seconds


class BadRequest(Exception):
    """Bytes that are not a valid request; the connection cannot be used after them."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Request(NamedTuple):
    """One request; header names are in lower case, the path is without the query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class HttpAnswer(NamedTuple):
    """The bytes to send, and what to do with the connection afterwards."""

    data: bytes = b""
    then: Literal["keep", "close", "reset", "hang"] = "keep"
    delay: float = 0.0


class RequestReader:
    """Turns received bytes into complete requests."""

    __slots__ = ("_buffer", "_head", "_length")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: tuple[str, str, dict[str, str]] | None = None
        self._length = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Request | None:
        """Return the next complete request, or None if more bytes are needed."""
        if self._head is None and not self._read_head():
            return None
        if len(self._buffer) < self._length:
            return None
        head, self._head = cast("tuple[str, str, dict[str, str]]", self._head), None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        return Request(*head, body)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if (len(self._buffer) if end < 0 else end) > MAX_HEAD_BYTES:
            raise BadRequest(431, f"expected at most {MAX_HEAD_BYTES} bytes of headers")
        if end < 0:
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        match first.split(" "):
            case [method, target, "HTTP/1.1"]:
                headers = _headers(lines)
            case [_, _, version] if version.startswith("HTTP/"):
                raise BadRequest(505, f"expected HTTP/1.1, got {version}")
            case _:
                raise BadRequest(400, "expected a request line")
        self._length = _length(headers)
        self._head = method, target.partition("?")[0], headers
        return True


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400, "expected `name: value` on every header line")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _length(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest(411, "expected a body with a Content-Length, got a transfer encoding")
    text = headers.get("content-length", "0")
    if not text.isdecimal():
        raise BadRequest(400, "expected a number as Content-Length")
    length = int(text) if len(text) < 20 else MAX_BODY_BYTES + 1
    if length > MAX_BODY_BYTES:
        raise BadRequest(413, f"expected a body of at most {MAX_BODY_BYTES} bytes")
    return length


def response(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a JSON response of known length."""
    return (
        _head(
            status, {"content-type": "application/json", **headers}, f"content-length: {len(body)}"
        )
        + body
    )


def chunked(events: Iterable[bytes], headers: Mapping[str, str]) -> bytes:
    """Return a stream of server-sent events, one chunk each."""
    start = _head(
        200, {"content-type": "text/event-stream", **headers}, "transfer-encoding: chunked"
    )
    chunks = (b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    return b"".join((start, *chunks, b"0\r\n\r\n"))


def _head(status: int, headers: Mapping[str, str], framing: str) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {_phrase(status)}\r\n{lines}{framing}\r\n\r\n".encode("latin-1")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # 529, for one
        return "Error"


class Connection(asyncio.Protocol):
    """Reads requests and does what `answer` returns for each. Is in `peers` while open."""

    def __init__(
        self,
        answer: Callable[[Request], HttpAnswer],
        refuse: Callable[[BadRequest], bytes],
        peers: set[Connection],
    ) -> None:
        self._answer = answer
        self._refuse = refuse
        self._peers = peers
        self._reader = RequestReader()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._peers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._serve()

    def abort(self) -> None:
        """Close at once; unsent data is lost."""
        self._transport.abort()

    def _serve(self) -> None:
        try:
            while not self._busy and (request := self._reader.next()) is not None:
                self._busy = True
                answer = self._answer(request)
                if (
                    answer.then == "keep"
                    and "close" in request.headers.get("connection", "").lower()
                ):
                    answer = answer._replace(then="close")
                if answer.delay:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(answer.delay, self._finish_late, answer)
                else:
                    self._finish(answer)
        except BadRequest as refused:
            self._busy = True
            self._finish(HttpAnswer(self._refuse(refused), "close"))

    def _finish_late(self, answer: HttpAnswer) -> None:
        self._timer = None
        self._finish(answer)
        self._serve()

    def _finish(self, answer: HttpAnswer) -> None:
        if answer.data:
            self._transport.write(answer.data)
        if answer.then == "keep":
            self._busy = False
        elif answer.then == "close":
            self._transport.close()
        elif answer.then == "reset":
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()
