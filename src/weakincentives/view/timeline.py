"""The activity of a session and of the judges of a sample: when, how long, and which tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import serde
from ..errors import WinkError
from ..evals import EvalResult
from ..evals.model.timing import split_time
from ..internal.formatting import events_of, pretty
from ..runtime.events import CallSpan
from ..secrets import shorten

_TOOL = "ToolInvoked"
_TELEMETRY = (_TOOL, "PromptExecuted", "PromptRendered")
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


def spans(calls: list[CallSpan], total_ms: float) -> dict[str, Any]:
    """Return model and tool calls as spans of time, in milliseconds from the first.

    `total` is the time of the attempt, or that of its calls if it is longer; `split` has what of it
    was spent in models and in tools.
    """
    first = calls[0].start if calls else 0.0
    listed: list[dict[str, Any]] = [
        {
            "kind": call.kind,
            "name": call.name,
            "start": (call.start - first) * 1000,
            "ms": call.ms or 0.0,
            "failed": call.error is not None,
            "error": shorten(call.error or "", _MAX_CHARS),
            "usage": call.usage,
            "cost": call.cost,
            "stop_reason": call.stop_reason,
            "call": call.call_id,
        }
        for call in calls[:_MAX_EVENTS]
    ]
    return {
        "spans": listed,
        "total": max([total_ms, *(each["start"] + each["ms"] for each in listed)]),
        "split": split_time(calls, total_ms),
        "left_out": len(calls) - len(listed),
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


def session_state(found: Slices) -> list[dict[str, Any]]:
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


def session_events(session: bytes | None, *, has_messages: bool) -> Iterator[dict[str, str]]:
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
