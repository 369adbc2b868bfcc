"""Tests look at a server when it has got everything; runs do not wait for that."""

from __future__ import annotations

from weakincentives.contrib import langsmith

__all__ = ["sent"]


def sent() -> None:
    """Wait until LangSmith has what was traced by now, as long as the tracing has patience."""
    if langsmith._current is not None:
        langsmith._current.flush()
