"""One sample, one agent, one criterion, one result: the function behind every way to run."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock
from ..experiment import BASELINE
from ..runtime.session import Session
from ._agents import Agent
from ._criterion import Criterion
from ._report import ErrorSource, EvalResult
from ._types import NO_TRAJECTORY, EvalContext, Sample, Score

__all__ = ["attempt"]


def _message(failure: Exception) -> str:
    """The plain message; with the type's name where it says nothing by itself."""
    if isinstance(failure, KeyError) or not str(failure):
        return f"{type(failure).__name__}: {failure}".rstrip(": ")
    return str(failure)


async def attempt(
    agent: Agent,
    sample: Sample[Any, Any],
    criterion: Criterion,
    *,
    scope: EvalContext = EvalContext(),  # noqa: B008  # frozen
    experiment_name: str = BASELINE.name,
    epoch: int = 1,
    clock: Clock = SYSTEM_CLOCK,
) -> EvalResult[Any]:
    """Run the agent on the sample and score what it leaves.

    `scope` brings what is the same for a whole run: the adapter and the run id. One bad sample is
    data: whatever the agent or the evaluator raises ends in the result, cancellation excepted.
    """
    trajectory, error = NO_TRAJECTORY, None
    source: ErrorSource | None = "agent"
    start = clock.monotonic()
    latency_ms = 0
    try:
        try:
            left = agent(sample)
            trajectory, session = await left if inspect.isawaitable(left) else left
        finally:
            latency_ms = int((clock.monotonic() - start) * 1000)
        if trajectory.latency_ms is not None:
            latency_ms = trajectory.latency_ms
        source = "evaluator"
        # Evaluators look; they never touch.
        view = session.view() if isinstance(session, Session) else session
        score = await criterion.ask(
            replace(scope, sample=sample, trajectory=trajectory, session=view)
        )
        source = None
    except Exception as failure:
        error = _message(failure)
        score = Score(0.0, False, error)
    return EvalResult(
        sample.id,
        score,
        latency_ms,
        error,
        sample,
        None if trajectory is NO_TRAJECTORY else trajectory,
        dict(sample.metadata),
        experiment_name,
        epoch,
        scope.run_id,
        error_source=source,
    )
