"""A comparison stores rows by column, without loss and without changes of numbers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from weakincentives.evals import EvalReport, EvalResult, Metric, Score, Trajectory, compare_runs
from weakincentives.evals.comparison.outcomes import report_outcomes
from weakincentives.evals.stats import mean, paired_difference


def random_result(rng: random.Random, number: int, epoch: int, names: list[str]) -> Any:
    if rng.random() < 0.1:
        error = {"error": "boom", "error_source": "agent"}
        return EvalResult(str(number), Score(0.0, False), 5, epoch=epoch, **error)
    metrics = [Metric(name, rng.random(), 1.0) for name in names if rng.random() < 0.8]
    score = Score(metrics=metrics) if metrics else Score(rng.random(), criterion=names[0])
    cost = rng.choice([None, rng.random()])
    return EvalResult(
        str(number), score, rng.randrange(3_000), trajectory=Trajectory(cost=cost), epoch=epoch
    )


def random_report(seed: int, names: list[str], epochs: int = 1) -> EvalReport[Any]:
    rng = random.Random(seed)
    results = [
        random_result(rng, number, epoch, names)
        for number in range(200)
        for epoch in range(1, epochs + 1)
        if rng.random() < 0.9
    ]
    if seed % 2:
        rng.shuffle(results)
    return EvalReport(results)


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_the_numbers_agree_with_a_plain_loop(seed: int, epochs: int) -> None:
    before, after = (random_report(each, ["a", "b"], epochs) for each in (seed, seed + 1))
    compared = compare_runs(before, after)

    partners = {(r.sample_id, r.epoch): r for r in after.results}
    pairs = [
        (r, partners[key]) for r in before.results if (key := (r.sample_id, r.epoch)) in partners
    ]
    numbers = {
        "passed": lambda r: float(r.passed),
        "score": lambda r: None if r.error else r.score.value,
        "latency_ms": lambda r: r.latency_ms,
        "cost": lambda r: r.trajectory.cost if r.trajectory else None,
        "a": lambda r: _criterion(r, "a"),
    }
    for name, number in numbers.items():
        both = [(number(x), number(y), x.sample_id) for x, y in pairs]
        old, new, ids = zip(*(each for each in both if None not in each[:2]), strict=True)
        clusters = ids if len(set(ids)) < len(ids) else None
        expected = paired_difference(old, new, clusters=clusters, binary=name == "passed")
        assert compared.measures[name].difference == expected
        assert (compared.measures[name].before, compared.measures[name].after) == (
            mean(old),
            mean(new),
        )


def _criterion(result: EvalResult[Any], name: str) -> float | None:
    return next((each.value for each in result.scores if each.criterion == name), None)


def test_rows_are_unchanged_after_storage_in_columns() -> None:
    names = [f"criterion {number}" for number in range(100)]  # more criteria than there are columns
    report = random_report(1, names)
    huge = EvalResult("huge", Score(-1e300), 2**80)
    outcomes = report_outcomes(EvalReport([*report.results, huge]), by="level")

    assert outcomes.rows == outcomes.rows.pick(range(len(outcomes.rows)))
    assert outcomes.rows[-1].value == -1e300
    assert outcomes.rows[3:5][0] == outcomes.rows[3]
    for row, result in zip(outcomes.rows, report.results, strict=False):
        parts = {score.criterion: score.value for score in result.scores}
        assert (row.sample, row.epoch, row.passed) == (result.sample_id, 1, result.passed)
        assert row.error or dict(row.scores) == parts
        assert row.latency_ms == result.latency_ms
    with pytest.raises(IndexError):
        outcomes.rows[len(outcomes.rows)]
