"""An engine in small, for the tests of its laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio

from weakincentives.clock import SYSTEM_CLOCK, Clock
from weakincentives.evals import (
    BASELINE,
    EvalConfig,
    EvalContext,
    EvalResult,
    Sample,
    agent_of,
    criterion,
    exact_match,
)
from weakincentives.evals._run import Engine, Job

__all__ = ["SAMPLES", "Busy", "Ran", "planned", "ran", "right"]

SAMPLES = [Sample(str(number), number, "ok") for number in range(10)]


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
    """An engine that is not started yet."""
    job = Job(
        agent=agent_of(agent),
        criterion=criterion(evaluator),
        config=EvalConfig(**config),
        scope=EvalContext(run_id="r"),
        experiment=BASELINE,
        clock=clock,
    )
    results: list[EvalResult[Any]] = []
    return Ran(Engine(job, lambda task, done: results.append(done.result)), results)


async def ran(samples: Any, agent: Any, evaluator: Any = exact_match, **more: Any) -> Ran:
    """One that ran to its end."""
    run = planned(agent, evaluator, **more)
    with anyio.fail_after(20):
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
