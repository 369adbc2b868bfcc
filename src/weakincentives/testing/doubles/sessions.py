"""Sessions with given content, so that tests of evaluators need no mocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.session import Session


def session_with(*items: Any, tags: Mapping[str, str] | None = None) -> Session:
    """Return a session that has recorded these items, each in the slice of its type.

    >>> from weakincentives.runtime import ToolInvoked
    >>> session_with(ToolInvoked(name="search"))[ToolInvoked].latest().name
    'search'
    """
    session = Session(tags=tags)
    for item in items:
        session[type(item)].append(item)
    return session
