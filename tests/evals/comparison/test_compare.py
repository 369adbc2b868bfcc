"""Comparing runs: what is paired with what, what is claimed, and what is refused."""

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
    CriterionInfo,
    EvalReport,
    EvalResult,
    Metric,
    RunManifest,
    RunStore,
    Score,
    StoredRow,
    Trajectory,
)
from weakincentives.evals.comparison.baselines import load_baseline, save_baseline
from weakincentives.evals.comparison.compare import compare_runs, compare_several, flips_between
from weakincentives.evals.comparison.outcomes import report_outcomes, stored_outcomes
from weakincentives.evals.stats import holm


def result(sample: int, passed: bool, **more: Any) -> EvalResult[Any]:
    return EvalResult(f"s{sample:03}", Score(float(passed)), **more)


def report(passed: Iterable[bool], **more: Any) -> EvalReport[Any]:
    return EvalReport([result(n, each, **more) for n, each in enumerate(passed)])


def first(passing: int, n: int = 40) -> list[bool]:
    return [sample < passing for sample in range(n)]


def stored(store: RunStore, run_id: str, results: Iterable[EvalResult[Any]], **about: Any) -> None:
    digest = about.pop("digest", "")
    store.begin(RunManifest(run_id=run_id, created_at=datetime.now(UTC), **about))
    for position, each in enumerate(results):
        of = replace(each, run_id=run_id)
        store.put(StoredRow(result=of, position=position, sample_digest=digest))
    store.finish(run_id, "complete")


# ── verdicts ────────────────────────────────────────────────────────────────────────────────────


def test_a_difference_that_is_shown_is_said_with_its_interval_and_test() -> None:
    assert str(compare_runs(report(first(20)), report(first(30)))) == (
        "B is better: +25.0 points, 95% interval 14.0 to 40.2, n = 40 (mid-p McNemar p < 0.001)"
    )
    assert str(compare_runs(report(first(30)), report(first(20)))).startswith(
        "B is worse: -25.0 points, 95% interval -40.2 to -14.0"
    )


def test_one_that_is_not_shown_says_what_would_have_been() -> None:
    compared = compare_runs(report(first(20)), report(first(21)))

    assert str(compared).startswith("no difference shown: +2.5 points (95% interval")
    assert str(compared).endswith("; this comparison could have seen 16.2 points")


def test_equal_runs_could_not_have_seen_everything() -> None:
    measure = compare_runs(report(first(20)), report(first(20))).measure

    assert measure.outcome == "none"
    # Of 40 samples, each fixed at this chance, five or more are fixed four times out of five.
    assert binom.sf(4, 40, measure.detectable) == pytest.approx(0.8, abs=1e-3)


def test_very_few_samples_show_nothing_and_say_so() -> None:
    compared = compare_runs(report(first(0, 4)), report(first(4, 4)))

    assert compared.measure.outcome == "none"
    assert str(compared).endswith("with so few, none can be shown")


def test_five_changes_in_the_same_direction_are_the_fewest_that_show_a_difference() -> None:
    assert compare_runs(report(first(20)), report(first(24))).measure.outcome == "none"
    five = compare_runs(report(first(20)), report(first(25)))

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
    a, b = report(first(20)), report(first(30))
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


def test_where_epochs_differ_samples_are_compared_and_it_is_said() -> None:
    twice = EvalReport([result(n, n < 20, epoch=e) for n in range(40) for e in (1, 2)])
    compared = compare_runs(report(first(30)), twice)

    assert compared.pairing == "sample"
    assert compared.measure.difference.delta.estimate == pytest.approx(-0.25)
    assert any("epochs differ (1 and 2)" in note for note in compared.warnings)


def test_without_a_sample_in_common_it_is_unpaired_and_says_so() -> None:
    other = EvalReport([EvalResult(f"x{n}", Score(1.0)) for n in range(40)])
    compared = compare_runs(report(first(20)), other)

    assert compared.pairing == "none"
    assert compared.measure.outcome == "better"
    assert str(compared).endswith("unpaired: the runs share no sample")


def test_what_only_one_run_has_is_left_out_and_counted() -> None:
    compared = compare_runs(report(first(20)), report(first(20, 30)))

    assert compared.measure.difference.delta.n == 30
    assert any(note.startswith("10 rows of") for note in compared.warnings)


# ── errors, criteria, what it took ──────────────────────────────────────────────────────────────


def test_an_error_is_not_a_pass_and_has_no_score() -> None:
    results = [*report(first(40)).results[:30]]
    results += [EvalResult(f"s{n:03}", Score(0.0), error="gone") for n in range(30, 40)]
    compared = compare_runs(report(first(40)), EvalReport(results))

    assert compared.broken == 10
    assert all(flip.error for flip in compared.flips)
    assert compared.measures["score"].difference.delta.n == 30
    assert any(
        "errors of the agent count as not passed: 0 in" in note for note in compared.warnings
    )


def scored(n: int, right: float, brief: float, **more: Any) -> EvalResult[Any]:
    metrics = [Metric("right", right, weight=1), Metric("brief", brief, weight=1)]
    return EvalResult(f"s{n:03}", Score(metrics=metrics), **more)


