"""One sample, one agent, one criterion, one result: what the engine, `EvalLoop` and pytest run.

Rules of this file:
1. Whatever the agent or an evaluator does ends in the result: it is isolated and has a timeout.
2. An attempt that failed before there was anything to score is retried; one that was scored, or
   whose evaluator failed, is not.
3. The session and the messages of a failed attempt are kept with it.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio

from ...chat import ChatMessage
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import ProviderError, UsageError, is_infrastructure_error, short_repr
from ...experiment import BASELINE, Experiment
from ...internal.error_details import error_details, message_of
from ...internal.isolation import run_isolated
from ...internal.slots import slot_released
from ...rollouts import Trajectory
from ...runtime.metering import Meter, start_meter
from ...runtime.session import Session, SessionSnapshot, SessionView
from ...runtime.tracing import span
from .._samples import private_copy
from .._types import EvalConfig, EvalContext, Sample, Score
from ..evaluators.criteria import Criterion, EvaluatorFunction, criterion
from ..model.judge_calls import judge_calls_of
from ..model.result import ErrorSource, EvalResult
from .agents import Agent, Attempt, current_attempt
from .requirements import check_requirements

if TYPE_CHECKING:
    from .baselines import Baseline

BEFORE_SCORING = ("agent", "infrastructure")  # sources of errors that left nothing to score
MAX_RETRY_AFTER_SECONDS = 120.0  # a `Retry-After` that is longer is not waited for


@dataclass(slots=True, kw_only=True)
class RunSpec:
    """The settings that all attempts of a run share. `adapter` is the model for judges. `left_out`
    are the ids of samples that no stopping rule counts. `baseline` is the run that this one is
    compared with while it runs (`EvalConfig.against`).
    """

    agent: Agent
    criterion: Criterion
    config: EvalConfig = field(default_factory=EvalConfig)
    adapter: Any = None
    run_id: str = ""
    experiment: Experiment = BASELINE
    tags: Mapping[str, str] = field(default_factory=dict)
    keep_sessions: bool = False
    clock: Clock = SYSTEM_CLOCK
    left_out: frozenset[str] = frozenset()
    baseline: Baseline | None = None

    def check(self) -> None:
        """Raise `UsageError` if the criterion cannot work with this agent and adapter."""
        check_requirements(self.criterion, self.adapter, self.agent)

    @property
    def context(self) -> EvalContext:
        """Return what evaluators see in every attempt."""
        return EvalContext(adapter=self.adapter, run_id=self.run_id)


@dataclass(slots=True)
class AttemptOutcome:
    """A result, with what is not part of it: the session, and the error that was raised.

    `agent_version` is that of an agent which ran elsewhere, if it said so.
    """

    result: EvalResult[Any]
    session: bytes | Session | None = None
    failure: BaseException | None = None
    agent_version: str = ""


async def attempt(
    agent: Agent,
    sample: Sample[Any, Any],
    evaluator: EvaluatorFunction,
    *,
    scope: EvalContext = EvalContext(),  # noqa: B008  # frozen
    experiment_name: str = BASELINE.name,
    epoch: int = 1,
    clock: Clock = SYSTEM_CLOCK,
) -> EvalResult[Any]:
    """Run the agent on the sample and score its output, without a timeout and without retries.

    `scope` has what is the same for a whole run: the adapter for judges and the run id. Whatever
    the agent or the evaluator raises ends in the result. Each gets a copy of the sample, so that
    changing it changes nothing else.
    """
    spec = RunSpec(
        agent=agent,
        criterion=criterion(evaluator),
        config=EvalConfig(timeout=None),
        adapter=scope.adapter,
        run_id=scope.run_id,
        experiment=Experiment(experiment_name),
        keep_sessions=True,
        clock=clock,
    )
    spec.check()
    return (await run_attempt(spec, sample, epoch)).result


async def run_attempt(
    spec: RunSpec, sample: Sample[Any, Any], epoch: int = 1, *, tries_before: int = 0
) -> AttemptOutcome:
    """Run the agent on the sample and score its output, in one tracing span.

    `spec.config` has the timeout and how often an attempt is retried. `tries_before` is how often
    this sample was tried already, in an earlier run or delivery; its result is numbered after that.
    """
    with span(
        "sample",
        sample.id,
        sample=sample,
        run_id=spec.run_id,
        experiment=spec.experiment.name,
        epoch=epoch,
    ) as sample_span:
        number = 1
        while True:
            outcome = await _run_once(spec, sample, epoch, tries_before + number)
            if outcome.failure is None:
                break
            delay = _retry_delay(outcome, number, spec.config.max_retries)
            if delay is None:
                break
            async with slot_released():
                await anyio.sleep(delay)
            number += 1
        sample_span.add(result=outcome.result)
        sample_span.error = outcome.failure
    return outcome


def _retry_delay(outcome: AttemptOutcome, number: int, max_retries: int) -> float | None:
    """Return the seconds before the next try; None if there is none."""
    failure = outcome.failure
    if (
        failure is None
        or outcome.result.error_source not in BEFORE_SCORING
        or number > max_retries
        or isinstance(failure, UsageError)
        or (isinstance(failure, ProviderError) and not failure.retryable)
        or (getattr(failure, "retry_after", None) or 0.0) > MAX_RETRY_AFTER_SECONDS
    ):
        return None
    from ...adapters.provider_retry import RetryPolicy  # here, since few attempts are retried

    return RetryPolicy().delay(number, failure, random.random())


async def _run_once(
    spec: RunSpec, sample: Sample[Any, Any], epoch: int, number: int
) -> AttemptOutcome:
    """Run agent and evaluators in a separate task, so that they can cancel only that one."""
    config = spec.config
    this = Attempt(
        spec.run_id,
        spec.experiment,
        epoch,
        number,
        spec.tags,
        spec.keep_sessions,
        spec.clock,
    )
    state = _AttemptState(sample, this, spec)

    async def run_and_score() -> None:
        current_attempt.set(this)  # in the context of this task, which ends with it
        context = await state.run_agent(snapshot_session=spec.criterion.session_aware)
        await state.evaluate(context)

    failure = await run_isolated(run_and_score, config.timeout)
    if state.score is None:
        state.failure = failure
    if state.trajectory is None:
        state.recover()
    outcome = AttemptOutcome(state.result(), state.session, state.failure, this.agent_version)
    state.failure = None  # its traceback refers to the state: a cycle that only the GC would free
    return outcome


def error_without_attempt(
    sample: Sample[Any, Any],
    error: str,
    *,
    source: ErrorSource = "infrastructure",
    run_id: str,
    experiment: str,
    epoch: int,
    attempt: int,
) -> EvalResult[Any]:
    """Return the error of a sample that is given up, and of which no attempt left a result."""
    return EvalResult(
        sample.id,
        Score(0.0, False, error),
        error=error,
        sample=sample,
        metadata=sample.metadata,
        experiment_name=experiment,
        epoch=epoch,
        run_id=run_id,
        attempt=attempt,
        error_source=source,
    )


class _AttemptState:
    """The progress of an attempt. What it left is here, even if it fails."""

    __slots__ = (
        *("_sample", "_spec", "_start", "_this"),
        *("failure", "latency_ms", "meter", "score", "session", "source", "trajectory"),
    )

    def __init__(self, sample: Sample[Any, Any], this: Attempt, spec: RunSpec) -> None:
        self._sample, self._this, self._spec = sample, this, spec
        self.source: ErrorSource | None = "agent"  # the source of an error that occurs now
        self.trajectory: Trajectory[Any] | None = None
        self.session: bytes | Session | None = None
        self.score: Score | None = None
        self.failure: BaseException | None = None
        self.meter: Meter | None = None
        self.latency_ms = 0
        self._start = this.clock.monotonic()

    async def run_agent(self, *, snapshot_session: bool) -> EvalContext:
        """Run the agent; return what evaluators see, with the session if they look at it."""
        sample = private_copy(self._sample)
        try:
            output = self._spec.agent(sample)
            output = await output if inspect.isawaitable(output) else output
        finally:
            self.latency_ms = round((self._this.clock.monotonic() - self._start) * 1000)
        trajectory, session = _check_agent_output(output)
        self.trajectory = trajectory = _with_latency(trajectory, self.latency_ms)
        view, self.session = _snapshot(
            session, snapshot_session, self._this.keep_session, deferred=self._this.owns_session
        )
        return EvalContext(
            # Returned as it is: it is immutable, or cannot be copied.
            sample=sample if sample is self._sample else private_copy(self._sample),
            trajectory=trajectory,
            session=view,
            adapter=self._spec.adapter,
            run_id=self._spec.run_id,
        )

    async def evaluate(self, context: EvalContext) -> None:
        """Score the agent's output."""
        self.source = "evaluator"
        criterion = self._spec.criterion
        if not criterion.non_blocking:  # others only compute
            self.meter = start_meter()
        with span("evaluator", criterion.name) as evaluator_span:
            self.score = await criterion.score_in_thread(context)
            evaluator_span.add(score=self.score)
        self.source = None

    def recover(self) -> None:
        """Record the source of an agent's failure, and keep its session and messages."""
        if is_infrastructure_error(self.failure):
            self.source = "infrastructure"
        if self._this.latency_ms is not None:
            self.latency_ms = self._this.latency_ms
        self.session = _snapshot_after_failure(self._this)
        messages = tuple(
            message for message in self._this.messages if isinstance(message, ChatMessage)
        )
        if messages or self._this.calls:
            self.trajectory = Trajectory(
                messages,
                latency_ms=self.latency_ms,
                snapshots=tuple(self._this.snapshots),
                calls=self._this.calls,
            )

    def result(self) -> EvalResult[Any]:
        """Return the result of this attempt."""
        sample, this, trajectory = self._sample, self._this, self.trajectory
        message = details = None
        if self.failure is not None:
            message, details = message_of(self.failure), error_details(self.failure)
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
            self._spec.run_id,
            this.number,
            self.source,
            details,
            None if self.meter is None else self.meter.usage,
            None if self.meter is None else self.meter.cost,
            () if self.meter is None else judge_calls_of(self.meter),
        )


