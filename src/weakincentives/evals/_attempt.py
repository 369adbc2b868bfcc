"""One sample, one agent, one criterion, one result: the function behind every way to run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from ..chat import ChatMessage
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import MailboxError, ProviderError, UsageError, shown
from ..experiment import BASELINE, Experiment
from ..rollouts import Trajectory
from ..runtime.session import Session, SessionSnapshot, SessionView
from ..runtime.tracing import span
from ..secrets import scrub_message
from ._agents import Agent, Attempt, _current
from ._criterion import Criterion, criterion
from ._report import ErrorSource, EvalResult
from ._score import Score
from ._types import EvalContext, Sample

__all__ = ["Attempted", "attempt", "attempted", "scored"]

BEFORE_SCORING = ("agent", "infrastructure")  # errors of an attempt that left nothing to score


@dataclass(slots=True)
class Attempted:
    """A result, and what is kept beside it: the session, and the error itself."""

    result: EvalResult[Any]
    session: bytes | Session | None = None
    failure: BaseException | None = None


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
    this = Attempt(scope.run_id, Experiment(experiment_name), epoch, clock=clock)
    done = await attempted(agent, sample, criterion(evaluator), this, scope=scope)
    return done.result


async def attempted(
    agent: Agent,
    sample: Sample[Any, Any],
    judge: Criterion,
    this: Attempt,
    *,
    scope: EvalContext,
    limit: AbstractContextManager[Any] | None = None,
) -> Attempted:
    """The same for the engine: until `limit` is cancelled, and with what is kept beside it."""
    course = _Course(sample, this, scope)
    token = _current.set(this)
    try:
        with limit or nullcontext():
            context = await course.act(agent, seen=judge.session_aware)
            await course.judge(judge, context)
        if course.score is None:
            course.failure = TimeoutError(
                f"expected a result in time, got none in {course.seconds():.1f} s"
            )
    except BaseException as error:
        if not _is_failure(error):
            raise
        course.failure = error
    finally:
        _current.reset(token)
    if course.trajectory is None:
        course.recover()
    return Attempted(course.result(), course.kept, course.failure)


class _Course:
    """How far an attempt has come: what a failure leaves is there too."""

    __slots__ = (
        *("_sample", "_scope", "_start", "_this"),
        *("failure", "kept", "latency_ms", "score", "source", "trajectory"),
    )

    def __init__(self, sample: Sample[Any, Any], this: Attempt, scope: EvalContext) -> None:
        self._sample, self._this, self._scope = sample, this, scope
        self.source: ErrorSource | None = "agent"  # whoever is at work: an error is theirs
        self.trajectory: Trajectory[Any] | None = None
        self.kept: bytes | Session | None = None
        self.score: Score | None = None
        self.failure: BaseException | None = None
        self.latency_ms = 0
        self._start = this.clock.monotonic()

    def seconds(self) -> float:
        """Since its beginning."""
        return self._this.clock.monotonic() - self._start

    async def act(self, agent: Agent, *, seen: bool) -> EvalContext:
        """Let the agent answer; what evaluators see of it, with `seen` also its session."""
        try:
            left = agent(self._sample)
            left = await left if inspect.isawaitable(left) else left
        finally:
            self.latency_ms = round(self.seconds() * 1000)
        trajectory, session = _leavings(left)
        if trajectory.latency_ms is None:
            trajectory = _timed(trajectory, self.latency_ms)
        self.trajectory = trajectory
        view, self.kept = _view(session, seen, self._this.keep, later=self._this.own)
        return EvalContext(
            sample=self._sample,
            trajectory=trajectory,
            session=view,
            adapter=self._scope.adapter,
            run_id=self._scope.run_id,
        )

    async def judge(self, criterion: Criterion, context: EvalContext) -> None:
        """Score what the agent left."""
        self.source = "evaluator"
        with span("evaluator", criterion.name) as seen:
            verdict = (criterion.judge if criterion.quick else criterion.ask_aside)(context)
            self.score = verdict if isinstance(verdict, Score) else await verdict
            seen.add(score=self.score)
        self.source = None

    def recover(self) -> None:
        """Of an agent that failed: whose fault it was, and what was put aside before."""
        if _is_away(self.failure):
            self.source = "infrastructure"
        self.kept = _last_words(self._this)
        said = tuple(each for each in self._this.messages if isinstance(each, ChatMessage))
        if said:
            self.trajectory = Trajectory(said, latency_ms=self.latency_ms)

    def result(self) -> EvalResult[Any]:
        """What came of it."""
        sample, this, trajectory = self._sample, self._this, self.trajectory
        message = None if self.failure is None else _message(self.failure)
        return EvalResult(
            sample.id,
            Score(0.0, False, message or "") if self.score is None else self.score,
            self.latency_ms if trajectory is None else trajectory.latency_ms or 0,
            message,
            sample,
            trajectory,
            sample.metadata,
            this.experiment.name,
            this.epoch,
            self._scope.run_id,
            this.number,
            self.source,
        )


async def scored(
    result: EvalResult[Any],
    session: bytes | None,
    ask: Callable[[EvalContext], Any],
    scope: EvalContext,
) -> EvalResult[Any]:
    """A stored result with a new score, from what its attempt left: no agent runs."""
    if result.sample is None or result.trajectory is None or result.error_source in BEFORE_SCORING:
        return result
    view = None if session is None else SessionSnapshot.from_bytes(session)
    context = replace(scope, sample=result.sample, trajectory=result.trajectory, session=view)
    try:
        score = await ask(context)
    except BaseException as failure:
        if not _is_failure(failure):
            raise
        error = _message(failure)
        return replace(
            result, score=Score(0.0, False, error), error=error, error_source="evaluator"
        )
    return replace(result, score=score, error=None, error_source=None)


def _timed(t: Trajectory[Any], latency_ms: int) -> Trajectory[Any]:
    # Not `replace`, which takes longer than all else that happens to an instant agent's sample.
    return Trajectory(
        t.messages, t.output, t.usage, t.stop_reason, latency_ms, t.cost, t.metadata, t.tokens
    )


def _leavings(left: Any) -> tuple[Trajectory[Any], Any]:
    if isinstance(left, tuple) and len(left) == 2 and isinstance(left[0], Trajectory):
        return left
    raise UsageError(
        f"expected the agent to leave a trajectory and a session (or None), got {shown(left)} - "
        "wrap a plain function: function_agent(fn)"
    )


def _view(
    session: SessionView | None, seen: bool, kept: bool, *, later: bool = False
) -> tuple[SessionView | None, bytes | Session | None]:
    """What evaluators see, and what is kept.

    They never see the session itself, but just what another process would see. Nothing is made
    that nobody looks at. With `later`, for a session that nobody changes any more, telemetry, which
    can always be written, is left as it is.
    """
    if isinstance(session, SessionSnapshot):
        return session, session.to_bytes() if kept else None
    if not isinstance(session, Session) or not (seen or kept):
        return session if seen else None, None
    if later and not seen and session.is_telemetry:
        return None, session
    data = session.snapshot()
    return SessionSnapshot.from_bytes(data) if seen else None, data


def _last_words(this: Attempt) -> bytes | None:
    """The session of an attempt that failed, if it can be written down.

    At once: a thread that was left behind may still write to it.
    """
    try:
        _, kept = _view(this.session, seen=False, kept=this.keep)
        return kept if isinstance(kept, bytes) else None
    except Exception:
        return None


def _is_away(failure: BaseException | None) -> bool:
    """True for a provider or a mailbox that is busy or away, which says nothing of the agent."""
    return (isinstance(failure, ProviderError) and failure.retryable) or isinstance(
        failure, MailboxError
    )


def _is_failure(error: BaseException) -> bool:
    """True for what one sample ends in: any error, `sys.exit()`, a cancellation that nobody asked.

    An agent that waits for something of its own that was cancelled gets a `CancelledError`, just as
    one that is cancelled itself. Left alone, it would end the worker without a result.
    """
    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, Exception | SystemExit)
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio, which has another error for it
        return True
    return task is None or not task.cancelling()


def _message(failure: BaseException) -> str:
    """The plain message; with the type's name where it says nothing by itself."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    kind = type(failure).__name__
    try:
        text = str(failure)
    except Exception:
        return f"{kind} (its message could not be read)"
    if text and isinstance(failure, KeyError | SystemExit):
        text = f"{kind}: {text}"
    return scrub_message(text) or kind
