"""Samples that are chosen by their earlier pass rates, and the estimated rate of the dataset."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weakincentives.cli import main
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    Sample,
    evaluate,
    exact_match,
    open_store,
)
from weakincentives.evals.comparison.baseline_files import load_baseline, save_baseline
from weakincentives.evals.comparison.outcomes import stored_outcomes
from weakincentives.evals.stats.strata import draw, strata_by_rate, stratified_rate
from weakincentives.evals.store.overview import overview

MANY = Dataset([Sample(f"s{number:03}", number, "ok") for number in range(300)], "many")


def test_strata_group_similar_rates_and_have_a_minimum_size() -> None:
    rates = {n: (n % 10) / 10 if n < 100 else None for n in range(110)}
    strata = strata_by_rate(rates, 55)

    assert sorted(n for stratum in strata for n in stratum) == list(range(110))
    assert [len(stratum) for stratum in strata] == [10] * 11
    assert [len(stratum) for stratum in strata_by_rate(rates, 11)] == [30, 30, 50]


def test_every_sample_is_equally_likely_to_be_drawn() -> None:
    strata = [list(range(7)), list(range(7, 24)), list(range(24, 30))]
    times_drawn = Counter(
        n for seed in range(4000) for part in draw(strata, 10, seed) for n in part
    )

    assert {sum(map(len, draw(strata, 10, seed))) for seed in range(50)} == {10}
    assert all(count == pytest.approx(4000 / 3, rel=0.1) for count in times_drawn.values())
    assert [sorted(part) for part in draw(strata, 30, 1)] == strata


def test_the_rate_of_a_dataset_is_unbiased_and_its_interval_covers_it() -> None:
    rng, errors, errors_without_strata, covered = np.random.default_rng(1), [], [], 0
    for seed in range(400):
        pass_rates = rng.beta(0.5 * 0.85, 0.5 * 0.15, 500)
        earlier = rng.binomial(5, pass_rates)
        passed = rng.random(500) < pass_rates
        strata = strata_by_rate(dict(enumerate(earlier / 5)), 100)
        drawn = draw(strata, 100, seed)
        interval = stratified_rate(
            (len(stratum), [float(passed[n]) for n in part])
            for stratum, part in zip(strata, drawn, strict=True)
        )
        errors.append(interval.estimate - passed.mean())
        errors_without_strata.append(rng.choice(passed, 100, replace=False).mean() - passed.mean())
        covered += passed.mean() in interval

    assert abs(np.mean(errors)) < 0.005
    assert np.mean(np.square(errors_without_strata)) / np.mean(np.square(errors)) > 1.5
    assert covered >= 0.94 * 400


def agent_with(failing: Any) -> Any:
    async def agent(number: int) -> str:
        return "no" if number in failing else "ok"

    return agent


@pytest.mark.anyio
@pytest.mark.parametrize("epochs", [1, 2])
async def test_a_run_of_chosen_samples_estimates_the_rate_of_all(
    tmp_path: Path, epochs: int
) -> None:
    with open_store(tmp_path / "runs.db") as store:
        for run_id, step in (("a", 5), ("b", 10)):
            await evaluate(MANY, EvalConfig(), exact_match, store=store, run_id=run_id,
                           agent=agent_with(range(0, 300, step)))  # fmt: skip
        config = EvalConfig(max_samples=50, choose_by=("a", "b"), epochs=epochs)
        agent = agent_with(range(0, 300, 5))
        report = await evaluate(MANY, config, exact_match, agent=agent, store=store)

        assert report.total == 50 * epochs
        assert report.rate.estimate == pytest.approx(0.8)  # the strata determine it exactly
        assert "of all 300 samples, chosen by strata of earlier pass rates, n = " in str(report)
        run_id = report.run_id
        assert str(overview(store, run_id)) == str(report) == str(store.report(run_id))
        report.save(tmp_path / "saved")
        assert EvalReport.load(tmp_path / "saved").rate == report.rate
        outcomes = stored_outcomes(store, run_id)
        save_baseline(outcomes, tmp_path / "base.json")
        assert (
            outcomes.figures.rate
            == load_baseline(tmp_path / "base.json").figures.rate
            == report.rate
        )

        resumed = await evaluate(MANY, config, exact_match, agent=agent, store=store, resume=run_id)
        assert (resumed.total, resumed.rate) == (50 * epochs, report.rate)


@pytest.mark.anyio
async def test_runs_of_other_samples_cannot_be_used_to_choose(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        others = [Sample("other", 1, "ok")]
        agent = agent_with(())
        await evaluate(others, EvalConfig(), exact_match, agent=agent, store=store, run_id="a")
        with pytest.raises(UsageError, match="expected runs of these samples to choose by"):
            await evaluate(MANY, EvalConfig(max_samples=5, choose_by=("a",)), exact_match,
                           agent=agent, store=store)  # fmt: skip
        with pytest.raises(UsageError, match="expected the number of samples to choose, got none"):
            await evaluate(MANY, EvalConfig(choose_by=("a",)), exact_match,
                           agent=agent, store=store)  # fmt: skip
    with pytest.raises(UsageError, match="or a rule to stop early, got both"):
        EvalConfig(choose_by=("a",), stop_against=0.5)


SUITE = """
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match
dataset = Dataset([Sample(f"s{n:03}", n, "ok") for n in range(200)], name="coins")
suite = EvalSuite(lambda n: "ok" if n % 10 else "no", dataset, exact_match)
"""


def test_the_command_chooses_by_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("coins.py").write_text(SUITE)
    assert main(["eval", "run", "coins.py"]) == 0
    command = ["eval", "run", "coins.py", "--max-samples", "45", "--fail-under", "90%"]
    assert main([*command, "--choose-by", "latest"]) == 0
    stderr = capsys.readouterr().err
    assert "(90.0%, 95% interval" in stderr
    assert "of all 200 samples, chosen by strata" in stderr
    assert main(["eval", "show", "latest"]) == 0
    assert "of all 200 samples" in " ".join(capsys.readouterr().out.split())
    assert main(["eval", "run", "coins.py", "--choose-by", "latest"]) == 2