async def rescore_result(
    result: EvalResult[Any],
    session: bytes | None,
    score: Callable[[EvalContext], Awaitable[Score]],
    context: EvalContext,
    timeout: float | None = None,
) -> EvalResult[Any]:
    """Return a stored result with a new score, from what its attempt left: no agent runs.

    Its judges' usage and cost are those of this scoring.
    """
    if result.sample is None or result.trajectory is None or result.error_source in BEFORE_SCORING:
        return result
    view = None if session is None else SessionSnapshot.from_bytes(session)
    sample = private_copy(result.sample)
    context = replace(context, sample=sample, trajectory=result.trajectory, session=view)
    scores: list[Score] = []
    meters: list[Meter] = []

    async def evaluate() -> None:
        meters.append(start_meter())
        scores.append(await score(context))

    failure = await run_isolated(evaluate, timeout)
    meter = meters[0] if meters else Meter()
    result = replace(
        result,
        judge_usage=meter.usage,
        judge_cost=meter.cost,
        judge_calls=judge_calls_of(meter),
    )
    if failure is None:
        return replace(result, score=scores[0], error=None, error_source=None, error_details=None)
    error = message_of(failure)
    return replace(
        result,
        score=Score(0.0, False, error),
        error=error,
        error_source="evaluator",
        error_details=error_details(failure),
    )


