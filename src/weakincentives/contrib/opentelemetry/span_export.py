"""Export spans to a collector in the background, with a timeout on every wait.

Rules of this file:
1. Nothing is sent by the threads that run samples: threads of the SDK send batches.
2. Every wait has a timeout. The SDK's `force_flush` and `shutdown` have none, so another thread
   calls them, and is abandoned if it hangs.
3. An unavailable collector is reported once; the SDK's own log messages are suppressed.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

from ...errors import MissingExtraError
from ...secrets import logger_for, redact

logger = logger_for(__name__)

QUEUE_SIZE = 32_768  # spans; the SDK's default of 2,048 overflows in a burst of a few samples
_NOISY_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)
_captured = threading.local()  # what the SDK logs while a thread exports for us


def missing_package(package: str) -> MissingExtraError:
    """Return the error for a package of OpenTelemetry that is not installed."""
    return MissingExtraError(package, "otel", "tracing with OpenTelemetry")


class BackgroundExecutor:
    """A thread for calls that may hang: the caller waits with a timeout."""

    def __init__(self) -> None:
        self._start()
        _executors.add(self)

    def _start(self) -> None:
        self._jobs: SimpleQueue[tuple[Sequence[Callable[[], object]], threading.Event] | None]
        self._jobs = SimpleQueue()
        # Started now, since Python may refuse to start a thread while the process exits.
        threading.Thread(target=self._work, name="wink-otel", daemon=True).start()

    def __call__(self, *calls: Callable[[], object], within: float) -> bool:
        """Run the calls in turn; return False if they take longer than `within` seconds."""
        done = threading.Event()
        self._jobs.put((calls, done))
        return done.wait(within)

    def close(self) -> None:
        """End the thread after its current call."""
        _executors.discard(self)
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            calls, done = job
            for call in calls:
                try:
                    call()
                except Exception as error:
                    logger.debug("tracing: %r", error)
            done.set()


_executors: WeakSet[BackgroundExecutor] = WeakSet()


def _after_fork() -> None:
    """Start the threads again in a child process, as the SDK does with its own."""
    for executor in list(_executors):
        executor._start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Export:
    """Our own instance of the SDK, which sends OTLP over HTTP; OTEL_* variables configure it."""

    def __init__(
        self, endpoint: str | None, headers: Mapping[str, str] | None, service_name: str | None
    ) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise missing_package("opentelemetry-exporter-otlp-proto-http") from None

        def url(signal: str) -> str | None:
            return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"

        for name in _NOISY_LOGGERS:
            logging.getLogger(name).addFilter(_capture_log)
        self._warned = threading.Lock()  # acquired by the first warning, and never released
        self._spans = _Exporter(OTLPSpanExporter(url("traces"), headers=headers), self.warn_once)
        self._records = _Exporter(OTLPLogExporter(url("logs"), headers=headers), self.warn_once)
        options = {"resource": _resource(service_name), "shutdown_on_exit": False}
        self.tracer_provider = TracerProvider(**options)
        size = _queue_size("OTEL_BSP_MAX_QUEUE_SIZE")
        processor = BatchSpanProcessor(self._spans, max_queue_size=size)
        self.tracer_provider.add_span_processor(processor)
        self.logger_provider = LoggerProvider(**options)
        size = _queue_size("OTEL_BLRP_MAX_QUEUE_SIZE")
        records = BatchLogRecordProcessor(self._records, max_queue_size=size)
        self.logger_provider.add_log_record_processor(records)

    def warn_once(self, reason: str) -> None:
        """Log the first delivery failure."""
        if self._warned.acquire(blocking=False):
            where = self._spans.address
            logger.warning("some traces are lost, runs are not affected: %s (%s)", reason, where)

    def warn_timeout(self, seconds: float) -> None:
        """Log that the collector took too long, with what the SDK logged meanwhile."""
        logged = [*self._spans.logged, *self._records.logged]
        cause = re.search(r"\[Errno \d+\] ([\w ]+)", logged[0]) if logged else None
        reason = cause[1] if cause else logged[0] if logged else "no answer"
        self.warn_once(f"timed out after {seconds:g} s: {reason}")

    def stop(self) -> None:
        """Stop sending, including retries."""
        self._spans.shutdown()
        self._records.shutdown()

    def close(self) -> None:
        """End the threads that send. This may hang while they wait for a response."""
        self.tracer_provider.shutdown()
        self.logger_provider.shutdown()


class _Exporter:
    """Wrap an exporter of the SDK: report failures to `warn` instead of the SDK's log."""

    def __init__(self, inner: Any, warn: Callable[[str], None]) -> None:
        self._inner, self._warn = inner, warn
        self._open = True
        self.logged: list[str] = []  # by the SDK, for the current batch
        self.address: str = getattr(inner, "_endpoint", "OTLP over HTTP")

    def export(self, batch: Any) -> Any:
        _captured.messages = self.logged = logged = []
        result = None
        try:
            result = self._inner.export(batch)
        except Exception as error:
            logged.append(repr(error))
        finally:
            _captured.messages = None
        if getattr(result, "name", "") != "SUCCESS" and self._open:
            self._warn(logged[0] if logged else "the collector refused it")
        return result

    def shutdown(self) -> None:
        if self._open:
            self._open = False
            self._inner.shutdown()

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True  # nothing is buffered here


def _capture_log(record: logging.LogRecord) -> bool:
    """Filter log records: capture and suppress what is logged while we export."""
    messages: list[str] | None = getattr(_captured, "messages", None)
    if messages is None:
        return True
    messages.append(record.getMessage())
    return False


def _queue_size(variable: str) -> int | None:
    return None if os.environ.get(variable) else QUEUE_SIZE  # None: the SDK reads the variable


def _resource(service_name: str | None) -> Any:
    """Return the resource: the service is as given, or OTEL_SERVICE_NAME, or `wink`."""
    from opentelemetry.sdk.resources import Resource

    known = Resource.create({"service.name": service_name} if service_name else {})
    if str(known.attributes.get("service.name", "")).startswith("unknown_service"):
        known = known.merge(Resource({"service.name": "wink"}))
    # Some attributes come from the environment, which may contain headers and URLs.
    clean = {name: redact(v) if isinstance(v, str) else v for name, v in known.attributes.items()}
    return Resource(clean, known.schema_url)
