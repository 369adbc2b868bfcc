"""Neighbours: what connects WINK to services and tools of others. Import the one that you need."""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily

if TYPE_CHECKING:
    from ._tracing_env import configure_from_environment

__all__ = ["configure_from_environment"]

__getattr__, __dir__ = _lazily(__name__, {"configure_from_environment": "._tracing_env"})
