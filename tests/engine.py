"""Run an engine in tests, and an event loop whose time jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from weakincentives.clock import SYSTEM_CLOCK, Clock
from weakincentives.evals import EvalConfig, EvalResult, Sample, criterion, exact_match
from weakincentives.evals.engine import agent_of
from weakincentives.evals.engine.attempts import AttemptOutcome
from weakincentives.evals.engine.engine import Engine, RunSpec, Task

__all__ = [
    *("LIMITS", "LOOP_TIME", "SAMPLES", "TIMEOUT", "Busy", "Ran", "in_jumping_time"),
    *("planned", "ran", "right"),
]

SAMPLES = [Sample(str(number), number, "ok") for number in range(10)]
TIMEOUT = 60.0  # seconds; only code that hangs takes as long
# Milliseconds. A test in which one thing must finish in time, and another must not, tries these in
# turn: a busy machine may pause for longer than a short limit.
LIMITS = (60, 1_000, 20_000)


@dataclass(slots=True)
class Ran:
    """An engine and the results of its run."""

    engine: Engine
    results: list[EvalResult[Any]]

    @property
    def ids(self) -> list[str]:
        """Return the ids of the samples, in the order in which they finished."""
        return [result.sample_id for result in self.results]

    @property
    def errors(self) -> dict[str, tuple[str | None, str | None]]:
        """Return the source and message of each error, by sample id."""
        return {r.sample_id: (r.error_source, r.error) for r in self.results if not r.success}


def planned(
    agent: Any, evaluator: Any = exact_match, clock: Clock = SYSTEM_CLOCK, **config: Any
) -> Ran:
    """Return an engine that is not started, with a concurrency of 1 unless `config` sets it."""
    job = RunSpec(
        agent=agent_of(agent),
        criterion=criterion(evaluator),
        config=EvalConfig(**{"max_concurrent": 1, **config}),
        run_id="r",
        clock=clock,
    )
    results: list[EvalResult[Any]] = []

    async def settle(task: Task, outcome: AttemptOutcome) -> None:
        results.append(outcome.result)

    return Ran(Engine(job, settle), results)


async def ran(samples: Any, agent: Any, evaluator: Any = exact_match, **more: Any) -> Ran:
    """Run an engine to its end and return it with its results."""
    run = planned(agent, evaluator, **more)
    with anyio.fail_after(TIMEOUT):
        await run.engine.run(samples)
    return run


async def right(number: int) -> str:
    """Answer correctly: an agent that always passes."""
    return "ok"


class Busy:
    """Counts how many tasks are inside the context now, and the maximum so far."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def __enter__(self) -> None:
        self.now += 1
        self.peak = max(self.peak, self.now)

    def __exit__(self, *error: object) -> None:
        self.now -= 1


# ── time that jumps ─────────────────────────────────────────────────────────────────────────────


class JumpingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time stands still while there is work, and jumps to the next timer.

    Like trio's `MockClock`. Not for tests with threads: the loop does not wait for them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.seconds


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select()
        found = super().select(0)
        if not found:
            self._loop.seconds += timeout
        return found


class _LoopTime:
    """The time of the running event loop, as a `Clock`."""

    def monotonic(self) -> float:
        return anyio.current_time()

    def now(self) -> datetime:
        return datetime.fromtimestamp(anyio.current_time(), UTC)


LOOP_TIME: Clock = _LoopTime()

# Under both backends. Pass `clock=LOOP_TIME` to an engine whose timeouts should jump, too.
in_jumping_time = pytest.mark.parametrize(
    "anyio_backend",
    [
        ("asyncio", {"loop_factory": JumpingLoop}),
        ("trio", {"clock": MockClock(autojump_threshold=0)}),
    ],
    ids=["asyncio", "trio"],
)
