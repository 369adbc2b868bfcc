"""A run that is compared with an earlier one while it runs, and stops once that is decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.view.files import answers_in
from weakincentives.cli import main
from weakincentives.errors import ProviderError, UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    RunStore,
    Sample,
    evaluate,
    exact_match,
    open_store,
)
from weakincentives.evals.comparison import compare_runs
from weakincentives.evals.engine.early_stopping import PairedRule
from weakincentives.evals.stats.group_sequential import look_sizes, sequential_p
from weakincentives.evals.store.overview import overview

MANY = [Sample(f"s{number:03}", number, "ok") for number in range(200)]


def agent_with(failing: Any) -> Any:
    async def agent(number: int) -> str:
        return "no" if number in failing else "ok"

    return agent


async def run(store: RunStore, failing: Any, **options: Any) -> EvalReport[str]:
    config = EvalConfig(**options)
    return await evaluate(
        Dataset(MANY, "many"), config, exact_match, agent=agent_with(failing), store=store
    )


@pytest.mark.anyio
@pytest.mark.parametrize("epochs", [1, 2])
async def test_a_run_stops_when_it_is_shown_to_be_worse(tmp_path: Path, epochs: int) -> None:
    with open_store(tmp_path / "runs.db") as store:
        before = await run(store, range(0, 200, 10))
        after = await run(store, range(0, 200, 3), against=before.run_id, epochs=epochs)

        assert after.total < 200 * epochs
        assert after.stopped == f"stopped early: it is shown to be worse than {before.run_id}"
        assert after.decision is not None
        assert f" - worse than {before.run_id}: -" in str(after)
        assert str(overview(store, after.run_id)) == str(after)

        compared = compare_runs(before.run_id, after.run_id, store=store)
        assert compared.measure.outcome == "worse"
        assert compared.measure.difference == after.decision.difference
        assert "sequential" in str(compared)
        assert any("sequential test when" in warning for warning in compared.warnings)


@pytest.mark.anyio
async def test_a_run_without_a_difference_runs_to_the_end_and_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        before = await run(store, range(0, 200, 10))
        after = await run(store, range(1, 200, 10), against="latest")

        assert (after.total, after.stopped) == (200, "")
        assert f"no difference from {before.run_id} shown: +0.0 points, 95% interval" in str(after)
        compared = compare_runs(before.run_id, after.run_id, store=store)
        assert str(compared).startswith("no difference shown: 0.0 points")


@pytest.mark.anyio
async def test_only_samples_that_the_other_run_has_with_the_same_content_run(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "runs.db") as store:
        config = EvalConfig()
        changed = [Sample("s000", 0, "other"), *MANY[1:50]]
        agent = agent_with(())
        await evaluate(changed, config, exact_match, agent=agent, store=store, run_id="first")
        after = await run(store, (), against="first")

        assert {result.sample_id for result in after.results} == {f"s{n:03}" for n in range(1, 50)}
        with pytest.raises(UsageError, match="expected samples that first has too, got none of 3"):
            await evaluate(
                [Sample(f"t{n}", n, "ok") for n in range(3)],
                EvalConfig(against="first"), exact_match, agent=agent, store=store,
            )  # fmt: skip


@pytest.mark.anyio
async def test_errors_of_the_infrastructure_do_not_make_a_run_worse(tmp_path: Path) -> None:
    async def unreachable(number: int) -> str:
        if number % 5 == 0:
            raise ProviderError("overloaded", status=503)
        return "ok"

    with open_store(tmp_path / "runs.db") as store:
        before = await run(store, ())
        after = await evaluate(
            Dataset(MANY, "many"), EvalConfig(against=before.run_id), exact_match,
            agent=unreachable, store=store,
        )  # fmt: skip
        assert (after.errors, after.stopped) == (40, "")
        assert after.decision is not None
        assert after.decision.outcome == "none"
        assert "after 200 of 200 samples, 40 left out (sequential test" in str(after)


@pytest.mark.anyio
async def test_the_interval_of_a_run_counts_the_errors_that_a_comparison_leaves_out(
    tmp_path: Path,
) -> None:
    async def unreachable(number: int) -> str:
        if number % 4:
            raise ProviderError("overloaded", status=503)
        return "ok"

    with open_store(tmp_path / "runs.db") as store:
        before = await run(store, ())
        after = await evaluate(
            Dataset(MANY, "many"), EvalConfig(against=before.run_id), exact_match,
            agent=unreachable, store=store,
        )  # fmt: skip
        assert (after.strict_pass_rate, after.total) == (0.25, 200)
        assert 0.25 in after.figures.rate


def test_the_boundary_is_that_of_ten_interim_looks() -> None:
    assert sequential_p(2.087) == pytest.approx(0.05, abs=2e-4)
    assert sequential_p(0) == 1.0
    assert look_sizes(172) == [18, 35, 52, 69, 86, 104, 121, 138, 155, 172]
    assert look_sizes(3) == [1, 2, 3]


def simulate(
    rng: np.random.Generator, n: int, fixed: float, broken: float, runs: int
) -> tuple[float, float, float]:
    """Return the shares of runs that are decided as better and as worse, and the mean samples."""
    better = worse = total_tried = 0
    for _ in range(runs):
        change = rng.choice([1, -1, 0], n, p=[fixed, broken, 1 - fixed - broken])
        old = np.where(change == 0, rng.random(n) < 0.8, change < 0)
        rule = PairedRule("A", {index: (int(good), 1) for index, good in enumerate(old)})
        samples_tried = next(
            (
                index + 1
                for index in range(n)
                if rule.add(index, int(old[index]) + int(change[index]))
            ),
            n,
        )
        assert rule.decision is not None
        better += rule.decision.outcome == "better"
        worse += rule.decision.outcome == "worse"
        total_tried += samples_tried
    return better / runs, worse / runs, total_tried / runs


@pytest.mark.slow
@pytest.mark.parametrize(("n", "flips"), [(60, 0.1), (172, 0.2), (300, 0.05)])
def test_equal_runs_are_decided_to_differ_in_at_most_5_percent(n: int, flips: float) -> None:
    better, worse, _ = simulate(np.random.default_rng(n), n, flips / 2, flips / 2, 400)

    assert better + worse <= 0.075  # 5 %, plus the noise of 400 runs


@pytest.mark.slow
def test_it_needs_fewer_samples_than_a_test_of_fixed_size() -> None:
    """10 points and 20 % flips: 172 samples for a power of 80 %."""
    better, worse, tried = simulate(np.random.default_rng(1), 172, 0.15, 0.05, 300)

    assert better >= 0.79
    assert worse == 0
    assert tried == pytest.approx(133, rel=0.06)


SUITE = """
import os
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match
dataset = Dataset([Sample(f"s{n:03}", n, "ok") for n in range(200)], name="coins")
def agent(n):
    return "ok" if n % int(os.environ.get("STEP", "10")) else "no"
