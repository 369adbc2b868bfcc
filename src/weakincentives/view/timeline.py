"""The activity of a session and of the judges of a sample: when, how long, and which tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from .. import serde
from ..errors import WinkError
from ..evals import EvalResult
from ..internal.formatting import events_of, pretty
from ..secrets import shorten

_TOOL, _MODEL = "ToolInvoked", "PromptExecuted"
_TELEMETRY = (_TOOL, _MODEL, "PromptRendered")
_MAX_EVENTS = 1_000
_MAX_ITEMS = 100  # per slice
_MAX_CHARS = 20_000  # per text

Slices = list[tuple[str, list[Any]]]


def session_slices(session: bytes | None) -> Slices:
    """Return the slices of a stored session, by the name of their type; none if it is damaged."""
    if session is None:
        return []
    try:
        found = serde.decode(session).get("slices", ())
        return [(each["type"].rpartition(":")[2], list(each["items"])) for each in found]
    except (WinkError, AttributeError, KeyError, TypeError):
        return []


def spans(found: Slices) -> dict[str, Any]:
    """Return model and tool calls as spans of time, in order, in milliseconds from the first.

    An event is recorded when its call ends. Calls without a duration have none here either.
    """
    timed: list[tuple[float, dict[str, Any]]] = []
    for kind, items in found:
        for item in items if kind in (_TOOL, _MODEL) else ():
            if isinstance(item, Mapping) and (end := _seconds(item.get("created_at"))) is not None:
                took = item.get("latency_ms")
                ms = float(took) if isinstance(took, int | float) else 0.0
                timed.append((end * 1000 - ms, _span(kind, item, ms)))
    timed.sort(key=lambda each: each[0])
    first = timed[0][0] if timed else 0.0
    listed = [{**span, "start": start - first} for start, span in timed[:_MAX_EVENTS]]
    return {
        "spans": listed,
        "total": max((each["start"] + each["ms"] for each in listed), default=0.0),
        "left_out": max(0, len(timed) - _MAX_EVENTS),
    }


def _span(kind: str, item: Mapping[str, Any], ms: float) -> dict[str, Any]:
    usage = item.get("usage")
    tokens = (
        sum(usage.get(name) or 0 for name in ("input_tokens", "output_tokens"))
        if isinstance(usage, Mapping)
        else None
    )
    is_tool = kind == _TOOL
    failed = item.get("success") is False if is_tool else item.get("error") is not None
    name = item.get("name") if is_tool else item.get("model") or item.get("prompt_name")
    return {
        "kind": "tool" if is_tool else "model",
        "name": str(name or kind),
        "ms": ms,
        "failed": failed,
        "error": shorten(str(item.get("error") or ""), _MAX_CHARS),
        "tokens": tokens,
        "cost": item.get("cost"),
        "call": item.get("call_id"),
    }


def call_durations(found: Slices) -> dict[str, dict[str, Any]]:
    """Return, by the id of a tool call, how long it took in all, and how often it was tried."""
    calls: dict[str, dict[str, Any]] = {}
    for kind, items in found:
        for item in items if kind == _TOOL else ():
            if isinstance(item, Mapping) and isinstance(call := item.get("call_id"), str):
                known = calls.setdefault(call, {"ms": None, "tries": 0})
                known["tries"] += 1
                if isinstance(took := item.get("latency_ms"), int | float):
                    known["ms"] = (known["ms"] or 0.0) + took
    return calls


def slices(found: Slices) -> list[dict[str, Any]]:
    """Return what the session holds besides telemetry: the state that agents and tools keep."""
    return [
        {
            "type": kind,
            "count": len(items),
            "items": [shorten(pretty(item), _MAX_CHARS) for item in items[:_MAX_ITEMS]],
        }
        for kind, items in found
        if kind not in _TELEMETRY and items
    ]


def events(session: bytes | None, *, has_messages: bool) -> Iterator[dict[str, str]]:
    """Yield the events of a session in order: time, kind, and fields as a text."""
    if session is None:
        return
    for number, (moment, kind, text) in enumerate(events_of(session, with_messages=has_messages)):
        if number == _MAX_EVENTS:
            return
        yield {"time": moment, "kind": kind, "text": shorten(text, _MAX_CHARS)}


def judge_calls(result: EvalResult[Any]) -> list[dict[str, Any]]:
    """Return what the judges of a result were asked, and what they answered."""
    return [
        {
            "judge": call.judge,
            "model": call.model,
            "messages": [{"role": each.role, "text": each.content} for each in call.messages],
            "answer": call.answer,
            "problem": call.problem,
            "tokens": None if call.usage is None else call.usage.total_tokens,
            "cost": call.cost,
            "ms": call.latency_ms,
        }
        for call in result.judge_calls
    ]


def _seconds(moment: Any) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (TypeError, ValueError):
        return None
