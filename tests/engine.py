"""An engine in small, for the tests of its laws; and time that passes when nobody works."""

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
from weakincentives.evals import EvalConfig, EvalResult, Sample, agent_of, criterion, exact_match
from weakincentives.evals.engine.attempts import AttemptOutcome
from weakincentives.evals.engine.engine import Engine, RunSpec, Task

__all__ = [
    *("LIMITS", "LOOP_TIME", "PATIENCE", "SAMPLES", "Busy", "Ran", "in_jumping_time"),
    *("planned", "ran", "right"),
]

SAMPLES = [Sample(str(number), number, "ok") for number in range(10)]
PATIENCE = 60.0  # seconds; only what hangs takes so long
# Milliseconds. What must end in time, while something else must not, is tried with the first that
# this machine keeps: a busy one may stand still for longer than a short one lasts.
LIMITS = (60, 1_000, 20_000)


@dataclass(slots=True)
class Ran:
    """An engine, and what came of its run."""

    engine: Engine
    results: list[EvalResult[Any]]

    @property
    def ids(self) -> list[str]:
        """In the order in which they finished."""
        return [result.sample_id for result in self.results]

    @property
    def errors(self) -> dict[str, tuple[str | None, str | None]]:
        """Source and message of those that failed."""
        return {r.sample_id: (r.error_source, r.error) for r in self.results if not r.success}


def planned(
    agent: Any, evaluator: Any = exact_match, clock: Clock = SYSTEM_CLOCK, **config: Any
) -> Ran:
    """An engine that is not started yet, with one sample at a time unless `config` says more."""
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
    """One that ran to its end."""
    run = planned(agent, evaluator, **more)
    with anyio.fail_after(PATIENCE):
        await run.engine.run(samples)
    return run


async def right(number: int) -> str:
    """What an agent does who knows it."""
    return "ok"


class Busy:
    """How many are inside, and how many were at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *error: object) -> None:
        self.now -= 1


# ── time that jumps ─────────────────────────────────────────────────────────────────────────────


class JumpingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time stands still while there is work, and jumps to the next timer.

    As trio's `MockClock`. Not for tests with threads: to wait for one is no work.
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
    """The time of whichever loop runs, as a `Clock`."""

    def monotonic(self) -> float:
        return anyio.current_time()

    def now(self) -> datetime:
        return datetime.fromtimestamp(anyio.current_time(), UTC)


LOOP_TIME: Clock = _LoopTime()

# Under both back-ends. An engine whose limits are to jump along gets `clock=LOOP_TIME`.
in_jumping_time = pytest.mark.parametrize(
    "anyio_backend",
    [
        ("asyncio", {"loop_factory": JumpingLoop}),
        ("trio", {"clock": MockClock(autojump_threshold=0)}),
    ],
    ids=["asyncio", "trio"],
)
