"""Figures of a whole run that a mean of its scores does not give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...errors import UsageError
from ..model.result import EvalResult
from ..runs.report import EvalReport
from ..stats.intervals import Interval, mean_interval
from ..stats.pass_rate import pass_rate
from ..stats.ratios import ratio_interval


def simpleqa_summary(report: EvalReport[Any]) -> dict[str, Interval]:
    """Return SimpleQA's figures, each with its interval; errors are left out.

    `correct`, `incorrect` and `not_attempted` are shares of all answers, `given_attempted` is the
    share of correct ones among those attempted, and `f1` is the harmonic mean of that and
    `correct`. A figure of no answers is left out.
    """
    results = _scored(report)
    clusters = [result.sample_id for result in results]
    outcomes = {
        name: [_metric(result, f"is_{name}") for result in results]
        for name in ("correct", "incorrect", "not_attempted")
    }
    figures = {name: _share(values, clusters) for name, values in outcomes.items()}
    attempted = [1.0 - value for value in outcomes["not_attempted"]]
    if not sum(attempted):
        return figures
    right = outcomes["correct"]
    tried = [index for index, value in enumerate(attempted) if value]
    figures["given_attempted"] = _share(
        [right[index] for index in tried], [clusters[index] for index in tried]
    )
    # 2 C / (N + A), with C correct ones among A that were attempted, of N.
    figures["f1"] = ratio_interval(
        [2 * value for value in right], [1 + value for value in attempted], clusters=clusters
    )
    return figures


def healthbench_mean(report: EvalReport[Any]) -> Interval:
    """Return the mean of the scores, clipped to 0..1 with its interval; errors are left out.

    The scores themselves are not clipped: a bad answer counts below zero.
    """
    results = _scored(report)
    mean = mean_interval(
        [result.score.value for result in results],
        clusters=[result.sample_id for result in results],
    )
    clipped = {
        name: min(max(getattr(mean, name), 0.0), 1.0) for name in ("estimate", "low", "high")
    }
    return replace(mean, **clipped)


FIGURES: dict[str, Callable[[EvalReport[Any]], dict[str, Interval]]] = {
    "healthbench": lambda report: {"mean_clipped": healthbench_mean(report)},
    "simpleqa": simpleqa_summary,
}
"""The figures of a whole run, by the name of the criterion that they are of."""


def benchmark_figures(report: EvalReport[Any]) -> dict[str, Interval]:
    """Return the figures of a run that its pass rate does not give; none for most runs.

    They are of runs with one criterion of `FIGURES`, and of results without an error.
    """
    names = {result.score.criterion for result in report.counted if result.success}
    if len(names) != 1 or (name := next(iter(names))) not in FIGURES:
        return {}
    return FIGURES[name](report)


def _scored(report: EvalReport[Any]) -> list[EvalResult[Any]]:
    results = [result for result in report.counted if result.success]
    if not results:
        raise UsageError("expected a report with scores, got none without an error")
    return results


def _share(values: Sequence[float], clusters: Sequence[str]) -> Interval:
    """Return a share as the pass rate of the run is given: epochs of a sample are one cluster."""
    return pass_rate(zip(clusters, map(bool, values), strict=True))


def _metric(result: EvalResult[Any], name: str) -> float:
    for metric in result.score.metrics:
        if metric.name == name:
            return metric.value
    raise UsageError(
        f"expected the metric `{name}` in the score of {result.sample_id!r}, found none - "
        "score the run with simpleqa()"
    )
