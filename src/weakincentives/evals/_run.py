"""The engine: samples are pulled, so many run at once, every one ends in exactly one result.

Rules of this file:
1. Memory follows concurrency: a sample is pulled when there is a place for it, and a result is
   handed on when it is there.
2. Order of work: run, score, store, hand on.
3. One bad sample is data. A source of samples that breaks ends the run, after what is under way.
4. A stop (an error, a budget, a rule) begins nothing new; what is under way ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from contextvars import copy_context
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from .. import serde
from .._slots import Slot, away
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ProviderError, SerializationError, UsageError
from ..experiment import Experiment
from ..runtime import tracing
from ._agents import Agent, Attempt
from ._attempt import BEFORE_SCORING, Attempted, attempted
from ._config import EvalConfig, stops_early
from ._criterion import Criterion
from ._limit import Limit
from ._report import EvalResult
from ._tasks import Select, Task, pulled
from ._types import EvalContext, Sample

if TYPE_CHECKING:
    from ._stopping import Stopping

__all__ = ["Engine", "Job", "Tally", "Task", "sample_digest", "sample_span", "told"]

LENT = 3  # how many times as many samples as may run at once may be under way, with places lent
YIELD = 16  # samples after which others get their turn, and Ctrl-C, where no agent ever waits
LONGEST_WAIT = 120.0  # seconds; who asks for a longer one before another try gets none
GLANCE = 1.0  # seconds; a Ctrl-C that comes just before asyncio falls asleep is heard at the next
BEHIND = 500  # rows that the store may be behind before samples wait for it


@dataclass(slots=True)
class Tally:
    """What a run has come to so far."""

    done: int = 0
    passed: int = 0
    value: float = 0.0
    tokens: int = 0
    cost: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)

    def add(self, result: EvalResult[Any]) -> None:
        """Count one result."""
        self.done += 1
        self.tokens += result.tokens_used
        if result.trajectory is not None:
            self.cost += result.trajectory.cost or 0.0
        if result.error is None:
            self.passed += result.score.passed
            self.value += result.score.value
        else:
            source = result.error_source or "agent"
            self.errors[source] = self.errors.get(source, 0) + 1

    @property
    def failed(self) -> int:
        """How many ended in an error."""
        return sum(self.errors.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a run does with every sample."""

    agent: Agent
    criterion: Criterion
    config: EvalConfig
    scope: EvalContext
    experiment: Experiment
    tags: dict[str, str] = field(default_factory=dict)
    keep: bool = False  # the sessions
    clock: Clock = SYSTEM_CLOCK


Settle = Callable[[Task, Attempted], "Awaitable[object] | None"]  # what to wait for, if anything


