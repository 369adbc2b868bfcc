"""`run_trend`: the trend of the pass rate over several runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from weakincentives.errors import UsageError
from weakincentives.evals import EvalReport, EvalResult, Score
from weakincentives.evals.comparison import run_trend
from weakincentives.evals.comparison.trend import adjusted_steps


def report(passing: Iterable[int], samples: Iterable[int] = range(40), **fields: Any) -> Any:
    passing = set(passing)
    results = [EvalResult(str(n), Score(float(n in passing)), **fields) for n in samples]
    return EvalReport(results, run_id=fields.get("run_id", "run"))


def test_a_decline_is_reported_in_points_per_run() -> None:
    trend = run_trend([report(range(35 - 4 * run)) for run in range(5)], looks=1)

    assert trend.outcome == "falls"
    assert str(trend).startswith("falls by 10.0 points a run, 95% interval ")
    assert trend.line is not None
    assert trend.line.total.estimate == pytest.approx(-0.4)


def test_a_step_is_reported_with_the_runs_around_it() -> None:
    passing = [30, 30, 30, 12, 12, 12]
    runs = [report(range(n), run_id=f"r{run}") for run, n in enumerate(passing)]

    trend = run_trend(runs)

    assert trend.stepped
    assert "changed between r2 and r3: -45.0 points, 95% interval " in str(trend)


def test_two_runs_have_no_trend() -> None:
    trend = run_trend([report(range(30)), report(range(10))])

    assert (trend.line, trend.outcome) == (None, "none")
    assert str(trend) == "no trend: expected 3 runs or more to compare, got 2"


def test_only_common_samples_count_and_a_warning_says_how_many() -> None:
    runs = [report(range(30)), report(range(30)), report(range(30), samples=range(20, 60))]

    trend = run_trend(runs)

    assert trend.line is not None
    assert trend.line.slope.n == 20
    assert "only 20 of 60 samples count for the trend" in trend.warnings[0]


def test_runs_without_a_common_sample_have_no_trend() -> None:
    runs = [report([], samples=range(10 * run, 10 * run + 10)) for run in range(3)]

    trend = run_trend(runs)

    assert trend.line is None
    assert "only 0 of 30 samples" in str(trend)


def test_a_sample_counts_once_for_any_number_of_epochs() -> None:
    def report_with_epochs(count: int) -> EvalReport[Any]:
        results = [
            EvalResult(str(n), Score(float(epoch <= n % 3)), epoch=epoch)
            for n in range(12)
            for epoch in range(1, count + 1)
        ]
        return EvalReport(results)

    trend = run_trend([report_with_epochs(2), report_with_epochs(2), report_with_epochs(4)])

    assert trend.line is not None
    assert trend.line.slope.n == 12
    assert trend.line.slope.estimate == pytest.approx((0.25 - 0.5) / 2)


def test_agent_errors_are_failures_and_other_errors_are_left_out() -> None:
    def report_with_errors(source: Any) -> EvalReport[Any]:
        bad = [EvalResult(str(n), Score(0.0), error="x", error_source=source) for n in range(8)]
        return EvalReport([*bad, *report(range(40), samples=range(8, 40)).results])

    all_pass = report(range(40))
    agent, other = (
        run_trend([all_pass, all_pass, report_with_errors(source)])
        for source in ("agent", "evaluator")
    )

    assert agent.line is not None
    assert agent.line.slope.estimate == pytest.approx(-0.1)
    assert other.line is not None
    assert (other.line.slope.estimate, other.line.slope.n) == (0.0, 32)
    assert "8 errors left out of the trend: 8 of evaluator" in other.warnings


def test_samples_with_the_same_metadata_value_are_a_cluster() -> None:
    def clustered(passing: int) -> EvalReport[Any]:
        results = [
            EvalResult(str(n), Score(float(n < passing)), metadata={"doc": n // 10})
            for n in range(40)
        ]
        return EvalReport(results)

    trend = run_trend([clustered(n) for n in (35, 30, 20)], cluster_by="doc")

    assert trend.line is not None
    assert trend.line.slope.clusters == 4
    assert "n = 40 in 4 clusters" in str(trend)


def test_more_looks_make_steps_less_significant() -> None:
    assert adjusted_steps([0.001, None], looks=1) == pytest.approx([0.01, 1.0])
    assert adjusted_steps([0.001, None], looks=20) == pytest.approx([0.095, 1.0])


def test_run_ids_need_a_store() -> None:
    with pytest.raises(UsageError, match="a `store` for the ids of runs"):
        run_trend(["one", "two"])
