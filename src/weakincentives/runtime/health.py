"""Answers over HTTP for whatever watches a worker: is it alive, is it ready, what did it do.

Rules of this file:
1. No client can keep another one waiting: each has a thread, little time and little room, and
   where too many are here the oldest goes.
2. An answer says a status or numbers, and nothing about the machine, the code or an error.
"""

from __future__ import annotations

import json
import math
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import MappingProxyType, TracebackType
from typing import NamedTuple

from ..clock import SYSTEM_CLOCK
from ..errors import UsageError
from ..secrets import logger_for

__all__ = ["HealthServer", "Measure", "as_prometheus"]

logger = logger_for(__name__)

_LONGEST_HEAD = 8192  # bytes of a request
_PATIENCE = 5.0  # seconds for a whole request and its answer
_MOST = 64  # connections at a time
_JSON = "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Measure(NamedTuple):
    """One number for Prometheus. A name that ends in `_total` is a counter, others are gauges."""

    name: str
    value: float
    labels: Mapping[str, str] = MappingProxyType({})
    help: str = ""


def as_prometheus(measures: Iterable[Measure]) -> str:
    """The measures as Prometheus reads them, those of one name together."""
    by_name: dict[str, list[Measure]] = {}
    for measure in measures:
        by_name.setdefault(_legal(measure.name), []).append(measure)
    lines: list[str] = []
    for name, many in by_name.items():
        words = next((each.help for each in many if each.help), name.replace("_", " "))
        lines.append(f"# HELP {name} {_escaped(words)}")
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        lines += [f"{name}{_labels(each.labels)} {_number(each.value)}" for each in many]
    return "".join(f"{line}\n" for line in lines)


def _legal(name: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return f"_{name}" if not name or name[0].isdigit() else name


def _labels(labels: Mapping[str, str]) -> str:
    pairs = []
    for key, value in labels.items():
        text = _escaped(str(value)).replace('"', '\\"')
        pairs.append(f'{_legal(key)}="{text}"')
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


class HealthServer:
    """Serves `/health/live`, `/health/ready` and `/metrics` from a thread of its own.

    `readiness_check` says whether there may be work for us; `metrics` gives what is counted.
    With port 0 any free one is taken: see `address`.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        readiness_check: Callable[[], bool] | None = None,
        metrics: Callable[[], Iterable[Measure]] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._ready = readiness_check
        self._metrics = metrics
        self._listener: socket.socket | None = None
        self._waker: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port: those asked for, and once started the real ones."""
        if self._listener is None:
            return self._host, self._port
        host, port = self._listener.getsockname()[:2]
        return host, port

    def __enter__(self) -> HealthServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen from now on."""
        if self._thread is not None:
            return
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host, self._port), family=family, backlog=128)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"expected a free address for the health server, got {self._host}:{self._port}: "
                f"{error} - pass another port, or 0 for any"
            ) from None
        listener.setblocking(False)
        self._waker, wakened = socket.socketpair()
        self._listener = listener
        self._thread = threading.Thread(
            target=self._accept, args=(listener, wakened), name="wink-health", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Listen no more, and free the port. Twice is fine."""
        thread, waker = self._thread, self._waker
        if thread is None or waker is None:
            return
        waker.close()
        thread.join()
        with self._lock:
            for connection in self._open:
                _end(connection)
        self._listener = self._waker = self._thread = None

    def _accept(self, listener: socket.socket, wakened: socket.socket) -> None:
        with listener, wakened, selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            stop = selector.register(wakened, selectors.EVENT_READ)
            while True:
                if any(key is stop for key, _ in selector.select()):
                    return
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:  # no file left: one may come free
                    logger.warning("the health server cannot accept: %s", error)
                    time.sleep(0.1)
                    continue
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._open[connection] = None
            if len(self._open) > _MOST:
                oldest = next(iter(self._open))
                del self._open[oldest]
                _end(oldest)
        thread = threading.Thread(target=self._talk, args=(connection,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread to be had
            self._close(connection)

    def _talk(self, connection: socket.socket) -> None:
        try:
            end = SYSTEM_CLOCK.monotonic() + _PATIENCE
            head = _read_head(connection, end)
            if head is not None:
                connection.settimeout(_PATIENCE)
                connection.sendall(self._answer(head))
                connection.shutdown(socket.SHUT_WR)
                _drain(connection, end)  # to close over unread bytes would cut the answer off
        except OSError:
            pass  # the client went, or was too slow
        finally:
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)
        connection.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.partition(b"\n")[0].split()
        if len(head) > _LONGEST_HEAD:
            status, kind, body = _status(431, "refused")
        elif len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            status, kind, body = _status(400, "refused")
        elif words[0] not in (b"GET", b"HEAD"):
            status, kind, body = _status(405, "refused")
        else:
            status, kind, body = self._page(words[1].partition(b"?")[0])
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
        ]
        if status == 405:
            lines.append("Allow: GET, HEAD")
        text = "\r\n".join((*lines, "", ""))
        return text.encode("ascii") + (b"" if words[:1] == [b"HEAD"] else body)

    def _page(self, path: bytes) -> tuple[int, str, bytes]:
        try:
            if path == b"/health/live":
                return _status(200, "healthy")
            if path == b"/health/ready":
                ready = self._ready is None or self._ready()
                return _status(200, "healthy") if ready else _status(503, "unhealthy")
            if path == b"/metrics" and self._metrics is not None:
                text = as_prometheus(self._metrics())
                return 200, _PROMETHEUS, text.encode("utf-8", "replace")
        except Exception:
            logger.exception("could not answer %r", path)
            return _status(503 if path == b"/health/ready" else 500, "unhealthy")
        return _status(404, "not found")


def _status(status: int, word: str) -> tuple[int, str, bytes]:
    return status, _JSON, json.dumps({"status": word}).encode("ascii")


def _read_head(connection: socket.socket, end: float) -> bytes | None:
    """The first lines of a request; None where the client leaves before their end."""
    head = b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= _LONGEST_HEAD:
        connection.settimeout(max(0.001, end - SYSTEM_CLOCK.monotonic()))
        part = connection.recv(4096)
        if not part:
            return None
        head += part
    return head


def _drain(connection: socket.socket, end: float) -> None:
    for _ in range(64):
        connection.settimeout(max(0.001, end - SYSTEM_CLOCK.monotonic()))
        if not connection.recv(16384):
            return


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