suite = EvalSuite(agent, dataset, exact_match)
"""


@pytest.mark.slow
def test_the_command_compares_while_the_run_is_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("coins.py").write_text(SUITE)
    assert main(["eval", "run", "coins.py", "--tag", "is=base"]) == 0
    monkeypatch.setenv("STEP", "3")
    command = ["eval", "run", "coins.py", "--against", "tag:is=base"]
    assert main(command) == 1
    assert " - worse than " in (printed := " ".join(capsys.readouterr().err.split()))
    assert "exit 1: worse than " in printed
    assert main(["eval", "show", "latest", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["decision"]["rule"] == "paired"
    assert main(["eval", "report", "latest", "-o", "page.html"]) == 0
    assert "worse than " in str(answers_in(Path("page.html")))
    capsys.readouterr()
    assert main(["eval", "compare", "latest~1", "latest"]) == 0
    printed = " ".join(capsys.readouterr().out.split())  # where lines wrap depends on the numbers
    assert "B is worse: -" in printed
    assert "sequential McNemar p" in printed
    assert main(["eval", "compare", "latest~1", "latest", "--format", "json"]) == 0
    measures = json.loads(capsys.readouterr().out)["comparisons"][0]["measures"]
    assert measures["score"]["interval"] == measures["passed"]["interval"]  # one test, one result

    assert main(["eval", "baseline", "latest~1", "-o", "base.json"]) == 0
    assert main(["eval", "run", "coins.py", "--against", "base.json"]) == 1
    monkeypatch.setenv("STEP", "10")
    assert main(["eval", "run", "coins.py", "--against", "base.json"]) == 0
    assert "no difference from " in capsys.readouterr().err


def test_incompatible_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("coins.py").write_text(SUITE)
    assert main(["eval", "run", "coins.py", "--against", "latest", "--decide-for", "dataset"]) == 2
    assert "with --decide-for" in capsys.readouterr().err
    with pytest.raises(UsageError, match="expected one rule to stop early"):
        EvalConfig(against="x", stop_against=0.5)