def test_each_criterion_is_compared_and_all_but_the_metric_are_adjusted_together() -> None:
    rng = random.Random(0)
    a = EvalReport([scored(n, 0.0, rng.random()) for n in range(30)])
    b = EvalReport([scored(n, float(n < 15), rng.random()) for n in range(30)])
    compared = compare_runs(a, b)

    right, brief = compared.measures["right"], compared.measures["brief"]
    assert (right.outcome, brief.outcome) == ("better", "none")
    assert compared.measure.adjusted is right.adjusted is None  # each pass is right: one test
    others = [compared.measures[name] for name in ("score", "brief", "latency_ms")]
    p_values = [measure.difference.p_value for measure in others]
    assert [measure.adjusted for measure in others] == holm(p_values)
    assert str(compare_runs(a, b, metric="right")).startswith("B is better in right: +0.500")


def test_beside_a_metric_without_a_difference_the_others_add_few_false_alarms() -> None:
    rng = random.Random(0)
    times = [rng.random() for _ in range(30)]
    a = EvalReport([EvalResult(f"{n}", Score(1.0), latency_ms=9) for n in range(30)])
    b = EvalReport(
        [EvalResult(f"{n}", Score(1.0), latency_ms=9 + round(9 * t)) for n, t in enumerate(times)]
    )
    faster = compare_runs(b, a).measures["latency_ms"]

    assert faster.outcome == "better"  # a change as clear as this one is still seen
    assert faster.adjusted == pytest.approx(5 * (faster.difference.p_value or 0.0))


def test_a_criterion_may_have_a_name_of_ours() -> None:
    metrics = [Metric("passed", 0.25, weight=1), Metric("cost", 0.5, weight=1)]
    one = EvalReport([EvalResult(str(n), Score(metrics=metrics)) for n in range(9)])
    measures = compare_runs(one, one).measures

    assert (measures["passed"].after, measures["criterion passed"].after) == (0.0, 0.25)
    assert "cost" not in measures


def test_less_time_tokens_and_money_are_better() -> None:
    def run(factor: int) -> EvalReport[Any]:
        def took(n: int) -> Trajectory[Any]:
            return Trajectory(usage=TokenUsage(factor * 10 + n % 3), cost=factor * 0.01)

        return EvalReport(
            [
                result(n, True, latency_ms=factor * 100 + n % 7 * factor, trajectory=took(n))
                for n in range(20)
            ]
        )

    measures = compare_runs(run(2), run(1)).measures

    assert measures["latency_ms"].outcome == "better"
    assert measures["latency_ms"].difference.delta.estimate == pytest.approx(-102.85)
    assert measures["tokens"].difference.delta.estimate == -10
    assert measures["cost"].difference.delta.estimate == pytest.approx(-0.01)


def test_time_and_money_have_no_upper_end_however_small_they_are() -> None:
    def run(late: bool) -> EvalReport[Any]:
        spent = Trajectory(output="x", cost=0.004)
        rows = (result(n, True, trajectory=spent, latency_ms=int(late)) for n in range(10))
        return EvalReport(rows)

    same = compare_runs(run(False), run(False), metric="latency_ms")
    assert same.measures["cost"].interval() == "interval unknown"
    assert same.measures["latency_ms"].interval() == "interval unknown"
    assert same.measure.detectable is None
    later = compare_runs(run(False), run(True)).measures["latency_ms"]
    assert "McNemar" not in later.evidence()


def test_what_nobody_counted_is_not_compared() -> None:
    measures = compare_runs(report(first(3)), report(first(3))).measures

    assert {"tokens", "cost"}.isdisjoint(measures)
    with pytest.raises(UsageError, match="expected one of passed, score, latency_ms as metric"):
        compare_runs(report(first(3)), report(first(3)), metric="cost")


def test_slices_have_their_n_and_small_ones_are_marked() -> None:
    def run(passing: int) -> EvalReport[Any]:
        return EvalReport(
            [result(n, n < passing, metadata={"level": "hard" if n < 30 else 7}) for n in range(40)]
        )

    hard, rare = compare_runs(run(5), run(25), by="level").slices

    assert (hard.value, hard.n, hard.small, hard.measure.outcome) == ("hard", 30, False, "better")
    assert (rare.value, rare.n, rare.small, rare.measure.outcome) == ("7", 10, True, "none")
    assert hard.measure.adjusted is not None


def test_slices_without_pairs_go_by_what_both_have() -> None:
    def run(ids: str, passing: int) -> EvalReport[Any]:
        return EvalReport(
            [
                EvalResult(f"{ids}{n}", Score(float(n < passing)), metadata={"k": n % 2 or ids})
                for n in range(60)
            ]
        )

    (odd,) = compare_runs(run("a", 10), run("b", 50), by="k").slices

    assert (odd.value, odd.n, odd.measure.outcome) == ("1", 60, "better")


