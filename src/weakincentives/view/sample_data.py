"""One row of a run, whole, as the sample screen shows it."""

from __future__ import annotations

from typing import Any

from ..evals import EvalResult, Trajectory
from ..evals.model.judge_calls import judge_labels
from ..evals.model.result import JUDGE_USAGE
from ..evals.model.timing import calls_of
from ..evals.reporting.documents import sample_data
from ..evals.runs.table import known_latency
from ..evals.store import StoredRow
from ..internal.escaping import as_text
from ..internal.formatting import pretty
from ..internal.text_differences import word_diff
from .timeline import (
    call_durations,
    judge_calls,
    session_events,
    session_slices,
    session_state,
    spans,
)

_MAX_CHARS = 100_000  # per text; the page requests the rest separately
MAX_MESSAGES = 200  # in one answer


def row_data(row: StoredRow, first_message: int = 0) -> dict[str, Any]:
    """Return everything that a row has, with messages from a number on."""
    result, session = row.result, session_slices(row.session)
    trajectory, sample = result.trajectory or Trajectory(), result.sample
    return {
        **sample_data(result),
        "run_id": result.run_id,
        "attempt": result.attempt,
        "agent_version": row.agent_version,
        "latency_ms": known_latency(result.latency_ms, result.error_source),
        "traceback": result.error_details.traceback if result.error_details else "",
        "input": None if sample is None else value_data(sample.input),
        "expected": None
        if sample is None or sample.expected is None
        else value_data(sample.expected),
        "output": None if result.trajectory is None else value_data(result.output),
        "diff": _diff(result),
        "metadata": {key: pretty(value) for key, value in result.metadata.items()},
        "trajectory_metadata": {key: pretty(value) for key, value in trajectory.metadata.items()},
        "scores": scores_data(result),
        "usage": trajectory.usage,
        "cost": trajectory.cost,
        "stop_reason": trajectory.stop_reason,
        "tool_errors": dict(trajectory.tool_errors),
        "judge_tokens": result.judge_tokens,
        "judge_cost": result.judge_cost,
        "messages": messages_data(result, first_message),
        "message_count": len(trajectory.messages),
        "events": list(session_events(row.session, has_messages=bool(trajectory.messages))),
        "timing": spans(calls_of(result.trajectory, row.session), result.latency_ms),
        "calls": call_durations(session),
        "slices": session_state(session),
        "judges": judge_calls(result),
        "worker": result.worker,
        "problem": row.problem,
    }


def messages_data(result: EvalResult[Any], first: int) -> list[dict[str, Any]]:
    """Return the messages from a number on, as many as an answer has."""
    messages = result.trajectory.messages if result.trajectory else ()
    return [
        _message(messages[n], n) for n in range(first, min(first + MAX_MESSAGES, len(messages)))
    ]


def sibling_data(result: EvalResult[Any]) -> dict[str, Any]:
    """Return a row beside other epochs of its sample."""
    output = cut(as_text(result.output))["text"][:500]
    latency = known_latency(result.latency_ms, result.error_source)
    return {**sample_data(result), "latency_ms": latency, "output": output}


def scores_data(result: EvalResult[Any]) -> list[dict[str, Any]]:
    """Return the criteria, the failing ones first, then metrics without a verdict."""
    labels = judge_labels(result.judge_calls)
    scores = [
        {
            "name": score.criterion or "score",
            "label": labels.get(score.criterion, ""),
            "passed": score.passed,
            "value": score.value,
            "reason": as_text(score.reason),
        }
        for score in result.scores
    ]
    named = {score["name"] for score in scores}
    scores.sort(key=lambda score: bool(score["passed"]))
    metrics = result.score.metrics if result.success else ()
    return scores + [
        {"name": metric.name, "label": "", "passed": None, "value": metric.value, "reason": ""}
        for metric in metrics
        if metric.name not in named and metric.name.rpartition(".")[2] not in JUDGE_USAGE
    ]


def _diff(result: EvalResult[Any]) -> Any:
    """Return what differs between the expected output and the output, word by word."""
    if result.sample is None or result.sample.expected is None or result.trajectory is None:
        return ()
    expected, output = pretty(result.sample.expected), pretty(result.output)
    return word_diff(expected, output) if output else ()


def _message(message: Any, number: int) -> dict[str, Any]:
    return {
        "number": number,
        "role": message.role,
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        **cut(message.content),
        "calls": [
            {"id": call.id, "name": call.name, "arguments": pretty(dict(call.arguments))}
            for call in message.tool_calls
        ],
    }


def value_data(value: Any) -> dict[str, Any]:
    """Return a value as a text, and whether it is data rather than text."""
    return {**cut(pretty(value)), "data": not isinstance(value, str)}


def cut(text: str) -> dict[str, Any]:
    """Return the beginning of a text, and how many more characters it has."""
    more = max(0, len(text) - _MAX_CHARS)
    return {"text": text[:_MAX_CHARS], "more": more}
