"""A run stops once its pass rate is known well enough, and its interval is still valid."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from tests.engine import SAMPLES, ran, right
from weakincentives.errors import UsageError
from weakincentives.evals import (
    Dataset,
    EvalConfig,
    EvalReport,
    Sample,
    Score,
    evaluate,
    exact_match,
    open_store,
)
from weakincentives.evals.comparison.outcomes import stored_outcomes
from weakincentives.evals.engine.early_stopping import RateStoppingRule, Stopping
from weakincentives.evals.model.decision import rate_kind
from weakincentives.evals.stats import Interval
from weakincentives.evals.stats.pass_rate import RateKind, RateRule, counted_rate
from weakincentives.evals.store.overview import overview

MANY = [Sample(f"s{number:03}", number, "ok") for number in range(300)]
DECIDED = "stopped early: the pass rate is shown to be above 50.0%"
NARROW = "stopped early: the interval of the pass rate is at most 20 points wide"


POPULATION: dict[str, Any] = {"decide_for": "population"}


@cache
def rate_after(passed: int, n: int, kind: RateKind = "population") -> Interval:
    return counted_rate({(1, 1): passed, (1, 0): n - passed}, rule=RateRule(kind=kind))


def is_enough(passed: int, n: int, config: EvalConfig) -> bool:
    kind, width, against = rate_kind(config), config.stop_at_width, config.stop_against
    rate = rate_after(passed, n, kind)
    narrow = width is not None and rate.high - rate.low <= width
    if kind == "width":
        return narrow and n >= 20
    return narrow or (against is not None and against not in rate)


def stopping_for(config: EvalConfig, size: int | None = None) -> Stopping:
    return Stopping(RateStoppingRule(config, size), epochs=config.epochs)


# ── the rule ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rate", [0.5, 0.7, 0.88, 0.97])
@pytest.mark.parametrize(
    "rule",
    [{"stop_at_width": 0.2}, {"stop_against": 0.7}, {"stop_against": 0.9, "stop_at_width": 0.3}],
)
def test_the_interval_covers_the_truth_at_the_stopping_time(
    rate: float, rule: dict[str, float]
) -> None:
    """All outcomes of 150 samples are enumerated: this is the exact coverage, not an estimate."""
    config, running, covered, stopped = EvalConfig(**rule, **POPULATION), {0: 1.0}, 0.0, 0.0
    for n in range(1, 151):
        probabilities: dict[int, float] = {}
        for passed, probability in running.items():
            probabilities[passed] = probabilities.get(passed, 0.0) + probability * (1 - rate)
            probabilities[passed + 1] = probabilities.get(passed + 1, 0.0) + probability * rate
        ending = {k: p for k, p in probabilities.items() if n == 150 or is_enough(k, n, config)}
        running = {k: p for k, p in probabilities.items() if k not in ending}
        kind = rate_kind(config)
        covered += sum(
            probability for k, probability in ending.items() if rate in rate_after(k, n, kind)
        )
        stopped += sum(ending.values())

    assert stopped == pytest.approx(1.0)
    assert covered >= 0.95


@pytest.mark.parametrize(
    "rule", [{"stop_at_width": 0.25, "stop_against": 0.6}, {"stop_at_width": 0.25}]
)
def test_it_stops_as_soon_as_the_interval_is_good_enough(rule: dict[str, float]) -> None:
    rng, config = np.random.default_rng(5), EvalConfig(**rule, **POPULATION)
    for rate in rng.random(60):
        run, passed = stopping_for(config), 0
        for n, good in enumerate(rng.random(100) < rate, 1):
            run.begin(n)
            reason = run.add(n, bool(good))
            passed += int(good)
            assert bool(reason) == is_enough(passed, n, config)
            if reason:
                break


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("rate", [0.7, 0.8, 0.86])
def test_a_dataset_is_decided_as_its_complete_run_would_be(rate: float, epochs: int) -> None:
    """An error of 5 % is allowed; more than 12 errors in 120 runs are then less likely than 1 %."""
    rng, wrong, tried = np.random.default_rng(1), 0, []
    config = EvalConfig(stop_against=0.8, epochs=epochs)
    for _ in range(120):
        pass_rates = rng.beta(2 * rate, 2 * (1 - rate), 120)
        passes = rng.binomial(epochs, pass_rates)
        rule = RateStoppingRule(config, 120)
        for n, passed in enumerate(passes, 1):
            if reason := rule.add(n, int(passed)):
                truth = passes.sum() / epochs / 120
                assert rule.decision is not None
                assert rule.decision.size == 120
                wrong += not rule.decision.low <= truth <= rule.decision.high
                assert ("at least" in reason) == (rule.decision.low >= 0.8)
                break
        tried.append(n)

    assert wrong <= 12
    assert np.mean(tried) < 112


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "max_ratio"), [(0.9, 0.6), (0.92, 0.5), (0.75, 0.5)])
def test_five_epochs_stop_earlier_than_one(rate: float, max_ratio: float) -> None:
    rng = np.random.default_rng(2)

    def samples_tried(epochs: int) -> float:
        tried = []
        for _ in range(40):
            pass_rates = rng.beta(2 * rate, 2 * (1 - rate), 400)
            rule = RateStoppingRule(
                EvalConfig(stop_against=0.85, epochs=epochs, decide_for="population")
            )
            passes = rng.binomial(epochs, pass_rates)
            tried.append(next((n for n, k in enumerate(passes, 1) if rule.add(n, int(k))), 400))
        return float(np.mean(tried))

    assert samples_tried(5) < max_ratio * samples_tried(1) + 20


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("decide_for", ["dataset", "population"])
@pytest.mark.parametrize("epochs", [1, 2])
async def test_a_stopped_run_never_contradicts_its_reason(
    tmp_path: Path, decide_for: Any, epochs: int, anyio_backend: str
) -> None:
    """Samples in flight at the stop count too, and may move the rate back over the limit."""
    with open_store(tmp_path / "runs.db") as store:
        stopped = 0
        for seed in range(anyio_backend == "trio", 12, 2):  # each backend runs half of the seeds
            rng = np.random.default_rng(seed)
            answers = np.where(rng.random((2, 300)) < 0.95, "ok", "no").tolist()
            calls = [0] * 300

            async def agent(number: int, answers: Any = answers, calls: Any = calls) -> str:
                calls[number] += 1
                await anyio.lowlevel.checkpoint()
                return str(answers[calls[number] - 1][number])

            config = EvalConfig(
                10, stop_against=0.85, decide_for=decide_for, epochs=epochs, seed=seed
            )
            report = await evaluate(Dataset(MANY), config, exact_match, agent=agent, store=store)
            if not report.stopped:
                continue
            stopped += 1
            assert report.rate.low >= 0.85, str(report)
            report.save(tmp_path / f"{decide_for}{epochs}{seed}")
            loaded = EvalReport.load(tmp_path / f"{decide_for}{epochs}{seed}")
            stored = overview(store, report.run_id)
            assert (
                stored.figures.rate
                == loaded.rate
                == report.rate
                == store.report(report.run_id).rate
            )
            assert stored_outcomes(store, report.run_id).figures == stored.figures
            assert str(stored) == str(report)
        assert stopped >= 5


def test_fast_samples_wait_for_samples_that_began_earlier() -> None:
    rule = stopping_for(EvalConfig(stop_against=0.5))
    for index in range(10):
        rule.begin(index)

    assert not any(rule.add(index, True) for index in range(1, 10))
    assert rule.add(0, True) == DECIDED


def test_a_sample_counts_once_all_of_its_epochs_are_done() -> None:
    rule = stopping_for(EvalConfig(stop_against=0.5, epochs=3))
    decisions = []
    for index in range(12):
        for _ in range(3):
            rule.begin(index)
        decisions += [bool(rule.add(index, True)) for _ in range(3)]

    assert decisions.index(True) % 3 == 2  # the last epoch of a sample


@pytest.mark.parametrize("wrong", [0, 1.5, -0.1, "10%", float("nan")])
@pytest.mark.parametrize("name", ["stop_at_width", "stop_against"])
def test_a_value_that_is_not_a_share_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match=f"expected a share above 0 and at most 1 for .*{name}"):
        EvalConfig(**{name: wrong})


# ── the engine ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_a_dataset_is_run_in_random_order_and_reported_in_its_own() -> None:
    calls: list[int] = []

    async def agent(number: int) -> str:
        calls.append(number)
        return "ok"

    config = EvalConfig(1, stop_against=0.5, seed=3, **POPULATION)
    report = await evaluate(Dataset(MANY), config, exact_match, agent=agent)

    assert report.stopped == DECIDED
    assert len(calls) == 7
    assert calls != sorted(calls)
    assert [result.sample_id for result in report.results] == [f"s{n:03}" for n in sorted(calls)]
    assert str(report) == (
        "7/7 passed, 0 errors (100.0%, 95% anytime-valid interval 52.1% to 100.0%, n = 7) - "
        + DECIDED
    )
    first = set(calls)
    calls.clear()
    repeated = await evaluate(MANY, config, exact_match, agent=agent)
    assert set(calls) == first
    assert repeated.rate == report.rate


@pytest.mark.anyio
async def test_a_lazy_source_is_read_in_order_and_no_further_than_needed() -> None:
    pulled = []

    def source() -> Iterator[Sample[int, str]]:
        for sample in MANY:
            pulled.append(sample.id)
            yield sample

    run = await ran(source(), right, stop_against=0.5)

    assert run.ids == pulled == [f"s{n:03}" for n in range(7)]


@pytest.mark.anyio
async def test_an_error_is_not_a_pass() -> None:
    def agent(number: int) -> str:
        raise ConnectionError("lost")

    run = await ran(MANY, agent, stop_against=0.5, **POPULATION)

    assert run.engine.stopped == "stopped early: the pass rate is shown to be below 50.0%"


@pytest.mark.anyio
async def test_samples_in_flight_at_the_stop_finish_and_count() -> None:
    run = await ran(MANY, right, stop_against=0.5, max_concurrent=20, **POPULATION)

    assert run.engine.stopped == DECIDED
    assert len(run.results) == run.engine.tally.passed >= 7
    assert not run.engine.running


@pytest.mark.anyio
async def test_a_rule_that_is_met_by_the_last_sample_does_not_stop_the_run() -> None:
    config = EvalConfig(stop_against=0.5, **POPULATION)
    report = await evaluate(SAMPLES[:7], config, exact_match, agent=right)

    assert report.stopped == ""
    assert "anytime-valid" in str(report)


@pytest.mark.anyio
async def test_the_rule_decides_about_the_rate_of_the_dataset_by_default() -> None:
    """As --fail-under does; once all samples ran, the rate of the dataset is known exactly."""
    config = EvalConfig(1, stop_against=0.5)
    report = await evaluate(Dataset(MANY[:40]), config, exact_match, agent=right)

    assert str(report) == (
        "6/6 passed, 0 errors (100.0%, 95% anytime-valid interval 50.0% to 100.0% of all 40 "
        "samples, n = 6) - stopped early: the pass rate of all 40 samples is shown to be at least "
        "50.0%"
    )
    config = EvalConfig(1, stop_against=0.99)  # only the last of seven samples decides it
    complete = await evaluate(SAMPLES[:7], config, exact_match, agent=right)
    assert str(complete) == "7/7 passed, 0 errors (100.0%, 95% interval 64.6% to 100.0%, n = 7)"


@pytest.mark.anyio
async def test_a_rule_that_is_met_after_a_lazy_source_ended_does_not_stop_the_run() -> None:
    others_finished = anyio.Event()

    async def agent(number: int) -> str:
        if number == 0:
            await others_finished.wait()
        elif number == 9:
            others_finished.set()
        return "ok"

    config = EvalConfig(stop_against=0.5, max_concurrent=2)
    report = await evaluate(iter(SAMPLES), config, exact_match, agent=agent)

    assert (report.total, report.stopped) == (10, "")


@pytest.mark.anyio
async def test_a_stopped_run_continues_without_its_rule(tmp_path: Path) -> None:
    calls: list[int] = []

    async def agent(number: int) -> str:
        calls.append(number)
        return "ok" if number % 8 else "no"

    with open_store(tmp_path / "runs.db") as store:

        async def run_with(**rule: float) -> str:
            calls.clear()
            options = {"resume": "latest"} if store.runs() else {}
            config = EvalConfig(epochs=2, **rule)
            await evaluate(Dataset(MANY), config, exact_match, agent=agent, store=store, **options)
            return store.run("latest").note

        assert await run_with(stop_at_width=0.2) == NARROW
        record, before = store.run("latest"), len(calls)
        assert (record.status, record.manifest.config["stop_at_width"]) == ("stopped", 0.2)
        assert 100 < before < 600

        assert await run_with(stop_at_width=0.2) == NARROW  # the stored results are enough
        assert calls == []

        assert await run_with(stop_at_width=0.15) != ""  # they are not enough for this width
        assert 0 < len(calls) < 600 - before

        assert await run_with() == ""
        record = store.run("latest")
        assert (record.status, record.total) == ("complete", 600)


@pytest.mark.anyio
@pytest.mark.parametrize("change", ["the judge is repaired", "the judge is another"])
async def test_a_verdict_that_will_be_rescored_does_not_stop_the_run(
    tmp_path: Path, change: str
) -> None:
    repaired = change == "the judge is repaired"
    broken = True

    # Async, without threads: a slow thread would let any number of other samples overtake it.
    async def judge(output: str, expected: str) -> Score:
        if broken:
            raise RuntimeError("no judge today")
        return Score(1.0, True)

    async def strict(output: str, expected: str) -> Score:
        return Score(0.0, False)

    with open_store(tmp_path / "runs.db") as store:

        async def run_with(score: Any, **options: Any) -> EvalReport[str]:
            config = EvalConfig(stop_against=0.5, epochs=2, max_concurrent=3, **POPULATION)
            return await evaluate(MANY, config, score, agent=right, store=store, **options)

        before = await run_with(judge if repaired else strict)
        assert before.stopped == DECIDED.replace("above", "below")
        broken = False

        after = await run_with(judge, resume="latest", retry_errors=repaired)
        assert after.stopped == DECIDED
        assert (after.passed, after.rate.low > 0.5) == (after.total, True)
        assert before.total < after.total < 2 * before.total + 6
