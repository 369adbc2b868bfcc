"""The HTTP server behind health checks and test servers, over real sockets."""

from __future__ import annotations

import errno
import http.client
import socket
from collections.abc import Iterator

import pytest

from weakincentives.internal import http_server
from weakincentives.internal.http_server import HttpRequest, HttpResponse, HttpServer

TIMEOUT = 60.0


class Echo(HttpServer):
    """A server that echoes the body, raises on `/error`, and sends raw bytes on `/raw`."""

    def _respond(self, request: HttpRequest) -> HttpResponse | bytes | None:
        if request.path == "/error":
            raise RuntimeError("a handler failed")
        if request.path == "/raw":
            return b"not HTTP"
        if request.path == "/nothing":
            return None
        return HttpResponse(200, "text/plain", request.body, {"X-Query": str(dict(request.query))})


@pytest.fixture
def server() -> Iterator[Echo]:
    with Echo() as server:
        server.start()
        server.start()  # a second call does nothing
        yield server


def exchange(server: Echo, data: bytes) -> bytes:
    with socket.create_connection(server.address, TIMEOUT) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as response:
            return response.read()


def test_a_connection_serves_several_requests(server: Echo) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=TIMEOUT)
    for body in (b"first", b"second"):
        connection.request("POST", "/path?a=1", body)
        response = connection.getresponse()

        assert response.read() == body
        assert response.headers["X-Query"] == "{'a': ['1']}"
        assert "Server" not in response.headers
    connection.close()


@pytest.mark.parametrize("length", ["-1", "five", "9" * 19])
def test_an_invalid_length_is_refused(server: Echo, length: str) -> None:
    response = exchange(server, f"POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())

    assert response.startswith(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n")
    assert response.endswith(b"\r\n\r\nBad Request")


def test_an_unknown_method_is_refused(server: Echo) -> None:
    assert exchange(server, b"BREW / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 501 ")


@pytest.mark.parametrize(
    ("path", "response"), [("/error", b""), ("/raw", b"not HTTP"), ("/nothing", b"")]
)
def test_an_invalid_response_closes_the_connection(
    server: Echo, path: str, response: bytes
) -> None:
    assert exchange(server, f"GET {path} HTTP/1.1\r\n\r\n".encode()) == response
    assert exchange(server, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 ")


def test_a_body_beyond_the_limit_is_not_read(server: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Echo, "max_body_bytes", 3)
    response = exchange(server, b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nlong")

    assert response.endswith(b"Connection: close\r\n\r\n")


def test_a_connection_that_cannot_be_accepted_is_logged_and_the_next_one_served(
    server: Echo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept = http_server.ThreadingTCPServer.get_request
    failures = iter([OSError(errno.EMFILE, "Too many open files")])

    def fail_once(self: http_server.ThreadingTCPServer) -> tuple[socket.socket, str]:
        if (failure := next(failures, None)) is not None:
            raise failure
        return accept(self)

    monkeypatch.setattr(http_server.ThreadingTCPServer, "get_request", fail_once)

    assert exchange(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
    assert "Too many open files" in caplog.text


def test_it_can_be_started_again_after_close() -> None:
    server = Echo()
    assert server.address == ("127.0.0.1", 0)
    for _ in range(2):
        server.start()
        assert exchange(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
        server.close()
        server.close()


def test_a_server_must_define_its_responses() -> None:
    with pytest.raises(NotImplementedError):
        HttpServer()._respond(HttpRequest("GET", "/", {}, {}, b""))
