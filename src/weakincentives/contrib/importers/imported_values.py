"""Shared by the readers of other systems' files: JSON, numbers, messages, results."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from ...adapters.wire import wire_calls
from ...chat import ChatMessage, Role
from ...errors import ReportError, short_repr
from ...evals import EvalResult, Metric, Sample, Score, Trajectory
from ...evals.evaluators.combine import combine_scores
from ...evals.model import ErrorDetails
from ...evals.model.result import ErrorSource
from ...secrets import shorten
from .files import ResultFile

_ROLES = get_args(Role)
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Warning|Timeout|Exit))\b")
_MAX_TRACEBACK_CHARS = 8_000
_MAX_PROBLEM_CHARS = 300


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def json_object(file: ResultFile, system: str, *keys: str) -> Mapping[str, Any]:
    """Return the content of a JSON file that has to be an object with these keys."""
    data = file.document()
    if not isinstance(data, Mapping) or not set(keys) <= set(data):
        raise file.error(
            f"expected {' and '.join(f'`{key}`' for key in keys)} in a file of {system}, got "
            f"{short_repr(list(data) if isinstance(data, Mapping) else data)}"
        )
    return data


@contextmanager
def expecting(what: str, file: ResultFile, where: int | str) -> Iterator[None]:
    """Raise ReportError with the place of a record that does not have the expected form.

    The block only reads values that another system wrote, so whatever it raises is about them.
    """
    try:
        yield
    except (ReportError, MemoryError):
        raise
    except Exception as error:
        kind = type(error)
        got = f"none with {error}" if kind is KeyError else f"{kind.__name__}: {error}"
        raise file.error(
            f"expected {what}, got {shorten(got, _MAX_PROBLEM_CHARS)} - export the file again: it "
            "may be damaged, or of an unknown version",
            where,
        ) from error


# ── values ──────────────────────────────────────────────────────────────────────────────────────


def finite_or_none(number: Any) -> float | None:
    """Return a finite number as a float, and None for anything else, a bool too."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    try:
        return float(number) if math.isfinite(number) else None
    except OverflowError:  # a whole number beyond the range of a float
        return None


def milliseconds(seconds: Any) -> int:
    """Return seconds as milliseconds; 0 if they are unknown."""
    return round(1000 * (finite_or_none(seconds) or 0.0))


def content_text(content: Any) -> str:
    """Return the text of a message: itself, or that of its parts, of which images are left out."""
    if isinstance(content, list):
        parts = [part.get("text") or "" for part in content if isinstance(part, Mapping)]
        return "\n".join(filter(None, parts))
    return "" if content is None else content if isinstance(content, str) else json.dumps(content)


def chat_message(data: Mapping[str, Any]) -> ChatMessage:
    """Return a message whose tool calls are in OpenAI's form, or have name and arguments."""
    role: Any = data.get("role")
    return ChatMessage(
        role if role in _ROLES else "user",
        content_text(data.get("content")),
        wire_calls(data),
        data.get("tool_call_id"),
        data.get("name"),
    )


def last_reply(messages: Sequence[ChatMessage]) -> str:
    """Return the text of the model's last message; "" if there is none."""
    return next((each.content for each in reversed(messages) if each.role == "assistant"), "")


def parsed_error(message: str, traceback: str = "") -> ErrorDetails | None:
    """Return the type of an exception that a message begins with, and the end of its traceback."""
    found = _EXCEPTION.match(message)
    if found is None and not traceback:
        return None
    return ErrorDetails(found[1] if found else "", "", traceback[-_MAX_TRACEBACK_CHARS:])


# ── results ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ImportedOutcome:
    """The outcome of one attempt in another system: scores, or an error with its source."""

    scores: Sequence[Score] = ()
    tracked: Sequence[Metric] = ()
    error: str | None = None
    source: ErrorSource | None = None
    traceback: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    whole: Score | None = None  # the system's own verdict, if it is not that all scores must pass


def result_of(
    sample: Sample[Any, Any],
    trajectory: Trajectory[Any] | None,
    outcome: ImportedOutcome,
    epoch: int = 1,
) -> EvalResult[Any]:
    """Return the result of an attempt. One without any score is an evaluator error, never a 0."""
    error, source = outcome.error, outcome.source
    if error is None and not outcome.scores and outcome.whole is None:
        error, source = "expected a score, got none", "evaluator"
    return EvalResult(
        sample.id,
        Score(0.0, False) if error is not None else combined_score(outcome),
        (trajectory.latency_ms if trajectory else None) or 0,
        error,
        sample,
        trajectory,
        outcome.metadata,
        epoch=epoch,
        error_source=source,
        error_details=None if error is None else parsed_error(error, outcome.traceback),
    )


def combined_score(outcome: ImportedOutcome) -> Score:
    """Return the scores of an attempt as one: the system's own verdict, or all must pass."""
    scores, whole = list(outcome.scores), outcome.whole
    if whole is not None:
        score = combine_scores(
            scores,
            whole.criterion,
            value=lambda values: whole.value,
            passed=lambda verdicts: whole.passed,
        )
        if whole.reason and not score.reason:
            score = replace(score, reason=whole.reason)
    elif len(scores) == 1:
        score = scores[0]
    else:
        score = combine_scores(scores, "all_of")
    return replace(score, metrics=(*score.metrics, *outcome.tracked))
