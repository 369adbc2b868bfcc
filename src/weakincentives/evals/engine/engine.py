"""The engine: pulls samples, runs a limited number at once, ends each in exactly one result.

Theory of operation. Samples become tasks, one a sample and epoch (`tasks.py`). Workers, which are
tasks of one task group, pull them one by one, run each to its result (`attempts.py`) and hand the
result to `settle`, which stores it and passes it on. A worker is started only when there is a task
for it, up to `max_concurrent`.

Concurrency is limited by a semaphore, and a worker keeps its slot from task to task. A call that
sleeps on a `Retry-After` lends its slot (`internal/slots.py`), and the engine starts another worker
to use it: up to `MAX_OVERCOMMIT` workers per slot. When the call wakes up it waits for the next
free slot, and the first worker to finish a task beyond what the slots allow ends.

Tasks that were in flight when an earlier process died (`store/deaths.py`) are held until all others
have ended, and then run one by one.

Three things stop a run before its source ends: an error (`stop_on_error`), a budget, and a rule of
`early_stopping.py`. `stop` sets the reason; workers check it before they pull.

A task group ends without an error if something cancels one of its tasks from outside. So the engine
counts tasks that were begun and not settled, and raises `RunIncompleteError` if any are left.

Rules of this file:
1. Memory follows concurrency: a sample is pulled when there is a slot for it, and its result is
   passed on when it is there.
2. Order of work: run, score, store, pass on.
3. A bad sample is data. A source of samples that raises ends the run, once the samples in flight
   have ended.
4. After a stop (an error, a budget, a rule) nothing new is started; samples in flight finish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from ...errors import RunIncompleteError, UnsuitableAgentError
from ...internal.concurrency import unwrap_exception_group
from ...internal.formatting import duration
from ...internal.slots import Slot
from ...secrets import logger_for
from .._types import stops_early
from ..model.redacted_ids import redact_id
from ..model.result import EvalResult
from ..runs.tally import Tally
from ..store.run_record import StopReason
from .attempts import AttemptOutcome, RunSpec, error_without_attempt, run_attempt
from .tasks import Task, open_task_source, sample_digest

if TYPE_CHECKING:
    from ..model.decision import Decision
    from ..store.deaths import InFlightFile
    from .early_stopping import Stopping

__all__ = ["Engine", "Reused", "RunSpec", "Task", "sample_digest"]

MAX_OVERCOMMIT = 3  # workers per slot, those that lent theirs included
WAKE_INTERVAL = 1.0  # seconds; asyncio handles a late SIGINT only when it wakes up
# A sample without a timeout is reported as slow if it runs longer than both.
SLOW_SECONDS, SLOW_FACTOR = 300.0, 10.0  # the factor is of the median of finished samples
_NOT_THE_AGENT = ("infrastructure", "evaluator")  # their errors say nothing about the agent
MAX_LATENCIES = 1_000  # latest samples that the median is computed from

logger = logger_for(__name__)


@dataclass(frozen=True, slots=True)
class Reused:
    """A task that need not run. `passed` is its stored verdict; None if it is scored again."""

    passed: bool | None


Settle = Callable[[Task, AttemptOutcome], Awaitable[object]]
Select = Callable[[Task], Task | Reused]


class Engine:
    """One run in progress. `settle` gets every outcome; `select` may say that a task need not run.

    With a store, the samples that run are noted in the file `in_flight`, and `flush` stores the
    rows that are settled.
    `running` has the tasks in flight, with the time at which each was started; `slow` those that
    run unusually long.
    """

    def __init__(
        self,
        spec: RunSpec,
        settle: Settle,
        select: Select | None = None,
        in_flight: InFlightFile | None = None,
        flush: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.tally = Tally(frozenset(map(redact_id, spec.left_out)))
        self.running: dict[Task, float] = {}
        self.slow: set[Task] = set()
        self._latencies_ms: deque[int] = deque(maxlen=MAX_LATENCIES)
        self.stopped = ""
        self.stop_reason: StopReason = ""
        self._spec = spec
        self._config = config = spec.config
        self._settle = settle
        self._select = select
        self._in_flight = in_flight
        self._flush = flush
        self._held: list[Task] = []
        self._slots = anyio.Semaphore(config.max_concurrent, fast_acquire=True)
        self._workers = self._lent = self._unsettled = 0
        self._early_stopping: Stopping | None = None
        self._source_error: Exception | None = None
        self._exhausted = self._left_one = False
        self._group: TaskGroup
        self._started = spec.clock.monotonic()

    async def run(self, samples: Iterable[Any] | AsyncIterable[Any]) -> None:
        """Run every sample, in every epoch."""
        self._early_stopping = _early_stopping(self._spec, samples)
        self._next_task, close = open_task_source(samples, self._config, self._admit)
        self._context = copy_context()
        try:
            async with anyio.create_task_group() as watch:
                watch.start_soon(self._stay_awake)
                async with anyio.create_task_group() as self._group:
                    self._start_worker_if_needed()
                async with anyio.create_task_group() as self._group:
                    self._group.start_soon(self._run_held)
                watch.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise unwrap_exception_group(group) from None
        finally:
            await close()
        if self._source_error is not None:
            raise self._source_error
        if self._unsettled or not (self._exhausted or self.stopped):
            raise RunIncompleteError(self.tally.done)

    def _admit(self, task: Task) -> Task | None:
        """Return the task if it must run."""
        if self._early_stopping is not None:
            self._early_stopping.begin(task.position)
        selected = task if self._select is None else self._select(task)
        if isinstance(selected, Task):
            if selected.deaths:
                self._held.append(selected)
                return None
            return selected
        self._record_outcome(task, selected.passed)
        return None

    def _record_outcome(self, task: Task, passed: bool | None) -> None:
        """Feed an outcome to the early-stopping rule; None: do not count this sample."""
        if self._early_stopping is None:
            return
        if passed is None or task.sample.id in self._spec.left_out:
            self.stop(self._early_stopping.leave_out(task.position), "rule")
        else:
            self.stop(self._early_stopping.add(task.position, passed), "rule")

    @property
    def tried_all(self) -> bool:
        """Return whether the source has ended and every task of it was run or reused."""
        return self._exhausted and not self._left_one

    def stop(self, why: str, reason: StopReason) -> None:
        """Start no further samples, unless `why` is empty."""
        if why and not self.stopped:
            self.stopped, self.stop_reason = why, reason

    def _start_worker_if_needed(self) -> None:
        if self._exhausted or self.stopped:
            return
        slots = self._config.max_concurrent
        if self._workers < min(slots + self._lent, slots * MAX_OVERCOMMIT):
            # In the engine's context: a call that lends its slot is inside a sample, whose context
            # variables must not leak into other samples.
            self._context.copy().run(self._start_worker)

    def _start_worker(self) -> None:
        self._workers += 1
        self._group.start_soon(self._work)

    def _on_lend(self, change: int) -> None:
        self._lent += change
        if change > 0:
            self._start_worker_if_needed()

    async def _work(self) -> None:
        slot = Slot(self._slots, self._on_lend)
        try:
            # The slot is kept between tasks. While slots are lent there are more workers than
            # slots, so a worker that wakes up waits for the next free one.
            async with slot:
                while self._workers <= self._config.max_concurrent + self._lent:
                    await slot.acquire()  # lost if the timeout fired while the slot was lent
                    task = await self._pull()
                    if task is None:
                        return
                    self._start_worker_if_needed()
                    await self._run_task(task)
        finally:
            self._workers -= 1

    async def _stay_awake(self) -> None:
        """Wake the event loop regularly: Python handles a signal only while it is awake."""
        while True:
            await anyio.sleep(WAKE_INTERVAL)
            if self._config.timeout is None:
                self._warn_of_slow_samples()

    def _warn_of_slow_samples(self) -> None:
        """Log, once for each sample, that it runs unusually long."""
        latencies = sorted(self._latencies_ms)
        median = latencies[len(latencies) // 2] / 1000 if latencies else 0.0
        started_before = self._spec.clock.monotonic() - max(SLOW_SECONDS, SLOW_FACTOR * median)
        slow = {task for task, since in self.running.items() if since < started_before}
        if new := slow - self.slow:
            logger.warning(
                "running for more than %s: sample %s (median of finished samples: %s) - there is "
                "no timeout; set --timeout or EvalConfig(timeout=...)",
                duration(max(SLOW_SECONDS, SLOW_FACTOR * median)),
                ", ".join(sorted(repr(task.sample.id) for task in new)),
                duration(median) if latencies else "none has finished",
            )
        self.slow = (self.slow & self.running.keys()) | slow

    async def _pull(self) -> Task | None:
        if self._exhausted or self.stopped:
            return None
        try:
            task = await self._next_task()
        except Exception as error:
            self._source_error = self._source_error or error
            task = None
        if task is None:
            self._exhausted = True
            return None
        self._check_time()
        if self.stopped:  # while this worker waited for the source
            self._left_one = True
            return None
        self._unsettled += 1
        return task

    async def _run_held(self) -> None:
        """Run the tasks that were held, those with the fewest deaths first."""
        slot = Slot(self._slots, self._on_lend)
        async with slot:
            for task in sorted(self._held, key=lambda task: task.deaths):
                self._check_time()
                if self.stopped or self._source_error is not None:
                    self._left_one = True
                    return
                if self._flush is not None:  # this one may be the end of the process
                    await self._flush()
                await slot.acquire()  # lost if the timeout fired while the slot was lent
                self._unsettled += 1
                await self._run_task(task)

    async def _run_task(self, task: Task) -> None:
        self.running[task] = self._spec.clock.monotonic()
        if task.error:
            outcome = self._give_up(task)
        else:
            noted, id = self._in_flight, task.sample.id
            slot = 0 if noted is None else noted.begin(id, task.epoch)
            outcome = await run_attempt(
                self._spec, task.sample, task.epoch, tries_before=task.tries
            )
            if noted is not None:
                noted.end(slot)
        del self.running[task]
        self._latencies_ms.append(outcome.result.latency_ms)
        await self._settle(task, outcome)
        self._count(outcome.result)
        if (
            isinstance(outcome.failure, UnsuitableAgentError)
            and self.tally.failed == self.tally.done
        ):
            # Another sample would end like this one, after paying for its agent.
            self.stop(f"stopped at the first sample: {outcome.result.error}", "error")
        self._record_outcome(task, self._verdict(outcome.result))
        self._unsettled -= 1

    def _give_up(self, task: Task) -> AttemptOutcome:
        spec = self._spec
        result = error_without_attempt(
            task.sample,
            task.error,
            source="agent",  # it ended the process while nothing else ran
            run_id=spec.run_id,
            experiment=spec.experiment.name,
            epoch=task.epoch,
            attempt=task.tries,
        )
        return AttemptOutcome(result)

    def _verdict(self, result: EvalResult[Any]) -> bool | None:
        """Return whether a result passed; None if it says nothing about the agent."""
        rule = self._early_stopping
        if rule is not None and rule.leaves_out_errors and result.error_source in _NOT_THE_AGENT:
            return None
        return result.passed

    @property
    def decision(self) -> Decision | None:
        """Return what the early-stopping rule has found, if it stopped the run or compares it."""
        found = None if self._early_stopping is None else self._early_stopping.decision
        return found if found is None or self.stopped or found.rule == "paired" else None

    def _count(self, result: EvalResult[Any]) -> None:
        config = self._config
        self.tally.add(result)
        if config.stop_on_error and result.error is not None:
            self.stop(f"stopped by the error of sample {result.sample_id!r}", "error")
        tokens, cost = config.max_total_tokens, config.max_total_cost
        if tokens is not None and self.tally.known_tokens >= tokens:
            self.stop(f"stopped by the budget of {tokens:,} tokens", "budget")
        if cost is not None and self.tally.known_cost >= cost:
            self.stop(f"stopped by the budget of ${cost:g}", "budget")
        self._check_time()

    def _check_time(self) -> None:
        budget = self._config.max_total_seconds
        if budget is not None and self._spec.clock.monotonic() - self._started >= budget:
            self.stop(f"stopped by the budget of {budget:g} s", "budget")


def _early_stopping(spec: RunSpec, samples: Any) -> Stopping | None:
    config = spec.config
    if not stops_early(config):
        return None
    from .early_stopping import PairedRule, RateStoppingRule, Stopping, size_of

    if spec.baseline is None:
        return Stopping(RateStoppingRule(config, size_of(samples, config)), epochs=config.epochs)
    before = spec.baseline.by_position(samples, config.max_samples)
    rule = PairedRule(spec.baseline.name, before, epochs=config.epochs)
    return Stopping(rule, epochs=config.epochs)
