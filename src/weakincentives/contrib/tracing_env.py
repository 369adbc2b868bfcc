"""Tracing by environment variable: `WINK_TRACING=otel`, `langsmith`, or both with a comma."""

from __future__ import annotations

import os
from contextlib import ExitStack

from ..errors import UsageError

KNOWN = ("langsmith", "otel")
# OpenTelemetry's own variable, and its values that put content into spans.
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
YES = {"1", "true", "span_only", "span_and_event"}


def configure_from_environment() -> ExitStack:
    """Turn on the tracing that WINK_TRACING names, until the returned stack is closed.

    Addresses and keys come from the variables of each service: OTEL_*, LANGSMITH_*.
    """
    words = os.environ.get("WINK_TRACING", "").replace(",", " ").lower().split()
    for word in words:
        if word not in KNOWN:
            raise UsageError(f"expected {' or '.join(KNOWN)} in WINK_TRACING, got {word!r}")
    with ExitStack() as on:
        if "otel" in words:
            from .opentelemetry.configure import configure_otel

            content = os.environ.get(CONTENT, "").strip().lower() in YES
            on.enter_context(configure_otel(content=content))
        if "langsmith" in words:
            from .langsmith.configure import configure_wink

            on.enter_context(configure_wink())
        return on.pop_all()
