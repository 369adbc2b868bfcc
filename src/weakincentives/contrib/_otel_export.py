"""From spans to a collector, in the background; whatever the collector does, nobody waits long.

Rules of this file:
1. Nothing is sent where samples run: threads of the SDK send, in batches.
2. Waiting has an end. The SDK's own `force_flush` and `shutdown` know none, so another thread calls
   them, and is left behind.
3. A collector that is away is told of once, whatever the SDK has to say about it.
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

from ..errors import MissingExtraError
from ..secrets import logger_for

__all__ = ["Aside", "Export", "missing"]

logger = logger_for(__name__)

QUEUE = 32_768  # that may wait to be sent: the SDK's 2,048 are gone in a burst of a few samples
_NOISY = (
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)
_heard = threading.local()  # what the SDK logs while a thread sends for us


def missing(package: str) -> MissingExtraError:
    """What to raise where OpenTelemetry is not installed."""
    return MissingExtraError(package, "otel", "tracing with OpenTelemetry")


class Aside:
    """A thread for what may hang: whoever asks for it waits so long, and no longer."""

    def __init__(self) -> None:
        self._start()
        _asides.add(self)

    def _start(self) -> None:
        self._jobs: SimpleQueue[tuple[Sequence[Callable[[], object]], threading.Event] | None]
        self._jobs = SimpleQueue()
        # Now, and not when it is needed: at the end of a process Python may refuse to start one.
        threading.Thread(target=self._work, name="wink-otel", daemon=True).start()

    def __call__(self, *calls: Callable[[], object], within: float) -> bool:
        """True where all was done within so many seconds."""
        done = threading.Event()
        self._jobs.put((calls, done))
        return done.wait(within)

    def close(self) -> None:
        """End the thread, after what it is at."""
        _asides.discard(self)
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


_asides: WeakSet[Aside] = WeakSet()


def _after_fork() -> None:
    """A child has the locks and no thread; the SDK starts those of its own anew, too."""
    for aside in list(_asides):
        aside._start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Export:
    """An SDK of our own, which sends by OTLP over HTTP, as the variables OTEL_* say."""

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
            raise missing("opentelemetry-exporter-otlp-proto-http") from None

        def url(signal: str) -> str | None:
            return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"

        for name in _NOISY:
            logging.getLogger(name).addFilter(_overheard)
        self._to_tell = threading.Lock()  # taken by the first of two threads, for good
        self._spans = _Exporter(OTLPSpanExporter(url("traces"), headers=headers), self.tell)
        self._records = _Exporter(OTLPLogExporter(url("logs"), headers=headers), self.tell)
        how = {"resource": _resource(service_name), "shutdown_on_exit": False}
        self.tracer_provider = TracerProvider(**how)
        most = _queue("OTEL_BSP_MAX_QUEUE_SIZE")
        processor = BatchSpanProcessor(self._spans, max_queue_size=most)
        self.tracer_provider.add_span_processor(processor)
        self.logger_provider = LoggerProvider(**how)
        most = _queue("OTEL_BLRP_MAX_QUEUE_SIZE")
        records = BatchLogRecordProcessor(self._records, max_queue_size=most)
        self.logger_provider.add_log_record_processor(records)

    def tell(self, why: str) -> None:
        """Something was not delivered: say so the first time."""
        if self._to_tell.acquire(blocking=False):
            where = self._spans.address
            logger.warning("not all that is traced arrives, and runs go on: %s (%s)", why, where)

    def too_slow(self, seconds: float) -> None:
        """Likewise, where time ran out: what the SDK said of it meanwhile tells why."""
        said = [*self._spans.said, *self._records.said]
        cause = re.search(r"\[Errno \d+\] ([\w ]+)", said[0]) if said else None
        heard = cause[1] if cause else said[0] if said else "no answer"
        self.tell(f"expected it to be taken in {seconds:g} s, and it was not: {heard}")

    def give_up(self) -> None:
        """Send nothing more; what is being tried again is not."""
        self._spans.shutdown()
        self._records.shutdown()

    def close(self) -> None:
        """End the threads that send. They may be waiting for an answer."""
        self.tracer_provider.shutdown()
        self.logger_provider.shutdown()


class _Exporter:
    """An exporter of the SDK's that keeps what goes wrong to itself, and to `tell`."""

    def __init__(self, inner: Any, tell: Callable[[str], None]) -> None:
        self._inner, self._tell = inner, tell
        self._open = True
        self.said: list[str] = []  # by the SDK, of the batch that is being sent
        self.address: str = getattr(inner, "_endpoint", "OTLP over HTTP")

    def export(self, batch: Any) -> Any:
        _heard.said = self.said = said = []
        result = None
        try:
            result = self._inner.export(batch)
        except Exception as error:
            said.append(repr(error))
        finally:
            _heard.said = None
        if getattr(result, "name", "") != "SUCCESS" and self._open:
            self._tell(said[0] if said else "the collector refused it")
        return result

    def shutdown(self) -> None:
        if self._open:
            self._open = False
            self._inner.shutdown()

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True  # it holds nothing back


def _overheard(record: logging.LogRecord) -> bool:
    """A logging filter: what is logged while we send is heard by us, and nobody else."""
    said: list[str] | None = getattr(_heard, "said", None)
    if said is None:
        return True
    said.append(record.getMessage())
    return False


def _queue(variable: str) -> int | None:
    return None if os.environ.get(variable) else QUEUE  # None: the SDK reads the variable


def _resource(service_name: str | None) -> Any:
    """By whom it is: as given, or as OTEL_SERVICE_NAME says, or `wink`."""
    from opentelemetry.sdk.resources import Resource

    known = Resource.create({"service.name": service_name} if service_name else {})
    if str(known.attributes.get("service.name", "")).startswith("unknown_service"):
        known = known.merge(Resource({"service.name": "wink"}))
    return known
