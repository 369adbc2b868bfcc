"""Why a sample failed: the one explanation that every output shows.

The criteria that failed, with their reasons, and only those:

    all_of, composite   the parts that failed
    any_of              all parts, since each of them failed
    weighted, rubrics   the parts with a weight that failed; if each passed and the mean is too low,
                        those that lowered it: at or below the mean
    negate              `not_…`, since what it negates passed
    a part of parts     its own parts, by the same rules

A judge's reason begins with the label that it picked. A criterion that gives no reason is explained
by its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple

from .._types import Metric, Score, is_criterion, part_of
from .judge_calls import judge_labels
from .result import EvalResult

PARTS = "parts"  # the key of a metric's metadata that names the parts of a combination


class FailedCriterion(NamedTuple):
    """A criterion that failed, and why."""

    criterion: str
    reason: str

    def __str__(self) -> str:
        return ": ".join(filter(None, self))


def failed_criteria(result: EvalResult[Any]) -> tuple[FailedCriterion, ...]:
    """Return the criteria that failed with their reasons; none if it passed or has an error."""
    score = result.score
    if result.error is not None or score.passed:
        return ()
    parts = _deciding(score)
    if score.reason and not any(part.reason for part in parts) and score.reason != _joined(parts):
        return (FailedCriterion(score.criterion, score.reason),)  # a user's own score
    labels = judge_labels(result.judge_calls)
    return tuple(
        FailedCriterion(
            part.criterion,
            ": ".join(filter(None, (labels.get(part.criterion), _reason(part)))),
        )
        for part in parts
    )


def why_failed(result: EvalResult[Any]) -> str:
    """Return in one line why a result failed: its error, or `failed_criteria`.

    For a result that passed, return the reason of its score, which may be empty.
    """
    if result.error is not None:
        return f"{result.error_source or 'agent'}: {result.error_message}"
    if result.score.passed:
        return result.score.reason
    return "; ".join(map(str, failed_criteria(result)))


def failure_message(result: EvalResult[Any]) -> str:
    """Return the score of a result that failed, and why it failed."""
    return f"score {result.score.value:g} does not pass: {why_failed(result)}"


def _reason(part: Score) -> str:
    return part.reason or f"failed with {part.value:g}"


# ── scores with parts ───────────────────────────────────────────────────────────────────────────


def with_reason(score: Score) -> Score:
    """Return a score that combines others with the reason for its verdict: that of its parts.

    If it failed, the reason names the parts that failed; if it passed, those that passed and have
    a reason.
    """
    parts = _deciding(score)
    if score.passed:
        parts = [part for part in parts if part.reason]
    return replace(score, reason=_joined(parts))


def top_parts(score: Score) -> list[str]:
    """Return the names of the parts that count in the score, without the parts of these."""
    return [metric.name for metric in _counted(_top(_criteria(score)))]


def _joined(parts: Iterable[Score]) -> str:
    return "; ".join(str(FailedCriterion(part.criterion, _reason(part))) for part in parts)


def _deciding(score: Score) -> Sequence[Score]:
    """Return the parts that decided on a score; a score without parts decided on itself."""
    criteria = _criteria(score)
    return _leaves(_top(criteria), score, criteria) or [score]


def _criteria(score: Score) -> dict[str, Metric]:
    return {metric.name: metric for metric in score.metrics if is_criterion(metric)}


def _top(criteria: Mapping[str, Metric]) -> list[Metric]:
    nested = {name for metric in criteria.values() for name in _names(metric)}
    return [metric for name, metric in criteria.items() if name not in nested]


def _counted(metrics: list[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric.weight > 0] or metrics


def _leaves(metrics: list[Metric], whole: Score, criteria: Mapping[str, Metric]) -> list[Score]:
    """Return those of the metrics that decided on the whole; in place of a combination, its parts.

    They have the verdict of the whole. If all passed and the whole failed, its mean is too low:
    then they are those that are not above the mean.
    """
    counted = _counted(metrics)
    scores = {metric.name: part_of(metric) for metric in counted}
    same = [metric for metric in counted if scores[metric.name].passed is whole.passed]
    if not same and not whole.passed:
        low = [score for score in scores.values() if score.value <= whole.value]
        return [replace(score, reason=_lowered(score, whole)) for score in low]
    leaves: list[Score] = []
    for metric in same:
        others = {name: other for name, other in criteria.items() if other is not metric}
        inner = [others[name] for name in _names(metric) if name in others]
        score = scores[metric.name]
        leaves += _leaves(inner, score, others) or [score]
    return leaves


def _lowered(part: Score, whole: Score) -> str:
    reason = f"its value of {part.value:g} lowers the mean to {whole.value:g}"
    return f"{reason}: {part.reason}" if part.reason else reason


def _names(metric: Metric) -> Sequence[str]:
    """Return the names of the parts of a combination, as `combine_scores` keeps them."""
    names = metric.metadata.get(PARTS)
    # Metadata may hold anything.
    return [name for name in names if name.__class__ is str] if isinstance(names, list) else ()


# ── types that are never equal ──────────────────────────────────────────────────────────────────

_BUILT_IN = (str, bytes, list, tuple, dict, set)
_MISMATCH = re.compile(r"`([^`]+)` never equals `([^`]+)`")


def never_equal(output: Any, expected: Any) -> str:
    """Return "`QAOutput` never equals `str`", if that is so; else an empty string.

    It says only what is certain: numbers of all types may be equal, and a class may define when it
    is equal to others.
    """
    kinds = _kind(output), _kind(expected)
    if None in kinds or kinds[0] is kinds[1]:
        return ""
    return f"`{type(output).__name__}` never equals `{type(expected).__name__}`"


def _kind(value: Any) -> Any:
    """Return what the type can be equal to: itself, a built-in type, numbers; None if unknown."""
    cls = type(value)
    if isinstance(value, int | float | complex):
        return complex
    equal: Any = cls.__eq__
    built_in = next((base for base in _BUILT_IN if equal is base.__eq__), None)
    if built_in is not None:
        return built_in
    # Those of a dataclass and of a Pydantic model are equal to the same class only.
    code = getattr(equal, "__code__", None)
    generated = getattr(code, "co_filename", "") == "<string>" and is_dataclass(cls)
    inherited = str(getattr(equal, "__module__", "")).startswith("pydantic.")
    return cls if generated or inherited else None


def type_mismatch(results: Iterable[EvalResult[Any]]) -> str:
    """Return a warning if every result failed because types can never be equal; else "".

    The reasons of `exact_match` and `one_of` say so for each sample.
    """
    found: set[tuple[str, str]] = set()
    for result in results:
        match = _MISMATCH.search(result.score.reason)
        if result.error is not None or result.passed or match is None:
            return ""
        found.add((match[1], match[2]))
    if len(found) != 1:
        return ""
    ((output, expected),) = found
    return (
        f"every sample failed because outputs are `{output}` and expected values are "
        f"`{expected}`, which are never equal - return a `{expected}` from the agent, or compare a "
        "field of the output in an evaluator"
    )
