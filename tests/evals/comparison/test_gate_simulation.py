"""Short simulations of gates; `python -m bench stats gates` has the figures of docs/ci.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from weakincentives.evals.comparison.baseline_files import pool_outcomes
from weakincentives.evals.comparison.gates import BaselineRule, check_baseline, check_rate
from weakincentives.evals.comparison.outcomes import RunOutcomes
from weakincentives.evals.runs.table import RunTable, TableRow
from weakincentives.evals.stats import rate_interval

RUNS = 40


def outcomes(name: str, passed: np.ndarray, failed: Sequence[int] = ()) -> RunOutcomes:
    """Return a run with these passes by sample and epoch; `failed` are samples with a 503."""
    rows = (
        TableRow(
            str(sample),
            epoch,
            "",
            bool(good) and sample not in failed,
            sample in failed,
            float(good),
            error_source="infrastructure" if sample in failed else None,
        )
        for sample, row in enumerate(passed)
        for epoch, good in enumerate(row, 1)
    )
    return RunOutcomes(name=name, rows=RunTable(rows))


def gate_outcomes(
    rule: BaselineRule,
    *,
    margin: float = 0.0,
    decline: float = 0.0,
    epochs: int = 1,
    pooled: int = 1,
    errors: float = 0.0,
) -> Counter[str]:
    """Return the outcomes of the gate for runs whose true rate falls by `decline` points."""
    rng, counts = np.random.default_rng(5), Counter[str]()
    for _ in range(RUNS):
        pass_rates = rng.beta(1.7, 0.3, 100)
        breaks = rng.random(100) < decline / 85
        before = pool_outcomes(
            [
                outcomes(f"a{n}", rng.random((100, epochs)) < pass_rates[:, None])
                for n in range(pooled)
            ]
        )
        after = rng.random((100, epochs)) < np.where(breaks, 0.0, pass_rates)[:, None]
        failed = np.flatnonzero(rng.random(100) < errors).tolist()
        checked = check_baseline(
            before, outcomes("b", after, failed), rule, margin=margin, max_error_rate=1.0
        )
        counts[checked.outcome] += 1
    return counts


# 5 % of 40 runs are 2 runs; 6 or fewer have a probability of 99.5 %.


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_run_that_is_worse_by_the_margin_passes_in_at_most_five_percent(epochs: int) -> None:
    counts = gate_outcomes("non-inferior", margin=5, decline=5, epochs=epochs)

    assert counts["passed"] <= 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [{}, {"epochs": 3}, {"pooled": 3}, {"errors": 0.05}, {"errors": 0.1}]
)
def test_an_equal_run_fails_in_at_most_five_percent(setting: dict[str, float]) -> None:
    counts = gate_outcomes("no-regression", **setting)  # type: ignore[arg-type]

    assert counts["failed"] <= 6
    assert counts.total() == RUNS


def test_the_confidence_of_a_gate_is_one_sided() -> None:
    """With 200 samples and a true rate of 90 %, 5 % of runs pass a gate at 90 %, not 2.5 %."""
    drawn = np.random.default_rng(1).binomial(200, 0.9, 4_000)
    outcome = {
        k: check_rate(rate_interval(k, 200, confidence=0.9), 0.9, confidence=0.95).outcome
        for k in set(drawn.tolist())
    }
    passed = [outcome[k] == "passed" for k in drawn.tolist()]

    assert 0.03 < np.mean(passed) < 0.065
