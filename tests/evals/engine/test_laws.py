"""Properties of the engine, with random mixtures of agents that fail, wait, hang and are retried.

The tests use trio's mock clock, which jumps to the next event, so timeouts take no real time.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from weakincentives.errors import ProviderError
from weakincentives.evals import EvalConfig, EvalResult, Sample, criterion, exact_match
from weakincentives.evals.engine import agent_of
from weakincentives.evals.engine.agents import current
from weakincentives.evals.engine.engine import MAX_OVERCOMMIT, Engine, RunSpec
from weakincentives.internal.slots import slot_released

TIMEOUT = 1.0  # seconds per sample


class TrioClock:
    """The time of the trio event loop as a `Clock`."""

    def monotonic(self) -> float:
        return trio.current_time()

    def now(self) -> datetime:
        return datetime.fromtimestamp(trio.current_time(), UTC)


@dataclass(frozen=True)
class AttemptScript:
    """What one attempt does: work, wait without its slot, work again, and end."""

    work: float
    wait: float
    end: str


@dataclass(frozen=True)
class Script:
    tries: tuple[AttemptScript, ...]
    judged: float
    verdict: str


durations = st.sampled_from([0.0, 0.2, 0.4, 2 * TIMEOUT])
attempts = st.builds(
    AttemptScript,
    durations,
    st.sampled_from([0.0, 0.0, 0.3, 5.0]),
    st.sampled_from(["ok", "bad", "busy", "no"]),
)
scripts = st.builds(
    Script,
    st.lists(attempts, min_size=3, max_size=3).map(tuple),
    durations,
    st.sampled_from(["pass", "fail", "raise"]),
)
configs = st.builds(
    EvalConfig,
    max_concurrent=st.integers(1, 4),
    timeout_per_sample_ms=st.just(round(TIMEOUT * 1000)),
    max_retries=st.integers(0, 2),
    max_samples=st.none() | st.integers(0, 6),
    epochs=st.integers(1, 2),
)


def run_spec(agent: Any, evaluator: Any, config: EvalConfig) -> RunSpec:
    return RunSpec(
        agent=agent_of(agent),
        criterion=criterion(evaluator),
        config=config,
        run_id="r",
        clock=TrioClock(),
    )


class ScriptedRun:
    """Agents and evaluators that follow their scripts; counts concurrency and collects results."""

    def __init__(self, config: EvalConfig) -> None:
        self.config = config
        self.working = self.in_flight = 0
        self.results: list[EvalResult[Any]] = []

    async def agent(self, sample: Sample[Script, Any]) -> str:
        step = sample.input.tries[current().number - 1]
        self.in_flight += 1
        try:
            assert self.in_flight <= self.config.max_concurrent * MAX_OVERCOMMIT
            await self.work(step.work / 2)
            if step.wait:
                async with slot_released():
                    await anyio.sleep(step.wait)
            await self.work(step.work / 2)
        finally:
            self.in_flight -= 1
        if step.end in ("busy", "no"):
            raise ProviderError(step.end, retryable=step.end == "busy", retry_after=3.0)
        if step.end == "bad":
            raise ValueError(step.end)
        return "done"

    async def evaluator(self, sample: Sample[Script, Any], output: str, *, context: Any) -> bool:
        await self.work(sample.input.judged)
        if sample.input.verdict == "raise":
            raise KeyError
        return sample.input.verdict == "pass"

    async def work(self, seconds: float) -> None:
        self.working += 1
        assert self.working <= self.config.max_concurrent
        try:
            await anyio.sleep(seconds)
        finally:
            self.working -= 1

    async def run(self, samples: list[Sample[Script, Any]]) -> Engine:
        engine = Engine(run_spec(self.agent, self.evaluator, self.config), self.add_result)
        await engine.run(samples)
        return engine

    async def add_result(self, task: Any, outcome: Any) -> None:
        self.results.append(outcome.result)


def expected_result(script: Script, retries: int) -> tuple[int, str | None, bool]:
    """Return attempt, error source and verdict, for a script that never waits without its slot."""
    for number, step in enumerate(script.tries[: retries + 1], start=1):
        timed_out = step.work > TIMEOUT
        if not timed_out and step.end == "ok":
            scoring_timed_out = step.work + script.judged > TIMEOUT
            failed = scoring_timed_out or script.verdict == "raise"
            return number, "evaluator" if failed else None, script.verdict == "pass" and not failed
        if (not timed_out and step.end == "no") or number > retries:
            busy = not timed_out and step.end == "busy"
            return number, "infrastructure" if busy else "agent", False
    raise AssertionError("a script has a try for every retry")


@given(config=configs, drawn_scripts=st.lists(scripts, max_size=8))
def test_every_sample_gives_exactly_one_result(
    config: EvalConfig, drawn_scripts: list[Script]
) -> None:
    samples = [Sample(str(number), script) for number, script in enumerate(drawn_scripts)]
    run = ScriptedRun(config)

    engine = trio.run(run.run, samples, clock=MockClock(autojump_threshold=0))

    expected = samples if config.max_samples is None else samples[: config.max_samples]
    assert Counter((r.sample_id, r.epoch) for r in run.results) == Counter(
        (sample.id, epoch) for sample in expected for epoch in range(1, config.epochs + 1)
    )
    assert (run.working, run.in_flight, engine.running) == (0, 0, {})
    assert engine._slots.value == config.max_concurrent
    assert engine.tally.done == len(run.results)
    for result in run.results:
        script = drawn_scripts[int(result.sample_id)]
        assert (result.error is None) == (result.error_source is None)
        if not any(step.wait for step in script.tries):
            result_of_script = expected_result(script, config.max_retries)
            assert (result.attempt, result.error_source, result.passed) == result_of_script


@given(waits=st.lists(st.floats(0.5, 50), min_size=1, max_size=4), max_concurrent=st.integers(1, 3))
def test_no_retry_starts_before_the_time_that_the_service_asked_for(
    waits: list[float], max_concurrent: int
) -> None:
    failed: dict[str, float] = {}
    waited: dict[str, float] = {}

    async def agent(sample: Sample[float, Any]) -> str:
        if current().number == 1:
            failed[sample.id] = trio.current_time()
            raise ProviderError("later", retryable=True, status=429, retry_after=sample.input)
        waited[sample.id] = trio.current_time() - failed[sample.id]
        return "done"

    async def main() -> None:
        config = EvalConfig(max_concurrent=max_concurrent, max_retries=1)
        engine = Engine(run_spec(agent, exact_match, config), ScriptedRun(config).add_result)
        await engine.run([Sample(str(number), wait) for number, wait in enumerate(waits)])
        # They wait concurrently, as far as slots can be lent.
        rounds = math.ceil(len(waits) / (max_concurrent * MAX_OVERCOMMIT))
        assert trio.current_time() <= rounds * (max(waits) + 0.5) + 0.1

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert all(waited[str(number)] >= wait - 1e-6 for number, wait in enumerate(waits))
