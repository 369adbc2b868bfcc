"""Send runs to LangSmith: runs as experiments, samples as traces, scores as feedback."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .configure import LangSmithTracing as LangSmithTracing, configure_wink as configure_wink
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
