"""Send runs to LangSmith: runs as experiments, samples as traces, scores as feedback."""

from .configure import LangSmithTracing, configure_wink

__all__ = ["LangSmithTracing", "configure_wink"]
