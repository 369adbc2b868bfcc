"""Format durations, money, numbers and events for people, in a terminal and on a page.

Untrusted text is not escaped here, but where it is displayed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from .. import serde
from ..errors import SerializationError
from .escaping import as_text

_MAX_LINE = 76  # characters of JSON on one line
# Fields of an event without use for people; `calls` is what the time of an attempt is split by.
_OMITTED = {"event_id", "session_id", "created_at", "calls"}
# Fields that the messages of the conversation repeat.
_IN_MESSAGES = {"PromptRendered": {"rendered_prompt"}, "PromptExecuted": {"result"}}


def duration(seconds: float) -> str:
    """Return a duration: 3 ms, 0.8 s, 12 s, 3:05 min, 1:02:03 h."""
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
    """Return US dollars to the cent, or to three digits below $1: $1,234.50, $0.25, $0.0042."""
    if not 0 < abs(dollars) < 1:
        return f"${dollars:,.2f}"
    whole, _, rest = f"{dollars:.{2 - math.floor(math.log10(abs(dollars)))}f}".partition(".")
    return f"${whole}.{rest[:2]}{rest[2:].rstrip('0')}"


def tokens_text(agent: int | None, judges: int = 0, *, unknown: int = 0) -> str:
    """Return the tokens of a run, and for how many of its rows those of the agent are `unknown`.

    >>> tokens_text(1_200), tokens_text(200, 1_000), tokens_text(None)
    ('1,200 tokens', '1,200 tokens (agent 200, judges 1,000)', 'tokens unknown')
    """
    if agent is None:
        return f"{judges:,} tokens (judges; agent unknown)" if judges else "tokens unknown"
    parts = [f"agent {agent:,}", f"judges {judges:,}"] if judges else []
    return _with_parts(f"{agent + judges:,} tokens", parts, unknown)


def cost_text(
    agent: float | None, judges: float | None = None, *, unknown: int = 0, judged: bool = False
) -> str:
    """Return the cost of a run, as `tokens_text` does; `judged` is whether judges were asked.

    >>> cost_text(1.2), cost_text(0.2, 1.0), cost_text(None, 1.0)
    ('$1.20', '$1.20 (agent $0.20, judges $1.00)', '$1.00 (judges; agent unknown)')
    >>> cost_text(1.2, judged=True)
    '$1.20 (agent; judges unknown)'
    """
    if agent is None:
        return "cost unknown" if judges is None else f"{money(judges)} (judges; agent unknown)"
    if judges is None and judged:
        return f"{money(agent)} (agent; judges unknown)"
    parts = [f"agent {money(agent)}", f"judges {money(judges)}"] if judges else []
    return _with_parts(money(agent + (judges or 0.0)), parts, unknown)


def _with_parts(total: str, parts: list[str], unknown: int) -> str:
    if unknown:
        parts = [*parts, f"unknown for {unknown:,} {'row' if unknown == 1 else 'rows'}"]
    return f"{total} ({', '.join(parts)})" if parts else total


def file_size(size: int) -> str:
    """Return a number of bytes: 3 KB, 1.2 MB, 3.4 GB; at least 1 KB.

    >>> file_size(1_234_567)
    '1.2 MB'
    """
    if size < 999_500:
        return f"{max(1, round(size / 1e3))} KB"
    return f"{size / 1e6:.1f} MB" if size < 999_950_000 else f"{size / 1e9:.1f} GB"


def number(value: float) -> str:
    """Return a score or a mean of scores: 0.125, 1,234.500, 12,345,678, 1.23e+12."""
    size = abs(value)
    return f"{value:,.3f}" if size < 1e6 else f"{value:,.0f}" if size < 1e9 else f"{value:.3g}"


def verdict_word(passed: bool | None, otherwise: str = "") -> str:
    """Return `pass` or `fail`; another word if there is no verdict."""
    return otherwise if passed is None else "pass" if passed else "fail"


def pluralize(count: int, noun: str) -> str:
    """Return `1 sample`, `1,200 samples`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def pretty(value: Any) -> str:
    """Return text unchanged, and data as JSON: on one line if it is short."""
    if isinstance(value, str):
        return value or "(empty)"
    if value is None:
        return "(none)"
    line = as_text(value)
    if len(line) <= _MAX_LINE or line[0] not in "[{":
        return line
    try:
        return json.dumps(serde.plain(value), indent=2, ensure_ascii=False)
    except SerializationError:
        return line


def events_of(session: bytes, *, with_messages: bool) -> Iterator[tuple[str, str, str]]:
    """Yield time, kind and fields of a session's events in order, those without a time last.

    With `with_messages`, fields that the messages of the conversation repeat are left out.
    """
    timed: list[tuple[str, str, Any]] = []
    others: list[tuple[str, str, Any]] = []
    for each in serde.decode(session).get("slices", ()):
        kind = each["type"].rpartition(":")[2]
        for item in each["items"]:
            moment = item.get("created_at") if isinstance(item, Mapping) else None
            (timed if isinstance(moment, str) else others).append((moment or "", kind, item))
    for moment, kind, item in [*sorted(timed, key=lambda event: event[0]), *others]:
        omitted = _OMITTED | _IN_MESSAGES.get(kind, set()) if with_messages else _OMITTED
        yield moment[11:23], kind, _format_event(item, omitted)


def _format_event(item: Any, omitted: set[str]) -> str:
    """Return the fields of an event that have a value."""
    if not isinstance(item, Mapping):
        return as_text(item)
    fields = {name: value for name, value in _non_empty(item).items() if name not in omitted}
    return "  ".join(f"{name}={_field(value)}" for name, value in fields.items())


def _field(value: Any) -> str:
    """Return a field of an event; a fraction has three digits that mean something."""
    if not isinstance(value, float) or not math.isfinite(value):
        return as_text(value)
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) >= 0.1 else f"{value:.3g}"


def _non_empty(item: Mapping[str, Any]) -> dict[str, Any]:
    fields = ((name, _non_empty(v) if isinstance(v, Mapping) else v) for name, v in item.items())
    return {name: value for name, value in fields if value not in (None, "", [], {})}
