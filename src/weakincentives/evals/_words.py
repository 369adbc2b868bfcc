"""Durations, sums, values and events as people read them, in a terminal and on a page.

What is not ours in them is not escaped here: that is for the place that shows it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from .. import serde
from ..errors import SerializationError
from ._visible import as_text

__all__ = ["duration", "events_of", "money", "number", "readable"]

_LINE = 76  # letters of JSON that stay on one line
_UNSAID = {"event_id", "session_id", "created_at"}  # fields of an event that tell nothing here
_REPEATED = {"PromptRendered": {"rendered_prompt"}, "PromptExecuted": {"result"}}  # by messages


def duration(seconds: float) -> str:
    """As people say it: 3 ms, 0.8 s, 12 s, 3:05 min, 1:02:03 h."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def money(dollars: float) -> str:
    """US dollars: cents, or three digits of less than a dollar: $1,234.50, $0.25, $0.0042."""
    if not 0 < abs(dollars) < 1:
        return f"${dollars:,.2f}"
    whole, _, rest = f"{dollars:.{2 - math.floor(math.log10(abs(dollars)))}f}".partition(".")
    return f"${whole}.{rest[:2]}{rest[2:].rstrip('0')}"


def number(value: float) -> str:
    """A score, or a mean of them: 0.125, 1,234.500, 12,345,678, 1.23e+12."""
    size = abs(value)
    return f"{value:,.3f}" if size < 1e6 else f"{value:,.0f}" if size < 1e9 else f"{value:.3g}"


def readable(value: Any) -> str:
    """Text as it is, data as JSON: on one line where it is short."""
    if isinstance(value, str):
        return value or "(empty)"
    if value is None:
        return "(none)"
    line = as_text(value)
    if len(line) <= _LINE or line[0] not in "[{":
        return line
    try:
        return json.dumps(serde.plain(value), indent=2, ensure_ascii=False)
    except SerializationError:
        return line


def events_of(session: bytes, *, said: bool) -> Iterator[tuple[str, str, str]]:
    """Time, kind and words of what a session tells: as it happened, then what has no time.

    With `said`, what the messages beside it say too is left out.
    """
    timed: list[tuple[str, str, Any]] = []
    others: list[tuple[str, str, Any]] = []
    for each in serde.decode(session).get("slices", ()):
        kind = each["type"].rpartition(":")[2]
        for item in each["items"]:
            moment = item.get("created_at") if isinstance(item, Mapping) else None
            (timed if isinstance(moment, str) else others).append((moment or "", kind, item))
    for moment, kind, item in [*sorted(timed, key=lambda event: event[0]), *others]:
        unsaid = _UNSAID | _REPEATED.get(kind, set()) if said else _UNSAID
        yield moment[11:23], kind, _told(item, unsaid)


def _told(item: Any, unsaid: set[str]) -> str:
    """What an event says, without what says nothing."""
    if not isinstance(item, Mapping):
        return as_text(item)
    told = {name: value for name, value in _filled(item).items() if name not in unsaid}
    return "  ".join(f"{name}={as_text(value)}" for name, value in told.items())


def _filled(item: Mapping[str, Any]) -> dict[str, Any]:
    filled = ((name, _filled(v) if isinstance(v, Mapping) else v) for name, v in item.items())
    return {name: value for name, value in filled if value not in (None, "", [], {})}
