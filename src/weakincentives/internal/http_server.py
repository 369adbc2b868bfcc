"""An HTTP/1.1 server on the standard library: one thread per connection, all of them bounded.

`HealthServer`, `LangSmithServer` and `OtlpReceiver` are subclasses that return their response from
`_respond`. `ModelServer` has its own asyncio protocol: a script must be asked in the order in
which requests arrive, and it is faster. With 50 connections it answered 14,500 requests a second,
scripts and wire formats included; this server answered 10,300 with a constant (with one connection
10,400 and 7,300; two cores, November 2026).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ..secrets import logger_for
from .closing import Closing

logger = logger_for(__name__)

POLL_SECONDS = 0.05  # between two checks for `stop` and for requests that take too long


class HttpRequest(NamedTuple):
    """A request; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes


class HttpResponse(NamedTuple):
    """A response."""

    status: int
    content_type: str
    body: bytes = b""
    headers: Mapping[str, str] = {}


class HttpServer(Closing):
    """Listens from `start` to `close`, and may be started again. Port 0 takes any free port."""

    request_timeout: float | None = None
    """Seconds to send a request, and to receive the response; None: no limit, keep-alive."""
    max_connections: int | None = None
    """When there are more, the oldest is closed."""
    max_body_bytes: int | None = None
    """Longer bodies are not read."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host, self._port = host, port
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    def _respond(self, request: HttpRequest) -> HttpResponse | bytes | None:
        """Return the response. Bytes are sent as they are; after them or None, close."""
        raise NotImplementedError

    def _refuse(self, status: int) -> HttpResponse:
        """Return the response to an invalid request."""
        return HttpResponse(status, "text/plain", HTTPStatus(status).phrase.encode())

    @property
    def address(self) -> tuple[str, int]:
        """Host and port: the requested ones, and the real ones after `start`."""
        if self._listener is None:
            return self._host, self._port
        host, port = self._listener.server_address[:2]
        return str(host), port

    def start(self) -> None:
        """Listen; raise `OSError` if the address is taken. Calling it twice is harmless."""
        if self._thread is None:
            self._listener = _Listener(self, (self._host, self._port))
            self._thread = threading.Thread(
                target=self._listener.serve_forever,
                args=(POLL_SECONDS,),
                name=f"wink-{type(self).__name__}",
                daemon=True,
            )
            self._thread.start()

    def close(self) -> None:
        """Close all connections and free the port. Calling it twice is harmless."""
        listener, thread = self._listener, self._thread
        if listener is not None and thread is not None:
            listener.shutdown()
            thread.join()
            listener.server_close()
            listener.end_connections()
            self._listener = self._thread = None


class _Listener(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, owner: HttpServer, address: tuple[str, int]) -> None:
        self.owner = owner
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._started: dict[
            Any, float
        ] = {}  # when the client's time began, oldest connection first
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError as error:  # no file descriptor is left; one may become free
            logger.warning("the HTTP server cannot accept a connection: %s", error)
            time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._started[request] = time.monotonic()
            limit = self.owner.max_connections
            if limit is not None and len(self._started) > limit:
                oldest = next(iter(self._started))
                del self._started[oldest]
                _end(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._started.pop(request, None)
        request.close()

    def restart_timeout(self, connection: Any, now: float) -> None:
        """Give a connection its full time from `now` on."""
        with self._lock:
            if connection in self._started:
                self._started[connection] = now

    def service_actions(self) -> None:
        if (timeout := self.owner.request_timeout) is not None:
            self.end_connections(time.monotonic() - timeout)

    def end_connections(self, started_before: float = float("inf")) -> None:
        """End the connections whose time began before then."""
        with self._lock:
            for connection, started in self._started.items():
                if started <= started_before:
                    _end(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a connection to the HTTP server failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener
    raw_requestline: bytes

    def log_message(self, format: str, *args: Any) -> None: ...

    def parse_request(self) -> bool:
        self.command = ""
        if len(self.raw_requestline.split()) != 3:  # HTTP/0.9 has two words
            self.send_error(400)
            return False
        return super().parse_request()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.close_connection, self.request_version = True, "HTTP/1.1"
        self._send(self.server.owner._refuse(code))

    def _handle(self) -> None:
        owner, length = self.server.owner, self.headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18:
            self.send_error(400)
            return
        too_long = owner.max_body_bytes is not None and int(length) > owner.max_body_bytes
        if too_long or owner.request_timeout is not None:
            self.close_connection = True
        url = urlsplit(self.path)
        body = b"" if too_long else self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = HttpRequest(self.command, url.path, parse_qs(url.query), headers, body)
        self.server.restart_timeout(self.connection, float("inf"))  # the server may take its time
        response = owner._respond(request)
        self.server.restart_timeout(self.connection, time.monotonic())
        if isinstance(response, HttpResponse):
            self._send(response)
            return
        self.close_connection = True
        self.wfile.write(response or b"")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _handle

    def _send(self, response: HttpResponse) -> None:
        # Not `send_response`, which reveals the versions of Python and of this server.
        self.send_response_only(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        for name, value in response.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def finish(self) -> None:
        super().finish()
        with suppress(OSError):  # closing with unread bytes would reset the connection
            self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(16384):
                pass


def _end(connection: Any) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
