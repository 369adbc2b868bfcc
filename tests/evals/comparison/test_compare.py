"""Comparing runs: how rows are paired, which differences are claimed, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

from weakincentives.chat import TokenUsage
from weakincentives.errors import ReportError, UsageError
from weakincentives.evals import (
    EvalReport,
    EvalResult,
    Metric,
    RunStore,
    Score,
    Trajectory,
    open_store,
)
from weakincentives.evals.comparison.baseline_files import load_baseline, save_baseline
from weakincentives.evals.comparison.compare import compare_runs, compare_several, flips_between
from weakincentives.evals.comparison.outcomes import report_outcomes, stored_outcomes
from weakincentives.evals.stats import holm
from weakincentives.evals.stats.intervals import ends_text
from weakincentives.evals.store import CriterionInfo, RunManifest, StoredRow


def result(sample: int, passed: bool, **fields: Any) -> EvalResult[Any]:
    return EvalResult(f"s{sample:03}", Score(float(passed)), **fields)


def report(passed: Iterable[bool], **fields: Any) -> EvalReport[Any]:
    return EvalReport([result(n, good, **fields) for n, good in enumerate(passed)])


def first_pass(passing: int, n: int = 40) -> list[bool]:
    return [sample < passing for sample in range(n)]


def store_run(
    store: RunStore, run_id: str, results: Iterable[EvalResult[Any]], **manifest: Any
) -> None:
    digest, status = manifest.pop("digest", ""), manifest.pop("status", "complete")
    store.begin(RunManifest(run_id=run_id, created_at=datetime.now(UTC), **manifest))
    for position, result in enumerate(results):
        row_result = replace(result, run_id=run_id)
        store.put(StoredRow(result=row_result, position=position, sample_digest=digest))
    store.finish(run_id, status)


# ── verdicts ────────────────────────────────────────────────────────────────────────────────────


def test_a_significant_difference_has_its_interval_and_test() -> None:
    assert str(compare_runs(report(first_pass(20)), report(first_pass(30)))) == (
        "B is better: +25.0 points, 95% interval 14.0 to 40.2, n = 40 (mid-p McNemar p < 0.001)"
    )
    assert str(compare_runs(report(first_pass(30)), report(first_pass(20)))).startswith(
        "B is worse: -25.0 points, 95% interval -40.2 to -14.0"
    )


def test_without_a_significant_difference_the_detectable_one_is_stated() -> None:
    compared = compare_runs(report(first_pass(20)), report(first_pass(21)))

    assert str(compared).startswith("no difference shown: +2.5 points (95% interval")
    assert str(compared).endswith("; this comparison could have detected 16.2 points")


def test_equal_runs_have_a_detectable_difference() -> None:
    measure = compare_runs(report(first_pass(20)), report(first_pass(20))).measure

    assert measure.outcome == "none"
    # If 40 samples are fixed with this probability, five or more are fixed in 80 % of runs.
    assert binom.sf(4, 40, measure.detectable) == pytest.approx(0.8, abs=1e-3)


def test_very_few_samples_cannot_show_a_difference() -> None:
    compared = compare_runs(report(first_pass(0, 4)), report(first_pass(4, 4)))

    assert compared.measure.outcome == "none"
    assert str(compared).endswith("with this few, none can be shown")


def test_five_changes_in_the_same_direction_are_the_minimum_for_a_difference() -> None:
    assert compare_runs(report(first_pass(20)), report(first_pass(24))).measure.outcome == "none"
    five = compare_runs(report(first_pass(20)), report(first_pass(25)))

    assert str(five).startswith("B is better: +12.5 points")
    assert str(five).endswith("(mid-p McNemar p = 0.031)")


# ── pairs ───────────────────────────────────────────────────────────────────────────────────────


def test_flips_are_listed_and_all_are_counted() -> None:
    compared = compare_runs(report([True, True, False, False]), report([True, False, True, False]))

    assert [(flip.sample, flip.fixed) for flip in compared.flips] == [
        ("s001", False),
        ("s002", True),
    ]
    assert (compared.both, compared.neither) == (1, 1)
    assert (compared.fixed, compared.broken) == (1, 1)


def test_the_order_of_the_rows_does_not_matter() -> None:
    a, b = report(first_pass(20)), report(first_pass(30))
    shuffled = list(b.results)
    random.Random(0).shuffle(shuffled)

    assert str(compare_runs(a, EvalReport(shuffled))) == str(compare_runs(a, b))


def test_epochs_of_a_sample_are_a_cluster() -> None:
    rng = random.Random(1)
    a, b = (
        EvalReport([result(n, rng.random() < rate, epoch=e) for n in range(30) for e in (1, 2, 3)])
        for rate in (0.5, 0.6)
    )
    compared = compare_runs(a, b)

    assert compared.pairing == "epoch"
    assert (compared.measure.difference.delta.n, compared.measure.difference.delta.clusters) == (
        90,
        30,
    )
    assert "n = 90 in 30 samples" in str(compared)


def test_runs_with_different_epochs_are_compared_by_sample_with_a_warning() -> None:
    twice = EvalReport([result(n, n < 20, epoch=e) for n in range(40) for e in (1, 2)])
    compared = compare_runs(report(first_pass(30)), twice)

    assert compared.pairing == "sample"
    assert compared.measure.difference.delta.estimate == pytest.approx(-0.25)
    assert any("epochs differ (1 and 2)" in note for note in compared.warnings)


@pytest.mark.parametrize(
    ("before", "after", "flips"),
    [
        ([True], [True, False], (0, 0)),
        ([False], [True, False], (0, 0)),
        ([True], [False, False], (0, 1)),
        ([False], [True, True], (1, 0)),
        ([True], [True, False, False], (0, 1)),
        ([True, False], [True], (0, 0)),
    ],
)
def test_half_of_the_epochs_is_no_flip(
    before: list[bool], after: list[bool], flips: tuple[int, int]
) -> None:
    a, b = (
        EvalReport([result(n, passed, epoch=e) for n in range(9) for e, passed in enumerate(run)])
        for run in (before, after)
    )
    compared = compare_runs(a, b)

    assert (compared.fixed, compared.broken) == (9 * flips[0], 9 * flips[1])
    assert compared.both + compared.neither + compared.fixed + compared.broken == 9


def test_runs_without_a_common_sample_are_compared_unpaired() -> None:
    other = EvalReport([EvalResult(f"x{n}", Score(1.0)) for n in range(40)])
    compared = compare_runs(report(first_pass(20)), other)

    assert compared.pairing == "none"
    assert compared.measure.outcome == "better"
    assert str(compared).endswith("unpaired: the runs share no sample")


def test_rows_that_only_one_run_has_are_left_out_and_counted() -> None:
    compared = compare_runs(report(first_pass(20)), report(first_pass(20, 30)))

    assert compared.measure.difference.delta.n == 30
    assert any(note.startswith("10 rows of") for note in compared.warnings)


# ── errors, criteria, latency and cost ──────────────────────────────────────────────────────────


def test_an_error_is_not_a_pass_and_has_no_score() -> None:
    results = [*report(first_pass(40)).results[:30]]
    results += [EvalResult(f"s{n:03}", Score(0.0), error="gone") for n in range(30, 40)]
    compared = compare_runs(report(first_pass(40)), EvalReport(results))

    assert compared.broken == 10
    assert all(flip.error for flip in compared.flips)
    assert compared.measures["score"].difference.delta.n == 30
    assert any(
        "errors of the agent count as not passed: 0 in" in note for note in compared.warnings
    )


def scored(n: int, right: float, brief: float, **fields: Any) -> EvalResult[Any]:
    metrics = [Metric("right", right, weight=1), Metric("brief", brief, weight=1)]
    return EvalResult(f"s{n:03}", Score(metrics=metrics), **fields)


def test_all_measures_except_the_metric_are_adjusted_together() -> None:
    rng = random.Random(0)
    a = EvalReport([scored(n, 0.0, rng.random()) for n in range(30)])
    b = EvalReport([scored(n, float(n < 15), rng.random()) for n in range(30)])
    compared = compare_runs(a, b)

    right, brief = compared.measures["right"], compared.measures["brief"]
    assert (right.outcome, brief.outcome) == ("better", "none")
    # `right` equals `passed`: it is the same test.
    assert compared.measure.adjusted is right.adjusted is None
    others = [compared.measures[name] for name in ("score", "brief", "latency_ms")]
    p_values = [measure.difference.p_value for measure in others]
    assert [measure.adjusted for measure in others] == holm(p_values)
    assert str(compare_runs(a, b, metric="right")).startswith("B is better in right: +0.500")


def test_other_measures_are_adjusted_even_if_the_metric_has_no_difference() -> None:
    rng = random.Random(0)
    times = [rng.random() for _ in range(30)]
    a = EvalReport([EvalResult(f"{n}", Score(1.0), latency_ms=9) for n in range(30)])
    b = EvalReport(
        [EvalResult(f"{n}", Score(1.0), latency_ms=9 + round(9 * t)) for n, t in enumerate(times)]
    )
    faster = compare_runs(b, a).measures["latency_ms"]

    assert faster.outcome == "better"  # a clear change is still detected
    assert faster.adjusted == pytest.approx(5 * (faster.difference.p_value or 0.0))


def test_a_criterion_can_have_the_name_of_a_built_in_measure() -> None:
    metrics = [Metric("passed", 0.25, weight=1), Metric("cost", 0.5, weight=1)]
    run = EvalReport([EvalResult(str(n), Score(metrics=metrics)) for n in range(9)])
    measures = compare_runs(run, run).measures

    assert (measures["passed"].after, measures["criterion passed"].after) == (0.0, 0.25)
    assert "cost" not in measures


def test_lower_latency_tokens_and_cost_are_better() -> None:
    def report_with(factor: int) -> EvalReport[Any]:
        def usage_of(n: int) -> Trajectory[Any]:
            return Trajectory(usage=TokenUsage(factor * 10 + n % 3), cost=factor * 0.01)

        return EvalReport(
            [
                result(n, True, latency_ms=factor * 100 + n % 7 * factor, trajectory=usage_of(n))
                for n in range(20)
            ]
        )

    measures = compare_runs(report_with(2), report_with(1)).measures

    assert measures["latency_ms"].outcome == "better"
    assert measures["latency_ms"].difference.delta.estimate == pytest.approx(-102.85)
    assert measures["tokens"].difference.delta.estimate == -10
    assert measures["cost"].difference.delta.estimate == pytest.approx(-0.01)


def test_latency_and_cost_have_no_upper_bound() -> None:
    def report_with(slow: bool) -> EvalReport[Any]:
        trajectory = Trajectory(output="x", cost=0.004)
        rows = (result(n, True, trajectory=trajectory, latency_ms=int(slow)) for n in range(10))
        return EvalReport(rows)

    same = compare_runs(report_with(False), report_with(False), metric="latency_ms")
    assert same.measures["cost"].interval() == "interval unknown"
    assert same.measures["latency_ms"].interval() == "interval unknown"
    assert same.measure.detectable is None
    slower = compare_runs(report_with(False), report_with(True)).measures["latency_ms"]
    assert "McNemar" not in slower.evidence()


def test_an_interval_is_never_printed_as_a_point() -> None:
    rows = [result(n, True, latency_ms=10) for n in range(40)]
    later = [replace(row, latency_ms=13 + (n == 7)) for n, row in enumerate(rows)]

    measure = compare_runs(EvalReport(rows), EvalReport(later)).measures["latency_ms"]

    assert measure.interval() == "95% interval 3.0 to 3.1"
    assert ends_text(99.98, 99.99) == ("99.98", "99.99")
    assert ends_text(0.5, 0.5, 2) == ("0.50", "0.50")


def test_tokens_and_cost_are_not_compared_if_they_are_unknown() -> None:
    measures = compare_runs(report(first_pass(3)), report(first_pass(3))).measures

    assert {"tokens", "cost"}.isdisjoint(measures)
    with pytest.raises(UsageError, match="expected one of passed, score, latency_ms as metric"):
        compare_runs(report(first_pass(3)), report(first_pass(3)), metric="cost")


def test_slices_have_their_size_and_small_ones_are_marked() -> None:
    def report_with(passing: int) -> EvalReport[Any]:
        return EvalReport(
            [result(n, n < passing, metadata={"level": "hard" if n < 30 else 7}) for n in range(40)]
        )

    hard, rare = compare_runs(report_with(5), report_with(25), by="level").slices

    assert (hard.value, hard.n, hard.small, hard.measure.outcome) == ("hard", 30, False, "better")
    assert (rare.value, rare.n, rare.small, rare.measure.outcome) == ("7", 10, True, "none")
    assert hard.measure.adjusted is not None


def test_unpaired_slices_are_compared_if_both_runs_have_them() -> None:
    def report_with(ids: str, passing: int) -> EvalReport[Any]:
        return EvalReport(
            [
                EvalResult(f"{ids}{n}", Score(float(n < passing)), metadata={"k": n % 2 or ids})
                for n in range(60)
            ]
        )

    (odd,) = compare_runs(report_with("a", 10), report_with("b", 50), by="k").slices

    assert (odd.value, odd.n, odd.measure.outcome) == ("1", 60, "better")


def test_several_runs_are_adjusted_together() -> None:
    comparisons = compare_several(
        report(first_pass(20)), [report(first_pass(27)), report(first_pass(30))]
    )

    assert [compared.label for compared in comparisons] == ["B", "C"]
    p_values = [compared.measure.difference.p_value or 0 for compared in comparisons]
    assert [compared.measure.adjusted for compared in comparisons] == pytest.approx(
        [p_values[0], 2 * p_values[1]]
    )
    # For scores of 0 or 1 it is the same test, so it must not claim more than the metric.
    assert all(
        compared.measures["score"].adjusted == compared.measure.adjusted for compared in comparisons
    )


# ── runs that cannot be compared ────────────────────────────────────────────────────────────────


def test_different_evaluators_and_changed_samples_are_refused_and_named(tmp_path: Path) -> None:
    results = report(first_pass(5, 10)).results
    with open_store(tmp_path / "runs.db") as store:
        for run_id, criterion, digest in (
            ("a", CriterionInfo(name="exact", version="1"), "x"),
            ("b", CriterionInfo(name="exact", version="2"), "x"),
            ("c", CriterionInfo(name="near", version="1"), "x"),
            ("d", CriterionInfo(name="exact", version="1"), "y"),
        ):
            store_run(store, run_id, results, criteria=(criterion,), digest=digest)
        for other, problem in {
            "b": "evaluators differ in version: exact is 1 and 2",
            "c": "evaluators differ: exact and near",
            "d": "datasets differ: 10 of 10 samples were changed",
        }.items():
            with pytest.raises(UsageError, match=problem):
                compare_runs("a", other, store=store)
            assert problem in compare_runs("a", other, store=store, force=True).warnings


def test_different_datasets_are_refused_unless_common_samples_are_unchanged(
    tmp_path: Path,
) -> None:
    results = report(first_pass(5, 10)).results
    with open_store(tmp_path / "runs.db") as store:
        for run_id, digest, count in (("a", "x", 10), ("b", "x", 8), ("c", "", 10)):
            store_run(store, run_id, results[:count], dataset_digest=run_id, digest=digest)
        notes = compare_runs("a", "b", store=store).warnings
        assert "datasets differ: only their common samples are compared" in notes
        with pytest.raises(UsageError, match="datasets differ: a and c"):
            compare_runs("a", "c", store=store)


def test_a_key_that_no_sample_has_is_refused() -> None:
    with pytest.raises(UsageError, match="expected 'levle' in the metadata of samples"):
        compare_runs(
            report(first_pass(3)), report(first_pass(3), metadata={"level": 1}), by="levle"
        )


def test_epochs_widen_the_interval_of_a_rate() -> None:
    thrice = EvalReport([result(n, n < 20, epoch=e) for n in range(40) for e in (1, 2, 3)])
    once, clustered = (
        report_outcomes(run).figures.rate for run in (report(first_pass(20)), thrice)
    )

    assert (clustered.estimate, clustered.n, clustered.clusters) == (0.5, 120, 40)
    assert clustered.high - clustered.low > 0.95 * (once.high - once.low)


def test_runs_without_results_are_refused() -> None:
    with pytest.raises(UsageError, match="expected runs with results"):
        compare_runs(EvalReport([]), report(first_pass(3)))
    with pytest.raises(UsageError, match="or a `store`"):
        compare_runs("a", "b")
    with pytest.raises(UsageError, match="confidence"):
        compare_runs(report(first_pass(3)), report(first_pass(3)), confidence=95)


# ── sources of runs ─────────────────────────────────────────────────────────────────────────────


def test_stored_runs_compare_like_their_reports(tmp_path: Path) -> None:
    def results(passing: int) -> list[EvalResult[Any]]:
        trajectory = Trajectory[Any](usage=TokenUsage(7, 3), cost=0.25)
        return [
            scored(
                n,
                float(n < passing),
                0.5,
                latency_ms=n,
                trajectory=trajectory,
                metadata={"k": n % 2},
            )
            for n in range(60)
        ]

    with open_store(tmp_path / "runs.db") as store:
        store_run(store, "a", results(20))
        store_run(store, "b", results(40))
        from_store = compare_runs("a", "b", store=store, by="k")
        from_reports = compare_runs(store.report("a"), store.report("b"), by="k")
    assert from_store.measures == from_reports.measures
    assert from_store.slices == from_reports.slices
    assert from_store.flips == from_reports.flips


def test_a_baseline_file_keeps_outcomes_without_texts(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "base.json"
    unusual = EvalReport(
        [
            EvalResult("\ud800 \u202e", Score(0.25, True, "secret words")),
            EvalResult("2", Score(0.0), error="secret error", epoch=1),
        ]
    )
    before = report_outcomes(unusual)
    save_baseline(before, file)
    after = load_baseline(file)

    assert [row[:6] for row in after.rows] == [row[:6] for row in before.rows]
    assert b"secret" not in file.read_bytes()
    assert b'["2", 1, null, 0.0, "", "baseline"]' in file.read_bytes().splitlines()


@pytest.mark.parametrize("text", ["", "{}", '{"format": "other", "name": "", "rows": []}'])
def test_another_file_is_not_a_baseline(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)

    with pytest.raises(ReportError, match="expected"):
        load_baseline(tmp_path / "x.json")


def test_experiments_of_one_run_can_be_compared() -> None:
    both = EvalReport(
        [
            result(n, n < passing, experiment_name=name)
            for name, passing in (("old", 20), ("new", 30))
            for n in range(40)
        ]
    )
    old, new = report_outcomes(both).by_experiment()

    assert (old.agent, new.agent) == ("old", "new")
    assert compare_runs(old, new).measure.outcome == "better"


def test_equal_runs_have_a_positive_estimate_of_flips() -> None:
    same = report_outcomes(report(first_pass(20)))

    assert flips_between(same, same).share > 0.01


def test_an_incomplete_stored_run_is_marked_as_unfinished(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        results = report(first_pass(5, 10)).results
        store_run(store, "a", results, planned=40, status="interrupted")
        assert stored_outcomes(store, "a").unfinished == "interrupted, 10 of 40 rows"
