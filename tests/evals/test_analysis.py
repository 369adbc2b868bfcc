"""Groups and slices of results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from weakincentives.errors import UsageError
from weakincentives.evals import EvalReport, EvalResult, Score
from weakincentives.evals.analysis import flaky, group_by, slices, summarize
from weakincentives.evals.stats import flaky as flaky_groups, rate_interval


def result(id: str, value: float = 1.0, error: str | None = None, **metadata: Any) -> Any:
    return EvalResult(id, Score(value), error=error, metadata=metadata)


RESULTS = [
    result("1", 1.0, level=5),
    result("2", 0.0, level=1),
    result("3", 0.5, level=5),
    result("4", 0.0, error="lost", level=5),
]


@pytest.mark.parametrize("key", ["level", lambda result: result.metadata["level"]])
def test_groups_are_in_order_of_first_appearance(key: Any) -> None:
    groups = group_by(RESULTS, key)

    assert list(groups) == [5, 1]
    assert [result.sample_id for result in groups[5]] == ["1", "3", "4"]
    assert group_by([], key) == {}


def test_a_summary_leaves_errors_out_of_the_mean_and_counts_them() -> None:
    summary = summarize(group_by(RESULTS, "level")[5])

    assert (summary["mean"], summary["min"], summary["max"]) == (0.75, 0.5, 1.0)
    assert (summary["n"], summary["errors"], summary["total"]) == (2, 1, 3)
    assert summarize(RESULTS) == EvalReport(RESULTS).summary
    assert summarize([])["mean"] == 0.0


def test_a_result_that_cannot_be_grouped_is_named() -> None:
    with pytest.raises(UsageError, match=r"expected 'topic' .* got level - sample '1'"):
        group_by(RESULTS, "topic")
    with pytest.raises(UsageError, match=r"got \['a'\] - sample '9'"):
        group_by([result("9", tags=["a"])], "tags")


def test_slices_have_intervals_and_small_ones_a_warning() -> None:
    many = [result(f"s{n}", float(n % 2), level=1) for n in range(30)]

    hard, easy = slices([*RESULTS[:1], *many], "level")
    assert (hard.value, hard.few, easy.value, easy.few) == (5, True, 1, False)
    assert str(easy) == "1: 15/30 passed, 0 errors (50.0%, 95% interval 33.2% to 66.8%, n = 30)"
    assert str(hard).endswith("n = 1) - few: fewer than 20 samples, too few to say much")
    assert (easy.score.estimate, easy.score.known, hard.score.known) == (0.5, True, False)


def test_epochs_in_a_slice_are_clustered_by_sample() -> None:
    second_epoch = [replace(result, epoch=2) for result in RESULTS[:3]]

    (only_slice,) = slices([*RESULTS[:3], *second_epoch], lambda result: "all")
    assert (only_slice.rate.n, only_slice.rate.clusters, only_slice.score.clusters) == (6, 3, 3)
    assert only_slice.few


ATTEMPTS = [
    EvalResult(name, Score(float(passed)), epoch=epoch, error="lost" if passed == "0" else None)
    for name, row in {"sure": "11", "even": "10", "lost": "00"}.items()
    for epoch, passed in enumerate(row, 1)
]


@pytest.mark.parametrize("results", [ATTEMPTS, EvalReport(ATTEMPTS), EvalReport(ATTEMPTS).results])
def test_flaky_takes_a_report_or_its_results(results: Any) -> None:
    assert flaky(results) == {"even": rate_interval(1, 2)}
    assert flaky(RESULTS) == {}


def test_a_report_instead_of_groups_is_refused_with_the_right_function() -> None:
    with pytest.raises(UsageError, match=r"use weakincentives\.evals\.analysis\.flaky"):
        flaky_groups(EvalReport(ATTEMPTS))  # type: ignore[type-var]


def test_epochs_of_a_report_give_pass_at_k_and_pass_hat_k() -> None:
    report = EvalReport(ATTEMPTS)

    assert str(report.epoch_stats) == "pass@2 66.7%, pass^2 33.3%, 1 of 3 samples flaky"
    assert report.summary["pass_at_k"] == pytest.approx(2 / 3)
    assert (report.summary["pass_hat_k"], report.summary["flaky"]) == (pytest.approx(1 / 3), 1)
    assert EvalReport(RESULTS).epoch_stats is None
    assert "flaky" not in EvalReport(RESULTS).summary


def test_experiments_and_unfinished_samples_are_separate() -> None:
    other = [replace(result, experiment_name="other") for result in ATTEMPTS]

    stats = EvalReport([*ATTEMPTS, *other[:3]]).epoch_stats

    assert stats is not None
    assert (stats.k, stats.samples, [*stats.flaky]) == (2, 4, ["even (baseline)"])
