"""Send runs to OpenTelemetry as traces, by its conventions for generative AI."""

from .configure import OtelTracing, configure_otel

__all__ = ["OtelTracing", "configure_otel"]
