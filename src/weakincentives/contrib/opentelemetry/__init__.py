"""Send runs to OpenTelemetry as traces, by its conventions for generative AI."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .configure import OtelTracing as OtelTracing, configure_otel as configure_otel
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
