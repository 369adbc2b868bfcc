"""One sample, one agent, one criterion, one result: the function behind every way to run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import UsageError, shown
from ..experiment import BASELINE
from ..rollouts import Trajectory
from ..runtime.session import Session, SessionSnapshot, SessionView
from ._agents import Agent
from ._criterion import criterion
from ._report import ErrorSource, EvalResult
from ._score import Score
from ._types import EvalContext, Sample

__all__ = ["attempt"]


async def attempt(
    agent: Agent,
    sample: Sample[Any, Any],
    evaluator: Callable[..., Any],
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
    judge = criterion(evaluator)
    trajectory: Trajectory[Any] | None = None
    error: str | None = None
    source: ErrorSource | None = "agent"
    latency_ms = 0
    start = clock.monotonic()
    try:
        try:
            left = agent(sample)
            left = await left if inspect.isawaitable(left) else left
        finally:
            latency_ms = round((clock.monotonic() - start) * 1000)
        trajectory, session = _leavings(left)
        if trajectory.latency_ms is None:
            trajectory = replace(trajectory, latency_ms=latency_ms)
        context = replace(scope, sample=sample, trajectory=trajectory, session=_view(session))
        source = "evaluator"
        score = await judge.ask(context)
        source = None
    except Exception as failure:
        error = _message(failure)
        score = Score(0.0, False, error)
    return EvalResult(
        sample.id,
        score,
        latency_ms if trajectory is None else trajectory.latency_ms or 0,
        error,
        sample,
        trajectory,
        sample.metadata,
        experiment_name,
        epoch,
        scope.run_id,
        error_source=source,
    )


def _leavings(left: Any) -> tuple[Trajectory[Any], Any]:
    if isinstance(left, tuple) and len(left) == 2 and isinstance(left[0], Trajectory):
        return left
    raise UsageError(
        f"expected the agent to leave a trajectory and a session (or None), got {shown(left)} - "
        "wrap a plain function: function_agent(fn)"
    )


def _view(session: SessionView | None) -> SessionView | None:
    """What evaluators see: never the session itself, and just what another process would see."""
    if isinstance(session, Session):
        return SessionSnapshot.from_bytes(session.snapshot())
    return session


def _message(failure: BaseException) -> str:
    """The plain message; with the type's name where it says nothing by itself."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    kind = type(failure).__name__
    try:
        text = str(failure)
    except Exception:
        return f"{kind} (its message could not be read)"
    return f"{kind}: {text}" if text and isinstance(failure, KeyError) else text or kind
