"""Integrations with other services and tools. Import the one that you need."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tracing_env import configure_from_environment as configure_from_environment
else:
    from ..internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
