"""Record the spans that an agent emits while its sample runs, whichever framework emits them.

Rules of this file:
1. OpenTelemetry is never imported here before the user's code has: without it, the cost is one
   look-up.
2. A span belongs to the attempt of its parent span or, at the top, to the attempt in whose context
   it starts. So it is found even in threads that a framework starts without a context.
3. Our own spans, and those of evaluators, are not the agent's.
4. Nothing here raises into the agent.
"""

from __future__ import annotations

import sys
import threading
from functools import cache
from typing import Any
from weakref import WeakSet

from ...errors import MissingExtraError, UsageError, short_repr
from ...rollouts.recording import (
    ModelCall,
    Recording,
    SpanRecord,
    ToolRun,
    current_recording,
)
from ...rollouts.spans import is_relevant, items_of_spans
from ...secrets import logger_for

logger = logger_for(__name__)

OUR_SCOPE = "weakincentives"  # the instrumentation scope of `contrib.opentelemetry`
MAX_SPANS = 100_000  # per attempt whose parents are kept, model-related or not

_owners: dict[int, Recording] = {}  # the open recording of every span, by the span's id
_watched: WeakSet[Any] = WeakSet()
_watching = threading.Lock()


def watch_global_provider() -> None:
    """Record the spans of the process's tracer provider, if there is one by now."""
    try:
        trace = sys.modules.get("opentelemetry.trace")
        provider = None if trace is None else trace.get_tracer_provider()
        if provider not in _watched and hasattr(provider, "add_span_processor"):
            watch(provider)
    except Exception as error:
        logger.warning("cannot record the spans of agents: %r", error)


def watch(provider: Any) -> None:
    """Record the spans of a tracer provider; without one, of a new one, which becomes global."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError:
        raise MissingExtraError("opentelemetry-sdk", "otel", "`record.spans`") from None
    if provider is None:
        provider = trace.get_tracer_provider()
        if not hasattr(provider, "add_span_processor"):
            provider = TracerProvider()
            trace.set_tracer_provider(provider)
    if not callable(getattr(provider, "add_span_processor", None)):
        raise UsageError(
            "expected a tracer provider with `add_span_processor`, got "
            f"{short_repr(provider)} - pass opentelemetry.sdk.trace.TracerProvider()"
        )
    with _watching:
        if provider not in _watched:
            _watched.add(provider)
            provider.add_span_processor(_processor())


def take_spans(recording: Recording) -> list[ModelCall | ToolRun]:
    """Return what the spans of a closed recording say, and release them."""
    for id in tuple(recording.parents):
        _owners.pop(id, None)
    return items_of_spans(recording.spans, recording.parents)


def _begin(span: Any) -> None:
    if span.instrumentation_scope.name == OUR_SCOPE:
        return
    parent = 0 if span.parent is None else span.parent.span_id
    recording = _owners.get(parent) or current_recording.get()
    if recording is None or recording.closed or len(recording.parents) >= MAX_SPANS:
        return
    id = span.get_span_context().span_id
    recording.parents[id] = parent
    _owners[id] = recording
    if recording.closed:  # by another thread, just now
        _owners.pop(id, None)


def _end(span: Any) -> None:
    recording = _owners.get(span.get_span_context().span_id)
    attributes = dict(span.attributes or {})
    if recording is None or not is_relevant(attributes):
        return
    events = tuple((event.name, dict(event.attributes or {})) for event in span.events)
    bodies = (attributes, *(body for _, body in events))
    characters = sum(len(v) for body in bodies for v in body.values() if isinstance(v, str))
    if recording.has_room(characters):
        recording.spans.append(
            SpanRecord(
                span.get_span_context().span_id,
                span.name,
                span.start_time,
                span.end_time,
                attributes,
                events,
                _error(span, attributes, events),
            )
        )


def _error(span: Any, attributes: dict[str, Any], events: Any) -> str | None:
    if span.status.status_code.name != "ERROR":
        return None
    for name, body in events:
        if name == "exception" and body.get("exception.message"):
            return f"{body.get('exception.type', 'Exception')}: {body['exception.message']}"
    # Some instrumentations put a whole traceback there.
    description = (span.status.description or "").partition("Traceback (most recent call last)")[0]
    return description.strip() or str(attributes.get("error.type") or "failed")


@cache
def _processor() -> Any:
    """Return the processor for all providers; its class needs the SDK, which is imported by now."""
    from opentelemetry.sdk.trace import SpanProcessor

    class AgentSpans(SpanProcessor):  # type: ignore[misc]
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            _safely(_begin, span)

        def on_end(self, span: Any) -> None:
            _safely(_end, span)

    return AgentSpans()


def _safely(handle: Any, span: Any) -> None:
    try:
        handle(span)
    except Exception as error:
        logger.warning("cannot record a span of the agent: %r", error)
