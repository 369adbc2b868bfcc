"""Where the time of an attempt went: its calls of models and tools, and the rest."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import WinkError
from ...rollouts import Trajectory
from ...runtime.events import CallSpan, PromptExecuted, ToolInvoked
from ...runtime.session import SessionSnapshot


def calls_of(trajectory: Trajectory[object] | None, session: bytes | None) -> list[CallSpan]:
    """Return the calls of models and tools in order: those of the session, or the recorded ones.

    A session of an earlier version has one span for all model calls of a prompt.
    """
    calls = [] if trajectory is None else [*trajectory.calls]
    if session is not None and not calls:
        try:
            view = SessionSnapshot.from_bytes(session)
            prompts, tools = view[PromptExecuted].all(), view[ToolInvoked].all()
        except WinkError:
            return []
        for prompt in prompts:
            calls += prompt.calls or (_span_of(prompt),)
        calls += map(_span_of, tools)
    return sorted(calls, key=lambda call: call.start)


def _span_of(event: PromptExecuted | ToolInvoked) -> CallSpan:
    """Return an event, which is recorded when its call ends, as a span."""
    start, ms = event.created_at.timestamp() - (event.latency_ms or 0) / 1000, event.latency_ms
    if isinstance(event, PromptExecuted):
        return CallSpan(
            kind="model",
            name=event.model or event.prompt_name,
            start=start,
            ms=ms,
            usage=event.usage,
            cost=event.cost,
            error=event.error,
        )
    error = None if event.success else event.error or "the tool reported a failure"
    return CallSpan(
        kind="tool", name=event.name, start=start, ms=ms, error=error, call_id=event.call_id
    )


def split_time(calls: Iterable[CallSpan], total_ms: float) -> dict[str, float]:
    """Return the milliseconds of model, tools and other, as far as there are such calls.

    What ran at the same time counts once, for the model first. If the time of the model is unknown,
    `rest` has it, and there is no `other`.
    """
    calls = list(calls)
    models = [call for call in calls if call.kind == "model"]
    tools = [call for call in calls if call.kind == "tool"]
    is_known = bool(models) and all(call.ms is not None for call in models)
    model = _covered_ms(models) if is_known else 0.0
    both = _covered_ms(calls) if is_known else _covered_ms(tools)
    split = {"model": model} if is_known else {}
    if tools:
        split["tools"] = both - model
    # An earlier version stored the time of the model as that of the attempt, in whole milliseconds.
    if split and total_ms + 1 > both:
        split["other" if is_known else "rest"] = max(0.0, total_ms - both)
    return split


def _covered_ms(calls: Iterable[CallSpan]) -> float:
    """Return how long at least one of the calls ran."""
    covered = end = 0.0
    for call in sorted(calls, key=lambda call: call.start):
        begin = max(call.start, end)
        end = max(end, call.start + (call.ms or 0) / 1000)
        covered += max(0.0, end - begin)
    return covered * 1000
