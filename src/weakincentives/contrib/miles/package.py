"""The modules of miles, which are imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...errors import UsageError


def miles_module(name: str) -> Any:
    """Return a module of miles; raise UsageError if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        if not str(getattr(error, "name", "")).startswith("miles"):
            raise
        raise UsageError(
            "data and samples of miles need the package `miles-rl`, which is not installed - run: "
            "pip install --no-deps miles-rl==0.0.2 (docs/miles.md says what it needs)"
        ) from None
