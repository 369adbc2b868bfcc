"""Tracing that the environment asks for: `WINK_TRACING=otel`, `langsmith`, or both with a comma."""

from __future__ import annotations

import os
from contextlib import ExitStack

from ..errors import UsageError

__all__ = ["configure_from_environment"]

KNOWN = ("langsmith", "otel")
# OpenTelemetry's own variable, and what it may say for content in spans.
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
YES = {"1", "true", "span_only", "span_and_event"}


def configure_from_environment() -> ExitStack:
    """Turn on what WINK_TRACING names, until what this gives is closed: it can be a `with` block.

    Where each sends, and as whom, is what its own variables say: OTEL_*, LANGSMITH_*.
    """
    words = os.environ.get("WINK_TRACING", "").replace(",", " ").lower().split()
    for word in words:
        if word not in KNOWN:
            raise UsageError(f"expected {' or '.join(KNOWN)} in WINK_TRACING, got {word!r}")
    with ExitStack() as on:
        if "otel" in words:
            from .opentelemetry import configure_otel

            content = os.environ.get(CONTENT, "").strip().lower() in YES
            on.enter_context(configure_otel(content=content))
        if "langsmith" in words:
            from .langsmith import configure_wink

            on.enter_context(configure_wink())
        return on.pop_all()