class Engine:
    """One run under way. `settle` gets every outcome as it comes; `select` may leave tasks out."""

    def __init__(self, job: Job, settle: Settle, select: Select = lambda task: task) -> None:
        self.tally = Tally()
        self.running: dict[Task, float] = {}  # since when
        self._limits: dict[Task, Limit] = {}
        self.stopped = ""
        self._job = job
        self._settle = settle
        self._select = select
        self._most = job.config.max_concurrent
        self._places = anyio.Semaphore(self._most, fast_acquire=True)
        self._workers = self._lent = 0
        self._stopping = _stopping(job.config)
        self._broken: Exception | None = None
        self._exhausted = self._left_one = False
        self._group: TaskGroup
        self._started = job.clock.monotonic()
        timeout = job.config.timeout_per_sample_ms
        self._seconds = math.inf if timeout is None else timeout / 1000

    async def run(self, samples: Iterable[Any] | AsyncIterable[Any]) -> None:
        """Try every sample, in every epoch."""
        self._next, close = pulled(samples, self._job.config, self._chosen)
        self._source_waits = isinstance(samples, AsyncIterable)
        self._outside = copy_context()
        try:
            async with anyio.create_task_group() as watch:
                watch.start_soon(self._watch)
                async with anyio.create_task_group() as self._group:
                    self._hire()
                watch.cancel_scope.cancel()
        except BaseExceptionGroup as failures:
            raise told(failures) from None
        finally:
            await close()
        if self._broken is not None:
            raise self._broken

    def _chosen(self, task: Task) -> Task | None:
        if self._stopping is not None:
            self._stopping.expect(task.position)
        return self._select(task)

    def known(self, task: Task, passed: bool | None) -> None:
        """Tell the rule that may stop the run what came of a task; None where that may change."""
        if self._stopping is None:
            return
        if passed is None:
            self._stopping.leave_out(task.position)
        else:
            self.stop(self._stopping.add(task.position, passed))

    @property
    def tried_all(self) -> bool:
        """True where the source has ended, and nothing of it was left out."""
        return self._exhausted and not self._left_one

    def stop(self, why: str) -> None:
        """Begin nothing new."""
        self.stopped = self.stopped or why

    def _hire(self) -> None:
        if self._exhausted or self.stopped:
            return
        if self._workers < min(self._most + self._lent, self._most * LENT):
            # Whoever lends its place hires, from inside its sample: the new worker is not part of
            # that, whatever context variables say there.
            self._outside.copy().run(self._start)

    def _start(self) -> None:
        self._workers += 1
        self._group.start_soon(self._work)

    def _on_leave(self, change: int) -> None:
        self._lent += change
        if change > 0:
            self._hire()

    async def _work(self) -> None:
        slot, limit = Slot(self._places, self._on_leave), Limit()
        try:
            # The place is kept from task to task. Who lent one and comes back gets that of the
            # next who is done, since there are then more workers than places.
            async with slot:
                while self._workers <= self._most + self._lent:
                    await slot.hold()  # it is gone where the time ran out while it was lent
                    task = await self._take()
                    if task is None:
                        return
                    self._hire()
                    await self._try(task, limit)
                    if self.tally.done % YIELD == 0:
                        await anyio.lowlevel.checkpoint()
        finally:
            limit.close()
            self._workers -= 1

    async def _watch(self) -> None:
        """End what has run for too long. One timer for all costs less than one for each.

        It also wakes the loop now and then: Python looks at signals only when it is awake.
        """
        clock, seconds = self._job.clock, self._seconds
        while True:
            oldest = min(self.running.values(), default=clock.monotonic())
            await anyio.sleep(min(GLANCE, max(0.001, oldest + seconds - clock.monotonic())))
            latest = clock.monotonic() - seconds
            for task in [task for task, since in self.running.items() if since <= latest]:
                self._limits[task].cancel()

    async def _take(self) -> Task | None:
        if self._exhausted or self.stopped:
            return None
        try:
            task: Task | None = await self._next() if self._source_waits else self._next()
        except Exception as error:
            self._broken = self._broken or error
            task = None
        if task is None:
            self._exhausted = True
            return None
        self._check_time()
        self._left_one = self._left_one or bool(self.stopped)  # while it waited for the source
        return None if self.stopped else task

    async def _try(self, task: Task, limit: Limit) -> None:
        with sample_span(
            task.sample, self._job.scope.run_id, self._job.experiment, task.epoch
        ) as seen:
            outcome = await self._outcome(task, limit)
            seen.add(result=outcome.result)
            seen.error = outcome.failure
        settled = self._settle(task, outcome)
        if settled is not None:
            await settled
        self._count(outcome.result)
        self.known(task, outcome.result.passed)

    async def _outcome(self, task: Task, limit: Limit) -> Attempted:
        """What came of it in the end, after as many tries as may be."""
        job = self._job
        number = task.tries + 1
        while True:
            this = Attempt(
                job.scope.run_id,
                job.experiment,
                task.epoch,
                number,
                job.tags,
                job.keep,
                job.clock,
            )
            self.running[task] = job.clock.monotonic()
            self._limits[task] = limit
            outcome = await attempted(
                job.agent, task.sample, job.criterion, this, scope=job.scope, limit=limit
            )
            del self.running[task], self._limits[task]
            if outcome.failure is None:
                return outcome
            await anyio.lowlevel.checkpoint_if_cancelled()  # what came of that is no result
            wait = self._pause_before_another(outcome, number - task.tries)
            if wait is None:
                return outcome
            async with away():
                await anyio.sleep(wait)
            number += 1

    def _pause_before_another(self, outcome: Attempted, number: int) -> float | None:
        """Seconds until the next try; None where this one stands."""
        failure = outcome.failure
        if (
            outcome.result.error_source not in BEFORE_SCORING
            or number > self._job.config.max_retries
            or isinstance(failure, UsageError)
            or (isinstance(failure, ProviderError) and not failure.retryable)
        ):
            return None
        asked_for = getattr(failure, "retry_after", None) or 0.0
        if asked_for > LONGEST_WAIT:
            return None
        return max(asked_for, random.uniform(0, min(30.0, 0.5 * 2.0 ** min(number - 1, 10))))

    def _count(self, result: EvalResult[Any]) -> None:
        config = self._job.config
        self.tally.add(result)
        if config.stop_on_error and result.error is not None:
            self.stop(f"stopped by the error of sample {result.sample_id!r}")
        if self.tally.tokens >= (config.max_total_tokens or math.inf):
            self.stop(f"stopped by the budget of {config.max_total_tokens:,} tokens")
        if self.tally.cost >= (config.max_total_cost or math.inf):
            self.stop(f"stopped by the budget of ${config.max_total_cost:g}")
        self._check_time()

    def _check_time(self) -> None:
        most = self._job.config.max_total_seconds
        if most is not None and self._job.clock.monotonic() - self._started >= most:
            self.stop(f"stopped by the budget of {most:g} s")


def _stopping(config: EvalConfig) -> Stopping | None:
    if not stops_early(config):
        return None
    from ._stopping import Stopping

    return Stopping(config)


def sample_span(
    sample: Sample[Any, Any], run_id: str, experiment: Experiment, epoch: int
) -> tracing.Span:
    """What tracers hear of one sample; its `result` comes at the end."""
    return tracing.span(
        "sample", sample.id, sample=sample, run_id=run_id, experiment=experiment.name, epoch=epoch
    )


def told(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error to raise for several: what was wrong, before what was cancelled by it."""
    every = list(_leaves(failures))
    cancelled = anyio.get_cancelled_exc_class()
    return next((each for each in every if not isinstance(each, cancelled)), every[0])


def _leaves(failure: BaseException) -> Iterator[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        for each in failure.exceptions:
            yield from _leaves(each)
    else:
        yield failure


def sample_digest(sample: Sample[Any, Any]) -> str:
    """The content hash of a sample: changed content, changed digest."""
    try:
        return blake2b(serde.encode(sample, sort=True), digest_size=8).hexdigest()
    except SerializationError as error:
        raise SerializationError(f"{error} (sample {sample.id!r})") from None
