"""Names of functions, classes and objects, for people."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any


def display_name(thing: Any) -> str:
    """Return the name of a function or class, or of an object's class."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return str(named.__qualname__).replace("<locals>.", "")


def did_you_mean(name: str, known: Iterable[str], count: int = 3, like: float = 0.6) -> str:
    """Return a question with the known names that are like this one; empty if none is."""
    from difflib import get_close_matches  # only for an error

    near = get_close_matches(name, sorted(known), count, like)
    return f"did you mean {' or '.join(near)}?" if near else ""


def file_name(name: str) -> str:
    """Return a name of any characters as the name of a file."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    return safe.lstrip(".") or "run"
