"""Sessions with a known past, so that tests of evaluators need no mocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..runtime.events import TELEMETRY
from ..runtime.session import Session

__all__ = ["session_with"]


def session_with(*items: Any, tags: Mapping[str, str] | None = None) -> Session:
    """A session that has recorded these items, each in the slice of its type.

    >>> from weakincentives.runtime import ToolInvoked
    >>> session_with(ToolInvoked(name="search"))[ToolInvoked].latest().name
    'search'

    Telemetry that belongs to nobody becomes the session's own.
    """
    session = Session(tags=tags)
    for item in items:
        if type(item) in TELEMETRY and item.session_id is None:
            item = replace(item, session_id=session.session_id)
        session[type(item)].append(item)
    return session
