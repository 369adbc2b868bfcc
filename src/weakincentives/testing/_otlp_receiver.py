"""A local OpenTelemetry collector: a real HTTP server that keeps what it is sent, decoded.

It listens on 127.0.0.1 only, and speaks OTLP with protobuf, which is what exporters send.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from types import TracebackType
from typing import Any

from ..errors import MissingExtraError, UsageError, shown

__all__ = ["OtlpReceiver", "ReceivedLog", "ReceivedSpan"]

KINDS = ("", "internal", "server", "client", "producer", "consumer")
ERROR = 2  # among the codes of a status


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came. Ids are in hex; without a parent, `parent_id` is empty."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any] = field(hash=False)
    links: tuple[str, ...]  # the ids of the spans that they lead to
    events: tuple[tuple[str, Mapping[str, Any]], ...] = field(hash=False)
    error: str | None  # what its status says, where that is an error
    seconds: float
    service: str


@dataclass(frozen=True, slots=True)
class ReceivedLog:
    """A log record as it came; an event has an `event_name`."""

    event_name: str
    severity: str
    trace_id: str
    span_id: str
    attributes: Mapping[str, Any] = field(hash=False)
    body: Any = field(hash=False)
    service: str


class OtlpReceiver:
    """Takes traces and log records; `status` is its answer, until changed, and `hang` is none.

    >>> with OtlpReceiver() as receiver:
    ...     receiver.url.startswith("http://127.0.0.1:"), receiver.spans
    (True, ())
    """

    def __init__(self, *, status: int = 200, hang: bool = False) -> None:
        if type(status) is not int or not 200 <= status <= 599:
            raise UsageError(f"expected an HTTP status for `status`, got {shown(status)}")
        self.status, self._hang = status, hang
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._spans: list[ReceivedSpan] = []
        self._logs: list[ReceivedLog] = []
        self._bodies: list[bytes] = []
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> OtlpReceiver:
        if self._server is not None:
            raise UsageError("an OtlpReceiver starts only once - make a new one")
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="wink-otlp-receiver", daemon=True
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens: for `configure_otel(endpoint=...)`, or OTEL_EXPORTER_OTLP_ENDPOINT."""
        if self._server is None:
            raise UsageError("not started yet - use `with OtlpReceiver() as receiver:`")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> tuple[ReceivedSpan, ...]:
        """Every span so far, in the order in which they came: children before their parents."""
        with self._lock:
            return tuple(self._spans)

    @property
    def logs(self) -> tuple[ReceivedLog, ...]:
        """Every log record so far."""
        with self._lock:
            return tuple(self._logs)

    @property
    def bodies(self) -> tuple[bytes, ...]:
        """Every request as it came, unpacked: for who looks for what must not be in it."""
        with self._lock:
            return tuple(self._bodies)

    def _take(self, path: str, body: bytes) -> int:
        """What a request has is kept; the status to answer, 0 for no answer."""
        with self._lock:
            self._bodies.append(body)
            if self.status < 300 and not self._hang:
                if path == "/v1/traces":
                    self._spans += _spans(body)
                elif path == "/v1/logs":
                    self._logs += _logs(body)
                else:
                    return 404
        if self._hang:
            self._ended.wait()
        return 0 if self._hang else self.status


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


def _handler(receiver: OtlpReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            status = receiver._take(self.path, body)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    return Handler


def _spans(body: bytes) -> Iterator[ReceivedSpan]:
    for resource in _request("trace", "Trace").FromString(body).resource_spans:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield ReceivedSpan(
                span.name,
                KINDS[span.kind],
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                _attributes(span.attributes),
                tuple(link.span_id.hex() for link in span.links),
                tuple((event.name, _attributes(event.attributes)) for event in span.events),
                span.status.message if span.status.code == ERROR else None,
                (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                service,
            )


def _logs(body: bytes) -> Iterator[ReceivedLog]:
    for resource in _request("logs", "Logs").FromString(body).resource_logs:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for record in (record for scope in resource.scope_logs for record in scope.log_records):
            yield ReceivedLog(
                record.event_name,
                record.severity_text,
                record.trace_id.hex(),
                record.span_id.hex(),
                _attributes(record.attributes),
                _value(record.body),
                service,
            )


def _request(signal: str, name: str) -> Any:
    try:
        module = import_module(f"opentelemetry.proto.collector.{signal}.v1.{signal}_service_pb2")
    except ImportError:
        raise MissingExtraError("opentelemetry-proto", "otel", "an `OtlpReceiver`") from None
    return getattr(module, f"Export{name}ServiceRequest")


def _attributes(pairs: Sequence[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return None if kind is None else getattr(value, kind)