def test_several_runs_are_adjusted_together() -> None:
    found = compare_several(report(first(20)), [report(first(27)), report(first(30))])

    assert [each.label for each in found] == ["B", "C"]
    alone = [each.measure.difference.p_value or 0 for each in found]
    assert [each.measure.adjusted for each in found] == pytest.approx([alone[0], 2 * alone[1]])
    # A score of 0 or 1 is the same test, and never claims more than the metric.
    assert all(each.measures["score"].adjusted == each.measure.adjusted for each in found)


# ── what cannot be compared ─────────────────────────────────────────────────────────────────────


def test_other_evaluators_and_changed_samples_are_refused_and_named(tmp_path: Path) -> None:
    results = report(first(5, 10)).results
    with RunStore(tmp_path / "runs.db") as store:
        for run_id, criterion, digest in (
            ("a", CriterionInfo(name="exact", version="1"), "x"),
            ("b", CriterionInfo(name="exact", version="2"), "x"),
            ("c", CriterionInfo(name="near", version="1"), "x"),
            ("d", CriterionInfo(name="exact", version="1"), "y"),
        ):
            stored(store, run_id, results, criteria=(criterion,), digest=digest)
        for other, why in {
            "b": "evaluators differ in version: exact is 1 and 2",
            "c": "evaluators differ: exact and near",
            "d": "datasets differ: 10 of 10 samples were changed",
        }.items():
            with pytest.raises(UsageError, match=why):
                compare_runs("a", other, store=store)
            assert why in compare_runs("a", other, store=store, force=True).warnings


def test_other_datasets_are_refused_only_where_no_sample_tells_that_it_is_the_same(
    tmp_path: Path,
) -> None:
    results = report(first(5, 10)).results
    with RunStore(tmp_path / "runs.db") as store:
        for run_id, digest, count in (("a", "x", 10), ("b", "x", 8), ("c", "", 10)):
            stored(store, run_id, results[:count], dataset_digest=run_id, digest=digest)
        notes = compare_runs("a", "b", store=store).warnings
        assert "datasets differ: only their common samples are compared" in notes
        with pytest.raises(UsageError, match="datasets differ: a and c"):
            compare_runs("a", "c", store=store)


def test_a_key_that_no_sample_has_is_refused() -> None:
    with pytest.raises(UsageError, match="expected 'levle' in the metadata of samples"):
        compare_runs(report(first(3)), report(first(3), metadata={"level": 1}), by="levle")


def test_epochs_widen_the_interval_of_a_rate() -> None:
    thrice = EvalReport([result(n, n < 20, epoch=e) for n in range(40) for e in (1, 2, 3)])
    once, more = (report_outcomes(each).rate for each in (report(first(20)), thrice))

    assert (more.estimate, more.n, more.clusters) == (0.5, 120, 40)
    assert more.high - more.low > 0.95 * (once.high - once.low)


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(UsageError, match="expected runs with results"):
        compare_runs(EvalReport([]), report(first(3)))
    with pytest.raises(UsageError, match="or a `store`"):
        compare_runs("a", "b")
    with pytest.raises(UsageError, match="confidence"):
        compare_runs(report(first(3)), report(first(3)), confidence=95)


# ── where runs come from ────────────────────────────────────────────────────────────────────────


def test_a_stored_run_compares_as_its_report_does(tmp_path: Path) -> None:
    def results(passing: int) -> list[EvalResult[Any]]:
        took = Trajectory[Any](usage=TokenUsage(7, 3), cost=0.25)
        return [
            scored(n, float(n < passing), 0.5, latency_ms=n, trajectory=took, metadata={"k": n % 2})
            for n in range(60)
        ]

    with RunStore(tmp_path / "runs.db") as store:
        stored(store, "a", results(20))
        stored(store, "b", results(40))
        ours = compare_runs("a", "b", store=store, by="k")
        theirs = compare_runs(store.report("a"), store.report("b"), by="k")
    assert ours.measures == theirs.measures
    assert ours.slices == theirs.slices
    assert ours.flips == theirs.flips


def test_a_baseline_comes_back_as_it_was_without_texts(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "base.json"
    odd = EvalReport(
        [
            EvalResult("\ud800 \u202e", Score(0.25, True, "secret words")),
            EvalResult("2", Score(0.0), error="secret error", epoch=1),
        ]
    )
    before = report_outcomes(odd)
    save_baseline(before, file)
    after = load_baseline(file)

    assert [row[:6] for row in after.rows] == [row[:6] for row in before.rows]
    assert b"secret" not in file.read_bytes()
    assert b'["2", 1, null, 0.0, "", "baseline"]' in file.read_bytes().splitlines()


@pytest.mark.parametrize("text", ["", "{}", '{"format": "other", "name": "", "rows": []}'])
def test_another_file_is_no_baseline(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)

    with pytest.raises(ReportError, match="expected"):
        load_baseline(tmp_path / "x.json")


def test_experiments_of_one_run_can_be_told_apart() -> None:
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


def test_equal_runs_may_still_differ_next_time() -> None:
    same = report_outcomes(report(first(20)))

    assert flips_between(same, same).share > 0.01


def test_a_stored_run_that_is_not_complete_says_so(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        stored(store, "a", report(first(5, 10)).results, planned=40)
        store.finish("a", "interrupted")
        assert stored_outcomes(store, "a").unfinished == "interrupted, 10 of 40 rows"
