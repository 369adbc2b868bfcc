"""A local OpenTelemetry collector: a real HTTP server that records and decodes what it receives.

It listens on 127.0.0.1 only, and accepts OTLP with protobuf, which is what exporters send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from threading import Lock
from typing import Any

from ...errors import MissingExtraError, UsageError, short_repr
from ...internal.http_server import HttpRequest, HttpResponse
from .local_server import LocalServer

KINDS = ("", "internal", "server", "client", "producer", "consumer")
ERROR = 2  # a status code of OpenTelemetry


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A received span. Ids are in hex; without a parent, `parent_id` is empty."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any] = field(hash=False)
    links: tuple[str, ...]  # the ids of linked spans
    events: tuple[tuple[str, Mapping[str, Any]], ...] = field(hash=False)
    error: str | None  # the status message, if the status is an error
    seconds: float
    service: str


@dataclass(frozen=True, slots=True)
class ReceivedLog:
    """A received log record; an event has an `event_name`."""

    event_name: str
    severity: str
    trace_id: str
    span_id: str
    attributes: Mapping[str, Any] = field(hash=False)
    body: Any = field(hash=False)
    service: str


class OtlpReceiver(LocalServer):
    """Receives traces and log records. It responds with `status`, or never with `hang`.

    >>> with OtlpReceiver() as receiver:
    ...     receiver.url.startswith("http://127.0.0.1:"), receiver.spans
    (True, ())
    """

    def __init__(self, *, status: int = 200, hang: bool = False) -> None:
        if type(status) is not int or not 200 <= status <= 599:
            raise UsageError(f"expected an HTTP status for `status`, got {short_repr(status)}")
        super().__init__()
        self.status, self._hang = status, hang
        self._lock = Lock()
        self._spans: list[ReceivedSpan] = []
        self._logs: list[ReceivedLog] = []
        self._bodies: list[bytes] = []

    @property
    def spans(self) -> tuple[ReceivedSpan, ...]:
        """All spans so far, in the order of arrival: children before their parents."""
        with self._lock:
            return tuple(self._spans)

    @property
    def logs(self) -> tuple[ReceivedLog, ...]:
        """All log records so far."""
        with self._lock:
            return tuple(self._logs)

    @property
    def bodies(self) -> tuple[bytes, ...]:
        """All request bodies so far, decompressed, to check what must not be in them."""
        with self._lock:
            return tuple(self._bodies)

    def _reply(self, request: HttpRequest) -> HttpResponse | None:
        kind = "application/x-protobuf"
        with self._lock:
            self._bodies.append(request.body)
            if self.status < 300 and not self._hang:
                if request.path == "/v1/traces":
                    self._spans += _spans(request.body)
                elif request.path == "/v1/logs":
                    self._logs += _logs(request.body)
                else:
                    return HttpResponse(404, kind)
        if self._hang:
            self._stopped.wait()
        return HttpResponse(self.status, kind)


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
