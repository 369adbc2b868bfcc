"""Names of functions, classes and objects, for people."""

from __future__ import annotations

import functools
from typing import Any


def display_name(thing: Any) -> str:
    """Return the name of a function or class, or of an object's class."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return str(named.__qualname__).replace("<locals>.", "")


def file_name(name: str) -> str:
    """Return a name of any characters as the name of a file."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    return safe.lstrip(".") or "run"
