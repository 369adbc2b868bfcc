"""Integrations with other services and tools. Import the one that you need."""

from typing import TYPE_CHECKING

from ..internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .tracing_env import configure_from_environment

__all__ = ["configure_from_environment"]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".tracing_env": "configure_from_environment",
    },
)
