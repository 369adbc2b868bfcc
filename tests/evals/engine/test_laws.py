"""The laws of the engine, on random mixtures of agents that fail, wait, hang and try again.

Time is trio's own here and jumps to whatever comes next, so that a time limit costs none.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from weakincentives.errors import ProviderError
from weakincentives.evals import EvalConfig, EvalResult, Sample, agent_of, criterion, exact_match
from weakincentives.evals.engine.agents import current
from weakincentives.evals.engine.engine import MAX_OVERCOMMIT, Engine, RunSpec
from weakincentives.internal.slots import slot_released

LIMIT = 1.0  # seconds for a sample


class Jumping:
    """Trio's time as a `Clock`."""

    def monotonic(self) -> float:
        return trio.current_time()

    def now(self) -> datetime:
        return datetime.fromtimestamp(trio.current_time(), UTC)


@dataclass(frozen=True)
class Try:
    """What one attempt does: works, is away, works again, and ends somehow."""

    work: float
    gone: float
    end: str


@dataclass(frozen=True)
class Script:
    tries: tuple[Try, ...]
    judged: float
    verdict: str


works = st.sampled_from([0.0, 0.2, 0.4, 2 * LIMIT])
attempts = st.builds(
    Try, works, st.sampled_from([0.0, 0.0, 0.3, 5.0]), st.sampled_from(["ok", "bad", "busy", "no"])
)
scripts = st.builds(
    Script,
    st.lists(attempts, min_size=3, max_size=3).map(tuple),
    works,
    st.sampled_from(["pass", "fail", "raise"]),
)
configs = st.builds(
    EvalConfig,
    max_concurrent=st.integers(1, 4),
    timeout_per_sample_ms=st.just(round(LIMIT * 1000)),
    max_retries=st.integers(0, 2),
    max_samples=st.none() | st.integers(0, 6),
    epochs=st.integers(1, 2),
)


def job(agent: Any, evaluator: Any, config: EvalConfig) -> RunSpec:
    return RunSpec(
        agent=agent_of(agent),
        criterion=criterion(evaluator),
        config=config,
        run_id="r",
        clock=Jumping(),
    )


class World:
    """Agents and evaluators that follow their scripts, and what was seen of them."""

    def __init__(self, config: EvalConfig) -> None:
        self.config = config
        self.busy = self.under_way = 0
        self.results: list[EvalResult[Any]] = []

    async def agent(self, sample: Sample[Script, Any]) -> str:
        step = sample.input.tries[current().number - 1]
        self.under_way += 1
        try:
            assert self.under_way <= self.config.max_concurrent * MAX_OVERCOMMIT
            await self.work(step.work / 2)
            if step.gone:
                async with slot_released():
                    await anyio.sleep(step.gone)
            await self.work(step.work / 2)
        finally:
            self.under_way -= 1
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
        self.busy += 1
        assert self.busy <= self.config.max_concurrent
        try:
            await anyio.sleep(seconds)
        finally:
            self.busy -= 1

    async def run(self, samples: list[Sample[Script, Any]]) -> Engine:
        engine = Engine(job(self.agent, self.evaluator, self.config), self.settle)
        await engine.run(samples)
        return engine

    async def settle(self, task: Any, outcome: Any) -> None:
        self.results.append(outcome.result)


def expected_end(script: Script, retries: int) -> tuple[int, str | None, bool]:
    """Attempt, source of the error, passed: for a script in which nobody is ever away."""
    for number, step in enumerate(script.tries[: retries + 1], start=1):
        too_long = step.work > LIMIT
        if not too_long and step.end == "ok":
            judged_too_long = step.work + script.judged > LIMIT
            failed = judged_too_long or script.verdict == "raise"
            return number, "evaluator" if failed else None, script.verdict == "pass" and not failed
        if (not too_long and step.end == "no") or number > retries:
            busy = not too_long and step.end == "busy"
            return number, "infrastructure" if busy else "agent", False
    raise AssertionError("a script has a try for every retry")


@given(config=configs, given_scripts=st.lists(scripts, max_size=8))
def test_every_sample_ends_in_exactly_one_result(
    config: EvalConfig, given_scripts: list[Script]
) -> None:
    samples = [Sample(str(number), each) for number, each in enumerate(given_scripts)]
    world = World(config)

    engine = trio.run(world.run, samples, clock=MockClock(autojump_threshold=0))

    wanted = samples if config.max_samples is None else samples[: config.max_samples]
    assert Counter((r.sample_id, r.epoch) for r in world.results) == Counter(
        (sample.id, epoch) for sample in wanted for epoch in range(1, config.epochs + 1)
    )
    assert (world.busy, world.under_way, engine.running) == (0, 0, {})
    assert engine._slots.value == config.max_concurrent
    assert engine.tally.done == len(world.results)
    for result in world.results:
        script = given_scripts[int(result.sample_id)]
        assert (result.error is None) == (result.error_source is None)
        if not any(step.gone for step in script.tries):
            end = expected_end(script, config.max_retries)
            assert (result.attempt, result.error_source, result.passed) == end


@given(waits=st.lists(st.floats(0.5, 50), min_size=1, max_size=4), most=st.integers(1, 3))
def test_nobody_comes_back_before_the_service_said_so(waits: list[float], most: int) -> None:
    failed: dict[str, float] = {}
    waited: dict[str, float] = {}

    async def agent(sample: Sample[float, Any]) -> str:
        if current().number == 1:
            failed[sample.id] = trio.current_time()
            raise ProviderError("later", retryable=True, status=429, retry_after=sample.input)
        waited[sample.id] = trio.current_time() - failed[sample.id]
        return "done"

    async def main() -> None:
        config = EvalConfig(max_concurrent=most, max_retries=1)
        engine = Engine(job(agent, exact_match, config), World(config).settle)
        await engine.run([Sample(str(number), wait) for number, wait in enumerate(waits)])
        # They wait together, as far as places may be lent, and not one after the other.
        rounds = math.ceil(len(waits) / (most * MAX_OVERCOMMIT))
        assert trio.current_time() <= rounds * (max(waits) + 0.5) + 0.1

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert all(waited[str(number)] >= wait - 1e-6 for number, wait in enumerate(waits))
