"""Health and metrics over real sockets, with clients that are polite, slow and hostile."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from weakincentives.errors import UsageError
from weakincentives.runtime.process.health import HealthMetric, HealthServer, as_prometheus

TIMEOUT = 60.0
MAX_CONNECTIONS = 64  # connections at a time


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with HealthServer(port=0) as running:
        yield running


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.address, timeout=TIMEOUT)
    connection.request(method, path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def send_bytes(server: HealthServer, data: bytes) -> bytes:
    """Send bytes, which need not be a valid request; return the whole response."""
    with socket.create_connection(server.address, TIMEOUT) as client:
        client.sendall(data)
        with client.makefile("rb") as answer:
            return answer.read()


def test_liveness_probes_succeed(server: HealthServer) -> None:
    assert ask(server, "/health/live") == (200, '{"status": "healthy"}')
    assert ask(server, "/health/ready?from=probe") == (200, '{"status": "healthy"}')
    assert ask(server, "/health/live", "HEAD") == (200, "")


@pytest.mark.parametrize("path", ["/", "/health", "/health/live/", "/metrics", "/../etc/passwd"])
def test_other_paths_are_not_found(server: HealthServer, path: str) -> None:
    assert ask(server, path) == (404, '{"status": "not found"}')


def test_readiness_follows_the_check() -> None:
    ready = False
    with HealthServer(port=0, readiness_check=lambda: ready) as server:
        before = ask(server, "/health/ready")
        ready = True
        after = ask(server, "/health/ready")

    assert before == (503, '{"status": "unhealthy"}')
    assert after[0] == 200


def test_a_check_that_fails_reveals_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bool:
        raise RuntimeError("the password is swordfish")

    with HealthServer(port=0, readiness_check=fail, metrics=fail) as server:  # type: ignore[arg-type]
        ready, metrics = ask(server, "/health/ready"), ask(server, "/metrics")

    assert ready == (503, '{"status": "unhealthy"}')
    assert metrics == (500, '{"status": "unhealthy"}')
    assert "swordfish" in caplog.text


def test_other_methods_and_nonsense_are_refused(server: HealthServer) -> None:
    post = send_bytes(server, b"POST /health/live HTTP/1.1\r\nContent-Length: 9\r\n\r\nbody body")
    head = send_bytes(server, b"HEAD /nowhere HTTP/1.0\n\n")

    assert post.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nAllow: GET, HEAD\r\n" in post
    assert head.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert head.endswith(b"\r\n\r\n")
    for nonsense in (b"\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"GET /\r\n\r\n", b"a b c\r\n\r\n"):
        assert send_bytes(server, nonsense).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_huge_head_is_refused_with_an_answer(server: HealthServer) -> None:
    huge = b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 200_000 + b"\r\n\r\n"

    assert send_bytes(server, huge).startswith(b"HTTP/1.1 431 ")


def test_an_incomplete_request_times_out_and_delays_no_other(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "request_timeout", 10 * TIMEOUT)
    with socket.create_connection(server.address, TIMEOUT) as slow:
        slow.sendall(b"GET /health/live HT")
        assert ask(server, "/health/live")[0] == 200
    monkeypatch.setattr(server, "request_timeout", 0.3)
    with socket.create_connection(server.address, TIMEOUT) as slow:
        slow.sendall(b"GET /health/live HT")
        assert slow.recv(1) == b""  # it timed out


def test_a_client_that_sends_slowly_times_out(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "request_timeout", 0.3)
    end = time.monotonic() + TIMEOUT
    with socket.create_connection(server.address, TIMEOUT) as slow:
        slow.settimeout(0.01)
        answer = None
        while answer is None and time.monotonic() < end:
            try:
                slow.sendall(b"X")
                answer = slow.recv(1)
            except TimeoutError:
                pass
            except ConnectionError:
                answer = b""

    assert answer == b""


def test_with_too_many_connections_the_oldest_is_closed(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "request_timeout", 10 * TIMEOUT)
    clients = [
        socket.create_connection(server.address, TIMEOUT) for _ in range(2 * MAX_CONNECTIONS)
    ]
    try:
        assert ask(server, "/health/live")[0] == 200
        assert clients[0].recv(1) == b""
    finally:
        for client in clients:
            client.close()


def test_a_check_that_hangs_does_not_stop_the_others() -> None:
    go = threading.Event()
    with HealthServer(port=0, readiness_check=lambda: go.wait(TIMEOUT)) as server:
        waiting = threading.Thread(target=ask, args=(server, "/health/ready"))
        waiting.start()
        assert ask(server, "/health/live")[0] == 200
        go.set()
        waiting.join(TIMEOUT)


def test_a_slow_check_is_answered_though_a_slow_client_is_not() -> None:
    go = threading.Event()
    with HealthServer(port=0, readiness_check=lambda: go.wait(TIMEOUT)) as server:
        server.request_timeout = 0.1
        answers: list[tuple[int, str]] = []
        waiting = threading.Thread(target=lambda: answers.append(ask(server, "/health/ready")))
        waiting.start()
        with socket.create_connection(server.address, TIMEOUT) as slow:
            assert slow.recv(1) == b""  # it timed out
        go.set()
        waiting.join(TIMEOUT)

    assert answers == [(200, '{"status": "healthy"}')]


def test_stop_frees_the_port_at_once_and_it_can_start_again() -> None:
    first = HealthServer(port=0)
    first.start()
    first.start()  # twice is fine
    host, port = first.address
    ask(first, "/health/live")
    first.stop()
    first.stop()
    with HealthServer(host=host, port=port) as second:
        assert ask(second, "/health/live")[0] == 200
        with pytest.raises(UsageError, match=f"a free address .* got {host}:{port}"):
            HealthServer(host=host, port=port).start()

    first.start()
    assert ask(first, "/health/live")[0] == 200
    first.stop()
    assert not [each for each in threading.enumerate() if each.name == "wink-HealthServer"]


def test_open_connections_end_with_the_server(server: HealthServer) -> None:
    with socket.create_connection(server.address, TIMEOUT) as client:
        client.sendall(b"GET ")
        ask(server, "/health/live")  # so that the first one was accepted
        server.stop()
        assert client.recv(1) == b""


def test_ipv6_works_if_the_machine_has_it() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with HealthServer(host="::1", port=0) as server:
        assert ask(server, "/health/live")[0] == 200


# ── metrics ─────────────────────────────────────────────────────────────────────────────────────


def test_metrics_are_served_as_prometheus_reads_them() -> None:
    def metrics() -> Iterator[HealthMetric]:
        yield HealthMetric("done_total", 3, {"loop": "a"}, "messages done")
        yield HealthMetric("in_flight", 2.5)
        yield HealthMetric("done_total", 4, {"loop": "b"})

    with HealthServer(port=0, metrics=metrics) as server:
        connection = http.client.HTTPConnection(*server.address, timeout=TIMEOUT)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()

    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert text.splitlines() == [
        "# HELP done_total messages done",
        "# TYPE done_total counter",
        'done_total{loop="a"} 3.0',
        'done_total{loop="b"} 4.0',
        "# HELP in_flight in flight",
        "# TYPE in_flight gauge",
        "in_flight 2.5",
    ]


def test_labels_cannot_inject_lines() -> None:
    hostile_label = 'a"} 1\nevil_total 7\\'
    text = as_prometheus([HealthMetric("x_total", 1, {"loop name": hostile_label}, "two\nlines")])

    *_, line = text.splitlines()
    assert len(text.splitlines()) == 3
    value = re.fullmatch(r'x_total\{loop_name=("(?:[^"\\]|\\.)*")\} 1\.0', line)
    assert value is not None
    assert json.loads(value[1]) == hostile_label  # these escapes are JSON's too


def test_invalid_metric_names_are_made_valid() -> None:
    numbers = [float("nan"), float("inf"), float("-inf"), True, 10**15 + 1]
    text = as_prometheus([HealthMetric("1st measure!", number) for number in numbers])

    assert [line.split()[1] for line in text.splitlines()[2:]] == [
        *("NaN", "+Inf", "-Inf", "1.0", "1000000000000001.0")
    ]
    assert text.startswith("# HELP _1st_measure_ ")
