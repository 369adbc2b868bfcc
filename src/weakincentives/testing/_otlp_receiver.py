"""A local OpenTelemetry collector: a real HTTP server that keeps what it is sent, decoded.

It listens on 127.0.0.1 only, and speaks OTLP with protobuf, which is what exporters send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from threading import Lock
from typing import Any

from ..errors import MissingExtraError, UsageError, shown
from ._local_server import Asked, LocalServer, Said

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


class OtlpReceiver(LocalServer):
    """Takes traces and log records; `status` is its answer, until changed, and `hang` is none.

    >>> with OtlpReceiver() as receiver:
    ...     receiver.url.startswith("http://127.0.0.1:"), receiver.spans
    (True, ())
    """

    def __init__(self, *, status: int = 200, hang: bool = False) -> None:
        if type(status) is not int or not 200 <= status <= 599:
            raise UsageError(f"expected an HTTP status for `status`, got {shown(status)}")
        super().__init__()
        self.status, self._hang = status, hang
        self._lock = Lock()
        self._spans: list[ReceivedSpan] = []
        self._logs: list[ReceivedLog] = []
        self._bodies: list[bytes] = []

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

    def _respond(self, asked: Asked) -> Said | None:
        kind = "application/x-protobuf"
        with self._lock:
            self._bodies.append(asked.body)
            if self.status < 300 and not self._hang:
                if asked.path == "/v1/traces":
                    self._spans += _spans(asked.body)
                elif asked.path == "/v1/logs":
                    self._logs += _logs(asked.body)
                else:
                    return Said(404, kind)
        if self._hang:
            self._stopped.wait()
        return Said(self.status, kind)


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
