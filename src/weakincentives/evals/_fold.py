"""Several scores as one that loses none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._score import PASS_MARK, Metric, Score, metric_of

__all__ = ["fold"]


def fold(
    scores: Sequence[Score],
    name: str,
    *,
    weights: Sequence[float] = (),
    value: Callable[[Iterable[float]], float] | None = None,
    passed: Callable[[Iterable[bool]], bool] = all,
) -> Score:
    """Several scores as one, which keeps each as a metric named after its criterion.

    Without `value` the metrics count by weight (1.0 each) and the score is their mean. Metrics
    that the scores brought along are kept as well, tracked only, so that none counts twice.
    """
    taken: set[str] = set()
    metrics, brought, reasons = [], [], []
    for index, score in enumerate(scores):
        part = _unused(score.criterion or f"part_{index + 1}", taken)
        weight = 0.0 if value else weights[index] if weights else 1.0
        verdict: dict[str, Any] = {"passed": score.passed}
        if score.reason:
            verdict["reason"] = score.reason
            reasons.append(score.reason)
        metrics.append(metric_of(part, score.value, weight, verdict))
        if score.metrics:
            brought.append((part, score.metrics))
    for part, tracked in brought:
        metrics += [_tracked(m, _unused(m.name, taken, part)) for m in tracked]
    return Score(
        value([score.value for score in scores]) if value else None,
        passed([score.passed for score in scores]),
        "; ".join(reasons),
        metrics,
        name,
    )


def _tracked(metric: Metric, name: str) -> Metric:
    """The metric without its weight; one that counted stays visible as a verdict of its own."""
    metadata = metric.metadata
    if metric.weight > 0 and not isinstance(metadata.get("passed"), bool):
        metadata = {**metadata, "passed": metric.value >= PASS_MARK}
    return Metric(name, metric.value, 0.0, metadata)


def _unused(name: str, taken: set[str], owner: str = "") -> str:
    """The name, made different from those taken: by its owner first, then by a number."""
    if name in taken and owner:
        name = f"{owner}/{name}"
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free
