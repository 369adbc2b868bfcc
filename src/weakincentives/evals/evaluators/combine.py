"""Combine several scores into one that keeps each as a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._types import PASS_MARK, Metric, Score
from ..model.explain import PARTS, top_parts, with_reason


def combine_scores(
    scores: Sequence[Score],
    name: str,
    *,
    weights: Sequence[float] = (),
    value: Callable[[Iterable[float]], float] | None = None,
    passed: Callable[[Iterable[bool]], bool] = all,
    pass_mark: float | None = None,
) -> Score:
    """Return several scores as one, with a metric for each, named after its criterion.

    Without `value` the metrics count by weight (1.0 each) and the score is their mean. With
    `pass_mark` the mean decides, and `passed` does not. The metrics of the scores are kept as well,
    with weight 0, so that none counts twice. The reason is that of the parts that decided.
    """
    taken: set[str] = set()
    metrics, nested, has_reasons = [], [], False
    for index, score in enumerate(scores):
        part = _unused(score.criterion or f"part_{index + 1}", taken)
        weight = 0.0 if value else weights[index] if weights else 1.0
        verdict: dict[str, Any] = {"passed": score.passed}
        if score.reason:
            verdict["reason"] = score.reason
            has_reasons = True
        metrics.append(Metric(part, score.value, weight, verdict))
        if score.metrics:
            nested.append((index, score))
    for index, score in nested:
        part = metrics[index].name
        unused = [(metric, _unused(metric.name, taken, part)) for metric in score.metrics]
        names = {metric.name: name for metric, name in reversed(unused)}
        metrics += [_tracked(metric, name, names) for metric, name in unused]
        if parts := top_parts(score):
            metrics[index] = _with_parts(metrics[index], [names[each] for each in parts])
    combined = Score(
        value([score.value for score in scores]) if value else None,
        passed([score.passed for score in scores]),
        "",
        metrics,
        name,
    )
    if pass_mark is not None:
        combined = Score(None, combined.value >= pass_mark, "", combined.metrics, name)
    # Most scores pass without a reason, and this runs for every sample.
    return with_reason(combined) if has_reasons or not combined.passed else combined


def _tracked(metric: Metric, name: str, names: Mapping[str, str]) -> Metric:
    """Return a copy with weight 0; keep pass or fail in its metadata if it was weighted."""
    metadata = metric.metadata
    if metric.weight > 0 and not isinstance(metadata.get("passed"), bool):
        metadata = {**metadata, "passed": metric.value >= PASS_MARK}
    copy = Metric(name, metric.value, 0.0, metadata)
    if isinstance(parts := metadata.get(PARTS), list):
        copy = _with_parts(copy, [names.get(each, each) for each in parts])
    return copy


def _with_parts(metric: Metric, parts: list[str]) -> Metric:
    return Metric(metric.name, metric.value, metric.weight, {**metric.metadata, PARTS: parts})


def _unused(name: str, taken: set[str], owner: str = "") -> str:
    """Return the name, made unique: by its owner first, then by a number."""
    if name in taken and owner:
        name = f"{owner}/{name}"
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free
