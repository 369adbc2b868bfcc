"""Trace runs with OpenTelemetry: to any collector, by the conventions for generative AI.

>>> from weakincentives.contrib.opentelemetry import configure_otel
>>> configure_otel(endpoint="http://127.0.0.1:4318").shutdown()  # a run in between is traced

Rules of this file:
1. Each sample is a trace with a link to the run, so that a run of 100,000 samples is not one trace.
   A sample from a mailbox continues the trace of the process that sent it.
2. An unavailable, slow or broken collector changes no verdict, and no run waits for it: only the
   end of tracing and of the process do, for at most `timeout`.
3. The attributes of spans, and which of them are content, are in `opentelemetry/attributes.py`.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from ...errors import UsageError, short_repr
from ...internal.checks import check_number
from ...runtime import tracing
from ...runtime.tracing import Kind
from .attributes import (
    EVALUATION,
    Attributes,
    end_attributes,
    error_text,
    evaluations,
    identity,
    start_attributes,
    start_content,
)
from .span_export import BackgroundExecutor, Export, missing_package

SCOPE = "weakincentives"
_TRACE_ROOTS = ("request", "sample")  # the kinds that start a trace


def configure_otel(
    *,
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    service_name: str | None = None,
    tracer_provider: Any = None,
    logger_provider: Any = None,
    content: bool = False,
    timeout: float = 3.0,
) -> OtelTracing:
    """Trace every run from now on, until `shutdown` of the result or the end of its `with` block.

    Spans go to the given providers, or else to the global providers of the process. Without
    either, and if `endpoint` is given, they go to a collector by OTLP over HTTP: to `endpoint`
    (`http://127.0.0.1:4318`), or to OTEL_EXPORTER_OTLP_ENDPOINT.

    Spans contain the texts of samples, prompts, models and tools only with `content=True`. They
    are sent in the background; at the end of tracing or of the process, pending spans have
    `timeout` seconds. A second call ends the tracing that the first one started.
    """
    global _active
    if tracer_provider is not None and (endpoint or headers or service_name):
        raise UsageError("expected `tracer_provider`, or an `endpoint` to send to, got both")
    for name, given in (("get_tracer", tracer_provider), ("get_logger", logger_provider)):
        if given is not None and not callable(getattr(given, name, None)):
            raise UsageError(f"expected a provider with `{name}`, got {short_repr(given)}")
    if endpoint is not None and not str(endpoint).startswith(("http://", "https://")):
        raise UsageError(f"expected http:// or https:// in `endpoint`, got {short_repr(endpoint)}")
    check_number(timeout, "timeout", unit="a number of seconds", least=0)
    export = None
    if tracer_provider is None and endpoint is None:
        tracer_provider, global_logger = _global_providers()
        logger_provider = logger_provider or (global_logger if tracer_provider else None)
    if tracer_provider is None:
        export = Export(endpoint, headers, service_name)
        tracer_provider = export.tracer_provider
        logger_provider = logger_provider or export.logger_provider
    if _active is not None:
        _active.shutdown()
    _active = OtelTracing(tracer_provider, logger_provider, export, content, timeout)
    return _active


class OtelTracing:
    """Active tracing, until `shutdown`."""

    def __init__(
        self,
        tracer_provider: Any,
        logger_provider: Any,
        export: Export | None,
        content: bool,
        timeout: float,
    ) -> None:
        self._providers = [each for each in (tracer_provider, logger_provider) if each is not None]
        self._export, self._timeout = export, timeout
        self._open, self._background = True, BackgroundExecutor()
        flush_soon = partial(self._flush, 0.0)  # after a run, without waiting
        self._tracer = _Tracer(tracer_provider, logger_provider, content, flush_soon)
        tracing.add_tracer(self._tracer)
        atexit.register(self.shutdown)

    def flush(self, timeout: float | None = None) -> bool:
        """Send pending spans; return whether that was done within `timeout` seconds."""
        return self._open and self._flush(self._timeout if timeout is None else timeout)

    def shutdown(self) -> None:
        """Stop tracing and send pending spans. Providers that were passed in stay open."""
        global _active
        if not self._open:
            return
        self._open = False
        if _active is self:
            _active = None
        tracing.remove_tracer(self._tracer)
        atexit.unregister(self.shutdown)
        in_time = self._flush(self._timeout)
        if self._export is not None:
            if not in_time:
                self._export.warn_timeout(self._timeout)
            self._export.stop()
            self._background(self._export.close, within=self._timeout)
        self._background.close()

    def __enter__(self) -> OtelTracing:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()

    def _flush(self, within: float) -> bool:
        calls = [each.force_flush for each in self._providers if hasattr(each, "force_flush")]
        return self._background(*calls, within=within)


_active: OtelTracing | None = None


class _Begun(NamedTuple):
    kind: Kind
    name: str
    span: Any
    token: Any


class _Tracer:
    """A `runtime.tracing.Tracer` that creates spans of OpenTelemetry in its context."""

    def __init__(
        self,
        tracer_provider: Any,
        logger_provider: Any,
        content: bool,
        flush: Callable[[], object],
    ) -> None:
        from opentelemetry import context, trace
        from opentelemetry._logs import SeverityNumber
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.flush = flush
        self._content = content
        self._context, self._trace = context, trace
        self._headers = TraceContextTextMapPropagator()
        self._tracer = tracer_provider.get_tracer(SCOPE)
        self._logger = None if logger_provider is None else logger_provider.get_logger(SCOPE)
        self._severity = SeverityNumber
        self._identity = context.create_key("weakincentives")  # key of the current run and sample
        kinds = trace.SpanKind
        self._kinds = {"model": kinds.CLIENT, "request": kinds.PRODUCER, "": kinds.INTERNAL}

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> _Begun:
        title, attributes = start_attributes(kind, name, facts)
        current = self._context.get_current()
        parent, links = current, []
        # A run inside a sample has another dataset, or one without a name.
        outer = (kind != "run" and self._context.get_value(self._identity, current)) or {}
        if kind in _TRACE_ROOTS:
            attributes = {**outer, **attributes}
            above = self._trace.get_current_span(current).get_span_context()
            if above.is_valid and not above.is_remote:
                links = [self._trace.Link(above)]
                parent = self._trace.set_span_in_context(self._trace.INVALID_SPAN, current)
        span_kind = self._kinds.get(kind, self._kinds[""])
        span = self._tracer.start_span(title, parent, span_kind, attributes, links)
        if self._content and span.is_recording():
            span.set_attributes(start_content(kind, facts))
        inside = self._trace.set_span_in_context(span, current)
        if kind in ("run", "sample"):
            own = {**outer, **identity(attributes)}
            inside = self._context.set_value(self._identity, own, inside)
        return _Begun(kind, name, span, self._context.attach(inside))

    def end(self, begun: _Begun, facts: Mapping[str, Any], error: BaseException | None) -> None:
        kind, name, span, token = begun
        self._context.detach(token)
        try:
            if span.is_recording():
                attributes = end_attributes(kind, facts, error, self._content)
                span.set_attributes(attributes)
                if "error.type" in attributes:
                    reason = error_text(error) if error is not None and self._content else None
                    span.set_status(self._trace.StatusCode.ERROR, reason)
            if kind == "evaluator":  # detached, so that the events belong to the evaluated span
                for attributes in evaluations(name, facts, error, self._content):
                    self._record_score(attributes)
        finally:
            span.end()

    def inject(self) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        self._headers.inject(headers)
        return headers

    @contextmanager
    def attach(self, headers: Mapping[str, str]) -> Iterator[None]:
        current = self._context.get_current()
        token = self._context.attach(self._headers.extract(headers, current))
        try:
            yield
        finally:
            self._context.detach(token)

    def _record_score(self, attributes: Attributes) -> None:
        """Record a score as a log record, or as an event of the span without a logger."""
        attributes = {**(self._context.get_value(self._identity) or {}), **attributes}
        if self._logger is None:
            self._trace.get_current_span().add_event(EVALUATION, attributes)
            return
        level = self._severity.WARN if "error.type" in attributes else self._severity.INFO
        self._logger.emit(
            timestamp=time.time_ns(),
            severity_number=level,
            severity_text=level.name,
            attributes=attributes,
            event_name=EVALUATION,
        )


def _global_providers() -> tuple[Any, Any]:
    """Return the global providers of the process, None for each that is not set."""
    try:
        from opentelemetry import _logs, trace
    except ImportError:
        raise missing_package("opentelemetry-api") from None
    providers = trace.get_tracer_provider(), _logs.get_logger_provider()
    spans, records = (each if hasattr(each, "force_flush") else None for each in providers)
    return spans, records
