"""Gates: conditions for a run to pass, by itself or compared with a baseline."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from weakincentives.evals import EvalReport, EvalResult, Score
from weakincentives.evals.comparison import check_baseline, check_rate, check_run
from weakincentives.evals.comparison.gates import undecidable
from weakincentives.evals.comparison.outcomes import RunOutcomes, report_outcomes
from weakincentives.evals.runs.figures import Figures, run_figures
from weakincentives.evals.runs.scope import EVERY_ROW
from weakincentives.evals.runs.table import RunTable, TableRow
from weakincentives.evals.stats import rate_interval
from weakincentives.evals.store import CriterionInfo, RunManifest, RunRecord


def record(passed: int, total: int, errors: int = 0, **changes: object) -> RunRecord:
    manifest = RunManifest(run_id="run", created_at=datetime.now(UTC), planned=10)
    fields = {"status": "complete", "passed": passed, "total": total, "errors": errors, **changes}
    return RunRecord(manifest=manifest, **fields)  # type: ignore[arg-type]


def figures(run: RunRecord) -> Figures:
    """Return the figures of a run with the counts of this record."""
    rows = (
        TableRow(str(n), 1, "", n < run.passed, n >= run.total - run.errors, float(n < run.passed))
        for n in range(run.total)
    )
    return run_figures(RunTable(rows), EVERY_ROW)


def outcomes(name: str, passing: int, total: int = 40) -> RunOutcomes:
    results = [EvalResult(str(n), Score(float(n < passing))) for n in range(total)]
    return report_outcomes(EvalReport(results, name))


@pytest.mark.parametrize(
    ("run", "fail_under", "outcome", "reason"),
    [
        (record(9, 10), None, "passed", "no gate failed"),
        (record(9, 10), 0.9, "passed", "PASS: 90.0% passed, --fail-under requires 90.0%"),
        (record(8, 10), 0.9, "failed", "FAIL: 80.0% passed, --fail-under requires 90.0%"),
        (record(8, 10, 1), 0.5, "undecided", "1 of 10 are errors (10.0%), --max-error-rate"),
        (record(9, 9), 0.5, "undecided", "9 of 10 planned rows are stored"),
        (record(9, 9, status="stopped", note="budget"), None, "undecided", "budget, before the"),
        (record(9, 9, status="damaged", note="damaged"), None, "undecided", "damaged"),
    ],
)
def test_a_run_passes_fails_or_is_undecided(
    run: RunRecord, fail_under: float | None, outcome: str, reason: str
) -> None:
    checked = check_run(run, figures(run), fail_under=fail_under)

    assert checked.outcome == outcome
    assert checked.reason.startswith(reason)


def test_a_run_that_its_stopping_rule_ended_counts_as_complete() -> None:
    stopped = record(9, 9, status="stopped", note="stopped early", stop_reason="rule")

    assert check_run(stopped, figures(stopped), fail_under=0.5).outcome == "passed"


def test_with_a_confidence_the_low_end_of_the_interval_decides() -> None:
    rate = rate_interval(9, 10)

    assert check_rate(rate, 0.8).outcome == "passed"
    assert check_rate(rate, 0.8, confidence=0.95).outcome == "inconclusive"


@pytest.mark.parametrize(
    ("rule", "margin", "passing", "outcome"),
    [
        ("no-regression", 0.0, 30, "passed"),
        ("no-regression", 0.0, 10, "failed"),
        ("better", 0.0, 39, "passed"),
        ("better", 0.0, 31, "inconclusive"),
        ("better", 0.0, 10, "failed"),
        ("non-inferior", 30.0, 30, "passed"),
        ("non-inferior", 1.0, 30, "inconclusive"),
        ("non-inferior", 1.0, 20, "failed"),
    ],
)
def test_a_baseline_rule_decides(rule: str, margin: float, passing: int, outcome: str) -> None:
    before, after = outcomes("before", 30), outcomes("after", passing)

    checked = check_baseline(before, after, rule, margin=margin)  # type: ignore[arg-type]

    assert checked.outcome == outcome
    assert checked.compared is not None


def test_a_run_without_results_cannot_be_judged() -> None:
    checked = check_baseline(outcomes("before", 30), outcomes("after", 0, 0), "better")

    assert (checked.outcome, checked.compared) == ("undecided", None)
    assert checked.reason == "cannot be judged: after has no results"


def test_runs_with_different_judge_models_are_undecided() -> None:
    a, b = (CriterionInfo(name="Correct", judge={"model": f"openai/{name}"}) for name in "ab")
    before = replace(outcomes("old", 30), criteria=(a,))
    after = replace(outcomes("new", 30), criteria=(b,))

    problem = "judges differ: Correct is judged by openai/a and by openai/b (--force judges anyway)"
    assert undecidable(before, after) == problem
    assert undecidable(before, after, force=True) == ""
    assert undecidable(before, replace(after, criteria=before.criteria)) == ""
