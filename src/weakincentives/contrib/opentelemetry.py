"""Runs as OpenTelemetry traces: to any collector, by the conventions for generative AI.

>>> from weakincentives.contrib.opentelemetry import configure_otel
>>> configure_otel(endpoint="http://127.0.0.1:4318").shutdown()  # a run in between is traced

Rules of this file:
1. A sample is a trace of its own, with a link to the run: a run of 100,000 samples is not one
   trace. A sample that came through a mailbox goes on in the trace of who sent it.
2. A collector that is away, slow or broken changes no verdict, and no run waits for it: only the
   end of tracing does, and of the process, for `timeout` at most.
3. What the spans say, and which of it is content, is in `_otel_attributes.py`.
"""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from ..errors import UsageError, shown
from ..runtime import tracing
from ..runtime.tracing import Kind
from ._otel_attributes import (
    EVALUATION,
    Attributes,
    begun,
    begun_content,
    ended,
    error_text,
    evaluations,
    identity,
)
from ._otel_export import Aside, Export, missing

__all__ = ["OtelTracing", "configure_otel"]

SCOPE = "weakincentives"
_TRACES = ("request", "sample")  # the kinds that begin one


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
    """Trace every run from now on; what it gives ends that, and can be used in a `with`.

    Spans go to the providers that are given, or else to those that the process has set for itself.
    Without either, and wherever an `endpoint` is given, they go to a collector by OTLP over HTTP:
    to `endpoint` (`http://127.0.0.1:4318`), or to where OTEL_EXPORTER_OTLP_ENDPOINT says.

    Only with `content` do they hold what samples, prompts, models and tools say. Spans are sent in
    the background; what is left when tracing ends, or the process, has `timeout` seconds. A second
    call ends what a first one began.
    """
    global _active
    if tracer_provider is not None and (endpoint or headers or service_name):
        raise UsageError("expected `tracer_provider`, or an `endpoint` to send to, got both")
    for name, given in (("get_tracer", tracer_provider), ("get_logger", logger_provider)):
        if given is not None and not callable(getattr(given, name, None)):
            raise UsageError(f"expected a provider with `{name}`, got {shown(given)}")
    if endpoint is not None and not str(endpoint).startswith(("http://", "https://")):
        raise UsageError(f"expected http:// or https:// in `endpoint`, got {shown(endpoint)}")
    if not isinstance(timeout, int | float) or not 0 <= timeout < math.inf:
        raise UsageError(f"expected a number of seconds >= 0 for `timeout`, got {shown(timeout)}")
    export = None
    if tracer_provider is None and endpoint is None:
        tracer_provider, its = _process_wide()
        logger_provider = logger_provider or (its if tracer_provider is not None else None)
    if tracer_provider is None:
        export = Export(endpoint, headers, service_name)
        tracer_provider = export.tracer_provider
        logger_provider = logger_provider or export.logger_provider
    if _active is not None:
        _active.shutdown()
    _active = OtelTracing(tracer_provider, logger_provider, export, content, timeout)
    return _active


class OtelTracing:
    """Tracing that is on, until `shutdown`."""

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
        self._open, self._aside = True, Aside()
        begin_to_send = partial(self._send, 0.0)  # after a run; nobody waits
        self._tracer = _Tracer(tracer_provider, logger_provider, content, begin_to_send)
        tracing.watch(self._tracer)
        atexit.register(self.shutdown)

    def flush(self, timeout: float | None = None) -> bool:
        """Send what is there now; whether that was done within `timeout` seconds."""
        return self._open and self._send(self._timeout if timeout is None else timeout)

    def shutdown(self) -> None:
        """Trace no more; what is left has its time to be sent. Providers of yours stay open."""
        global _active
        if not self._open:
            return
        self._open = False
        if _active is self:
            _active = None
        tracing.unwatch(self._tracer)
        atexit.unregister(self.shutdown)
        in_time = self._send(self._timeout)
        if self._export is not None:
            if not in_time:
                self._export.too_slow(self._timeout)
            self._export.give_up()
            self._aside(self._export.close, within=self._timeout)
        self._aside.close()

    def __enter__(self) -> OtelTracing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def _send(self, within: float) -> bool:
        calls = [each.force_flush for each in self._providers if hasattr(each, "force_flush")]
        return self._aside(*calls, within=within)


_active: OtelTracing | None = None


class _Begun(NamedTuple):
    kind: Kind
    name: str
    span: Any
    token: Any


class _Tracer:
    """What the engine tells of, as spans of OpenTelemetry, in its context."""

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
        self._known = context.create_key("weakincentives")  # which run and sample one is in
        kinds = trace.SpanKind
        self._kinds = {"model": kinds.CLIENT, "request": kinds.PRODUCER, "": kinds.INTERNAL}

    def begin(self, kind: Kind, name: str, facts: Mapping[str, Any]) -> _Begun:
        title, said = begun(kind, name, facts)
        here = self._context.get_current()
        parent, links = here, []
        # A run inside of a sample is of another dataset, and maybe of none that has a name.
        known = (kind != "run" and self._context.get_value(self._known, here)) or {}
        if kind in _TRACES:
            said = {**known, **said}
            above = self._trace.get_current_span(here).get_span_context()
            if above.is_valid and not above.is_remote:
                links = [self._trace.Link(above)]
                parent = self._trace.set_span_in_context(self._trace.INVALID_SPAN, here)
        how = self._kinds.get(kind, self._kinds[""])
        span = self._tracer.start_span(title, parent, how, said, links)
        if self._content and span.is_recording():
            span.set_attributes(begun_content(kind, facts))
        inside = self._trace.set_span_in_context(span, here)
        if kind in ("run", "sample"):
            inside = self._context.set_value(self._known, {**known, **identity(said)}, inside)
        return _Begun(kind, name, span, self._context.attach(inside))

    def end(self, begun: _Begun, facts: Mapping[str, Any], error: BaseException | None) -> None:
        kind, name, span, token = begun
        self._context.detach(token)
        try:
            if span.is_recording():
                said = ended(kind, facts, error, self._content)
                span.set_attributes(said)
                if "error.type" in said:
                    why = error_text(error) if error is not None and self._content else None
                    span.set_status(self._trace.StatusCode.ERROR, why)
            if kind == "evaluator":  # its span is left, so events belong to what was evaluated
                for said in evaluations(name, facts, error, self._content):
                    self._tell(said)
        finally:
            span.end()

    def carried(self) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        self._headers.inject(headers)
        return headers

    @contextmanager
    def continued(self, headers: Mapping[str, str]) -> Iterator[None]:
        here = self._context.get_current()
        token = self._context.attach(self._headers.extract(headers, here))
        try:
            yield
        finally:
            self._context.detach(token)

    def _tell(self, said: Attributes) -> None:
        """One score: a log record, or an event of the span where nobody takes log records."""
        said = {**(self._context.get_value(self._known) or {}), **said}
        if self._logger is None:
            self._trace.get_current_span().add_event(EVALUATION, said)
            return
        level = self._severity.WARN if "error.type" in said else self._severity.INFO
        self._logger.emit(
            timestamp=time.time_ns(),
            severity_number=level,
            severity_text=level.name,
            attributes=said,
            event_name=EVALUATION,
        )


def _process_wide() -> tuple[Any, Any]:
    """The providers that the process has set for itself, None for each that it has not."""
    try:
        from opentelemetry import _logs, trace
    except ImportError:
        raise missing("opentelemetry-api") from None
    set_ones = trace.get_tracer_provider(), _logs.get_logger_provider()
    spans, records = (each if hasattr(each, "force_flush") else None for each in set_ones)
    return spans, records
