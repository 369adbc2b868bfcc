"""The details of a sample, as texts that the page only lays out.

Rules of this file:
1. Every text goes through `escape_control_chars`: what a model or a tool wrote is data.
2. Everything is there. Only a text of extreme length is cut, with a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....errors import SerializationError
from ....internal.escaping import as_text, escape_all, escape_control_chars
from ....internal.formatting import duration, events_of, money, number, pretty
from ....secrets import redact
from ...comparison.flips import flip_details
from ...comparison.result import Flip, RunComparison
from ...model.report import EvalResult
from ...model.result import JUDGE_USAGE
from ...store.overview import row_of_key
from ...store.run_store import RunStore, StoredRow

_TEXT_CHARS = 400_000  # per text
_TRANSCRIPT_CHARS = 4_000_000
_MAX_EVENTS, _EVENT_CHARS = 5_000, 20_000


# ── a sample ────────────────────────────────────────────────────────────────────────────────────


def item_of(row: StoredRow) -> dict[str, Any]:
    """Return everything that a row opens to: `core_of` and, if there is one, `transcript_of`."""
    trajectory = row.result.trajectory
    core = core_of(row, _TEXT_CHARS)
    if row.session is None and not (trajectory and trajectory.messages):
        return core
    return core | transcript_of(row, _TEXT_CHARS)


def core_of(row: StoredRow, max_chars: int) -> dict[str, Any]:
    """Return the facts, parts (title, text) and scores (passed, value, name, reason) of a row."""
    result = row.result
    parts: list[tuple[str, Any]] = []
    if result.error is not None:
        parts.append((f"Error ({result.error_source or 'agent'})", result.error_message))
        if result.error_details is not None and result.error_details.traceback:
            parts.append(("Traceback", result.error_details.traceback))
    if result.sample is not None:
        parts.append(("Input", result.sample.input))
        if result.sample.expected is not None:
            parts.append(("Expected", result.sample.expected))
    if result.trajectory is not None:
        parts.append(("Output", result.output))
    if result.metadata:
        parts.append(("Metadata", result.metadata))
    if result.trajectory is not None and result.trajectory.metadata:
        parts.append(("Metadata of the trajectory", result.trajectory.metadata))
    scores = [
        (int(score.passed), score.value, score.criterion or "score", as_text(score.reason))
        for score in result.scores
    ]
    named = {name for _, _, name, _ in scores}.union(JUDGE_USAGE)  # the facts have these
    scores += [
        (-1, metric.value, metric.name, "")  # weight 0: it has no verdict
        for metric in (result.score.metrics if result.success else ())
        if metric.name not in named
    ]
    texts = iter(
        _escaped(
            [
                *(_cut(pretty(value), max_chars) for _, value in parts),
                *(text for *_, name, reason in scores for text in (name, _cut(reason, max_chars))),
            ]
        )
    )
    return {
        "f": ", ".join(filter(None, _facts(result))),
        "p": [[title, next(texts)] for title, _ in parts],
        "s": [[passed, number(value), next(texts), next(texts)] for passed, value, _, _ in scores],
    }


def _facts(result: EvalResult[Any]) -> Iterator[str]:
    yield f"epoch {result.epoch}" if result.epoch > 1 else ""
    yield f"attempt {result.attempt}" if result.attempt > 1 else ""
    yield duration(result.latency_ms / 1000)
    if result.judge_usage is not None:
        yield f"judges {result.judge_tokens:,} tokens"
    yield f"judges {money(result.judge_cost)}" if result.judge_cost is not None else ""
    if (trajectory := result.trajectory) is None:
        return
    if (usage := trajectory.usage) is not None:
        counts = ((usage.input_tokens, "in"), (usage.output_tokens, "out"))
        sides = ", ".join(f"{n:,} {side}" for n, side in counts if n is not None)
        yield f"{usage.total_tokens:,} tokens ({sides or 'in and out unknown'})"
    yield money(trajectory.cost) if trajectory.cost is not None else ""
    yield (
        f"stop reason {escape_control_chars(trajectory.stop_reason)}"
        if trajectory.stop_reason
        else ""
    )


def transcript_of(row: StoredRow, max_chars: int) -> dict[str, Any]:
    """Return messages (role, name, text, calls), events (time, kind, text), and how many more."""
    trajectory = row.result.trajectory
    messages: list[list[Any]] = []
    chars = left_out = 0
    for message in trajectory.messages if trajectory else ():
        if chars > _TRANSCRIPT_CHARS:
            left_out += 1
            continue
        calls = [
            [escape_control_chars(part) for part in (call.name, call.id)]
            + [_shortened(pretty(dict(call.arguments)), max_chars)]
            for call in message.tool_calls
        ]
        name = " ".join(filter(None, (message.name, message.tool_call_id)))
        text = _shortened(message.content, max_chars)
        chars += len(text) + sum(len(call[2]) for call in calls)
        messages.append([message.role, escape_control_chars(name), text, calls])
    events = list(_events(row, bool(messages)))
    left_out += max(0, len(events) - _MAX_EVENTS)
    return {"m": messages, "e": events[:_MAX_EVENTS], "n": left_out}


def _events(row: StoredRow, has_messages: bool) -> Iterator[list[str]]:
    events = () if row.session is None else events_of(row.session, with_messages=has_messages)
    try:
        for moment, kind, text in events:
            moment, kind = escape_control_chars(moment), escape_control_chars(kind)
            yield [moment, kind, _shortened(text, _EVENT_CHARS)]
    except SerializationError as error:
        yield ["", "unreadable", escape_control_chars(str(error))]


def flip_of(compared: RunComparison, store: RunStore, flip: Flip) -> dict[str, Any]:
    """Return what changed in a sample.

    The row of the other run (`item_of`), its verdict, the differences of the outputs (kind, text),
    and the criteria whose verdict changed (name, both reasons, both verdicts).
    """
    row = row_of_key(store, compared.before.run_id, *flip.before)
    (details,) = flip_details(compared, store, store, (flip,))
    return {
        "a": None if row is None else item_of(row),
        "v": "" if details.before is None else details.before.verdict,
        "d": [[part.kind, escape_control_chars(part.text)] for part in details.diff],
        "c": [
            [
                *_escaped([each.criterion or "score", each.reason_before, each.reason_after]),
                int(each.before),
                int(each.after),
            ]
            for each in details.criteria
        ],
    }


# ── values as text ──────────────────────────────────────────────────────────────────────────────


def _shortened(text: str, max_chars: int) -> str:
    return escape_control_chars(_cut(text, max_chars))


def _cut(text: str, max_chars: int) -> str:
    """Return at most the first characters of a text, redacted before it is cut."""
    if len(text) <= max_chars or len(text := redact(text)) <= max_chars:
        return text
    left_out = f"[{len(text) - max_chars:,} more characters are left out here]"
    return f"{text[:max_chars]}…\n{left_out}"


def _escaped(texts: list[str]) -> list[str]:
    """Escape texts; for all texts of a sample at once, which is quicker than one by one."""
    escaped = iter(escape_all([text for text in texts if text]))
    return [next(escaped) if text else "" for text in texts]