def _with_latency(t: Trajectory[Any], measured_ms: int) -> Trajectory[Any]:
    """Return the trajectory with a latency, its fields checked again.

    A field may have been set without the constructor; here that is still the agent's error.
    """
    if t.latency_ms is None:
        return replace(t, latency_ms=measured_ms)
    t.__post_init__()
    return t


def _check_agent_output(output: Any) -> tuple[Trajectory[Any], Any]:
    if isinstance(output, tuple) and len(output) == 2 and isinstance(output[0], Trajectory):
        return output
    raise UsageError(
        "expected a trajectory and a session (or None) from the agent, got "
        f"{short_repr(output)} - wrap a plain function: function_agent(fn)"
    )


def _snapshot(
    session: SessionView | None, visible: bool, keep: bool, *, deferred: bool = False
) -> tuple[SessionView | None, bytes | Session | None]:
    """Return what evaluators see of a session, and what is stored of it.

    Evaluators see a snapshot, never the live session. It is not made if nothing needs it. With
    `deferred`, for a session that does not change any more, the store's writer serializes one that
    holds telemetry alone, which never fails.
    """
    if isinstance(session, SessionSnapshot):
        return session, session.to_bytes() if keep else None
    if not isinstance(session, Session) or not (visible or keep):
        return session if visible else None, None
    if deferred and not visible and session.is_telemetry:
        return None, session
    data = session.snapshot()
    return SessionSnapshot.from_bytes(data) if visible else None, data


def _snapshot_after_failure(this: Attempt) -> bytes | None:
    """Return the session of a failed attempt; None if it cannot be serialized.

    It is not deferred: an abandoned thread may still change the session.
    """
    try:
        _, data = _snapshot(this.session, visible=False, keep=this.keep_session)
        return data if isinstance(data, bytes) else None
    except Exception:
        return None
