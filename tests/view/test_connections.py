"""Connections that are held open: half requests, idle clients, event streams."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.processes import until
from tests.view.test_access import address_in, running, viewing
from tests.view.test_server import get_json

HALVES = (
    b"",
    b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    b"POST /api/tags HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
)
STREAM = b"GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"


def connected(address: str, data: bytes) -> socket.socket:
    """Return a connection on which this was sent."""
    parts = urlsplit(address)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=60)
    connection.sendall(data)
    return connection


def ended(connection: socket.socket) -> bool:
    """Wait until the server ends a connection."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return True


def is_open(connection: socket.socket, *, seconds: float) -> bool:
    """Read what is there; return whether nothing more comes, and the connection is not ended."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("data", HALVES)
def test_half_a_request_is_ended_also_if_it_trickles(store_path: Path, data: bytes) -> None:
    with running(store_path, request_seconds=1.0) as server:
        began = time.monotonic()
        with connected(server.address, data) as silent, connected(server.address, data) as slow:
            for _ in range(400):  # a byte from time to time, much longer than the limit
                try:
                    slow.sendall(b"x")
                except ConnectionError:
                    break
                time.sleep(0.05)
            assert ended(silent)
            assert ended(slow)
        assert time.monotonic() - began < 15


def test_an_idle_connection_and_one_that_trickles_after_an_answer_are_ended(
    store_path: Path,
) -> None:
    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    with (
        running(store_path, request_seconds=1.0) as server,
        connected(server.address, whole) as idle,
        connected(server.address, whole) as slow,
    ):
        assert slow.recv(65_536)
        slow.sendall(b"G")  # the next request never comes
        assert ended(slow)
        assert ended(idle)


def test_requests_that_take_long_and_event_streams_are_not_ended(store_path: Path) -> None:
    with running(store_path, request_seconds=0.2) as server:
        token = parse_qs(server.query[1:])["token"][0].encode()
        with connected(server.address, STREAM % token) as stream:
            assert is_open(stream, seconds=1.0)  # five times the limit


def test_requests_sent_at_once_are_all_answered(store_path: Path) -> None:
    with running(store_path) as server:
        once = b"GET /api/runs HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        with connected(server.address, once * 5 + last) as connection:
            text = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert text.count(b"HTTP/1.1 401") == 6


def descriptors(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_clients_without_access_cannot_keep_the_page_from_others(store_path: Path) -> None:
    with viewing(store_path) as (line, process), ExitStack() as stack:
        address, before = address_in(line), descriptors(process.pid)
        token = parse_qs(urlsplit(address).query)["token"][0].encode()
        streams = [stack.enter_context(connected(address, STREAM % token)) for _ in range(20)]
        assert all(stream.recv(10) for stream in streams)
        for number in range(900):
            stack.enter_context(connected(address, HALVES[number % len(HALVES)]))
        began = time.monotonic()
        assert get_json(address, "runs")["total"] == 8
        until(lambda: descriptors(process.pid) <= before + len(streams) + 220)
        assert time.monotonic() - began < 10  # long before half requests are ended by time
        for stream in streams:  # clients with access are not ended for them
            assert is_open(stream, seconds=0.01)
        stack.close()
        until(lambda: descriptors(process.pid) <= before + 5)
