"""The doors to the engine for async code: `evaluate`, whose result is a report, and `stream`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Optional

import anyio

from ..errors import SerializationError, UsageError
from ..experiment import Experiment
from ..runtime import tracing
from ..runtime.session import Session
from ._agents import Agent, agent_of, endpoint_agent
from ._attempt import Attempted
from ._config import EvalConfig
from ._criterion import Criterion, criterion
from ._events import EvalRunCompleted, EvalRunStarted, SampleEvaluated
from ._garbage import calm_collector
from ._report import EvalReport, EvalResult
from ._run import BEHIND, YIELD, Engine, Job, Task, sample_digest, told
from ._stream import Stream
from ._tasks import count_of
from ._threads import in_thread
from ._types import Dataset, EvalContext

if TYPE_CHECKING:
    from ..runtime.dispatcher import EventBus
    from ._resume import Reuse
    from ._store import RunManifest, RunStore, StoredRow

__all__ = ["Run", "evaluate", "report_of", "stream"]

Emit = Callable[[int, EvalResult[Any]], "Awaitable[None] | None"]


@dataclass(slots=True, kw_only=True)
class Run:
    """A run from its manifest to its last row: agent, criterion, engine, store and bus."""

    samples: Any
    agent: Agent
    criterion: Criterion
    config: EvalConfig = field(default_factory=EvalConfig)
    adapter: Any = None
    store: RunStore | None = None
    run_id: str = ""
    resume: str | None = None
    retry_errors: bool = False
    bus: EventBus | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    dataset_name: str = ""
    model: str | None = None
    command: tuple[str, ...] = ()
    output_type: Any = Any
    on_note: Callable[[str], object] = lambda note: None
    engine: Engine = field(init=False)
    reuse: Reuse | None = field(init=False, default=None)
    _mark: str = field(init=False, default="")
    _most_behind: int = field(init=False)
    _row: Any = field(init=False, default=None)
    _writing: anyio.Lock = field(init=False)

    def __post_init__(self) -> None:
        if self.resume is not None and self.store is None:
            raise UsageError("expected `store` to resume a run from, got none")
        if not self.dataset_name and isinstance(self.samples, Dataset):
            self.dataset_name = self.samples.name
        # Those that end at about the same time begin anew without waiting for the store.
        self._most_behind = max(BEHIND, 4 * self.config.max_concurrent)

    async def go(self, emit: Emit) -> None:
        """Run to the end; `emit` gets the place in the dataset and the result, as they come."""
        manifest: RunManifest | None = None
        if self.store is not None:
            manifest = await in_thread(self._begin, self.store)
        self.run_id = self.run_id or _new_run_id()
        watched = tracing.watched()
        if watched and manifest is None:
            manifest = await in_thread(self._seen)
        with tracing.span("run", self.run_id, manifest=manifest) as seen:
            await self._go(emit, seen)
        if watched:
            await in_thread(tracing.flush)

    async def _go(self, emit: Emit, seen: tracing.Span) -> None:
        self._writing = anyio.Lock(fast_acquire=True)
        scope = EvalContext(adapter=self.adapter, run_id=self.run_id)
        self.engine = engine = self._engine(scope, emit)
        count = count_of(self.samples, self.config)
        self._publish(EvalRunStarted(self.run_id, self.dataset_name, count))
        status = "interrupted"
        try:
            with calm_collector():
                await engine.run(self.samples)
                await self._rescore(scope, emit)
            whole = count is not None and engine.tally.done >= count * self.config.epochs
            if whole or engine.tried_all:
                engine.stopped = ""  # by the last sample of all, so that nothing was left out
            status = "stopped" if engine.stopped else "complete"
        finally:
            seen.add(tally=engine.tally, stopped=engine.stopped)
            if self.store is not None:
                with anyio.CancelScope(shield=True):
                    await in_thread(self.store.finish, self.run_id, status, engine.stopped)
        tally = engine.tally
        scored = tally.done - tally.failed
        rate, mean = (tally.passed / scored, tally.value / scored) if scored else (0.0, 0.0)
        self._publish(EvalRunCompleted(self.run_id, rate, mean, tally.tokens))

    def _engine(self, scope: EvalContext, emit: Emit) -> Engine:
        job = Job(
            agent=self.agent,
            criterion=self.criterion,
            config=self.config,
            scope=scope,
            experiment=Experiment(self.config.experiment_name),
            tags=dict(self.tags),
            keep=self.store is not None,
        )

        def settle(task: Task, done: Attempted) -> Awaitable[None] | None:
            return self._settle(task, done, emit)

        if self.reuse is None:
            return Engine(job, settle)
        engine = Engine(job, settle, self.reuse.select)
        self.reuse.on_kept = engine.known
        return engine

    def _begin(self, store: RunStore) -> RunManifest:
        """Write down what the run is; with `resume`, see what an earlier one left."""
        from ._manifest import new_run_id
        from ._resume import Reuse, criteria_mark
        from ._store import StoredRow

        earlier = None if self.resume is None else store.run(self.resume).manifest
        if earlier is not None:
            self.run_id = earlier.run_id
        elif self.run_id:
            _refuse_known(store, self.run_id)
        self.run_id = self.run_id or new_run_id()
        self._mark, self._row = criteria_mark(self.criterion), StoredRow
        manifest = self._described(self.samples)
        if earlier is not None:
            self.reuse = Reuse(store, earlier, manifest, self._mark, retry_errors=self.retry_errors)
            manifest = replace(
                manifest,
                created_at=earlier.created_at,
                tags={**earlier.tags, **manifest.tags},
                command=manifest.command or earlier.command,
            )
        store.begin(manifest)
        return manifest

    def _seen(self) -> RunManifest:
        """What tracers hear, also where samples cannot be written and so have no digest."""
        try:
            return self._described(self.samples)
        except SerializationError:
            return self._described(getattr(self.samples, "samples", ()))

    def _described(self, samples: Any) -> RunManifest:
        from ._manifest import described_run

        return described_run(
            self.run_id,
            self.agent,
            self.criterion,
            self.config,
            samples,
            name=self.dataset_name,
            model=self.model,
            tags=self.tags,
            command=self.command,
        )

    def _settle(self, task: Task, done: Attempted, emit: Emit) -> Awaitable[None] | None:
        """Store, tell, hand on; what to wait for, if anything."""
        behind = False
        if self.store is not None:
            left = done.session
            self.store.put(
                self._row(
                    result=done.result,
                    position=task.position,
                    sample_digest=sample_digest(task.sample),
                    criteria=self._mark,
                    session=left if isinstance(left, bytes) else None,
                    live=left if isinstance(left, Session) else None,
                )
            )
            behind = self.store.pending >= self._most_behind
        if self.bus is not None:
            self.bus.publish(SampleEvaluated(self.run_id, done.result))
        emitted = emit(task.position, done.result)
        return self._wait(behind, emitted) if behind or emitted is not None else None

    async def _wait(self, behind: bool, emitted: Awaitable[None] | None) -> None:
        if behind and self.store is not None:
            async with self._writing:
                # Whoever was here before may have written them all.
                if self.store.pending >= self._most_behind:
                    await in_thread(self.store.flush)
        if emitted is not None:
            await emitted

    async def _rescore(self, scope: EvalContext, emit: Emit) -> None:
        """Bring in what an earlier run left, by today's criteria."""
        if (reuse := self.reuse) is None:
            return
        for note in reuse.notes():
            self.on_note(note)
        places = anyio.Semaphore(self.config.max_concurrent)
        limit = self.config.timeout_per_sample_ms
        seconds = None if limit is None else limit / 1000
        types = {"output_type": Optional[self.output_type]}  # noqa: UP045  # none after a failure

        async def hand_on(row: StoredRow, result: EvalResult[Any]) -> None:
            self.engine.tally.add(result)
            emitted = emit(row.position, result)
            if emitted is not None:
                await emitted

        async def score_anew(row: StoredRow) -> None:
            try:
                await hand_on(row, await reuse.rescored(row, self.criterion, scope, seconds))
            finally:
                places.release()

        try:
            async with anyio.create_task_group() as group:
                for stored in reuse.rows(types):
                    row = _with_sample(stored, self.samples)
                    if not reuse.stands(row):
                        await places.acquire()
                        group.start_soon(score_anew, row)
                        continue
                    await hand_on(row, row.result)
                    if self.engine.tally.done % YIELD == 0:
                        await anyio.lowlevel.checkpoint()
        except BaseExceptionGroup as failures:
            raise told(failures) from None

    def _publish(self, event: object) -> None:
        if self.bus is not None:
            self.bus.publish(event)


def _refuse_known(store: RunStore, run_id: str) -> None:
    """Rows of two runs under one id could not be told apart."""
    try:
        known = store.run(run_id).manifest.run_id == run_id
    except UsageError:
        known = False
    if known:
        raise UsageError(
            f"expected the id of a new run, got {run_id!r}, which is stored - "
            f"go on with it by resume={run_id!r}, or choose another"
        )


def _new_run_id() -> str:
    from ._manifest import new_run_id

    return new_run_id()


async def report_of(run: Run) -> EvalReport[Any]:
    """The whole run as a report, in dataset order whatever the finishing order."""
    found: list[tuple[int, int, EvalResult[Any]]] = []

    def keep(position: int, result: EvalResult[Any]) -> None:
        found.append((position, result.epoch, result))

    await run.go(keep)
    found.sort(key=lambda each: each[:2])
    results = [result for _, _, result in found]
    return EvalReport(
        results, run.run_id, run.dataset_name, run.config.stored(), run.engine.stopped
    )


def _with_sample(row: StoredRow, samples: Any) -> StoredRow:
    """With the sample as the dataset has it: what comes from a store has lost its types."""
    if not isinstance(samples, (Dataset, list, tuple)):
        return row
    return replace(row, result=replace(row.result, sample=samples[row.position]))


def _run(
    samples: Any,
    config: EvalConfig,
    score_fn: Callable[..., Any],
    prepare_messages: Callable[..., Any] | None,
    environment_factory: Callable[..., Any] | None,
    options: dict[str, Any],
) -> Run:
    if not isinstance(config, EvalConfig):
        raise UsageError(f"expected an `EvalConfig`, got `{type(config).__name__}`")
    agent = options.pop("agent", None)
    if agent is not None and (prepare_messages or environment_factory):
        raise UsageError("`prepare_messages` and `environment_factory` are for an endpoint's agent")
    if agent is None and config.endpoint is None:
        raise UsageError(
            "expected someone to answer, got none - set `EvalConfig(endpoint='openai/gpt-4o')`, "
            "or pass `agent=`"
        )
    if agent is None:
        agent = endpoint_agent(config.endpoint, prepare_messages, environment_factory)
    adapter = options.get("adapter")
    return Run(
        samples=samples,
        agent=agent_of(agent, adapter=adapter, bus=options.get("bus")),
        criterion=criterion(score_fn),
        config=config,
        **options,
    )


async def evaluate(
    samples: Any,
    config: EvalConfig,
    score_fn: Callable[..., Any],
    prepare_messages: Callable[..., Any] | None = None,
    environment_factory: Callable[..., Any] | None = None,
    **options: Any,
) -> EvalReport[Any]:
    """Evaluate every sample, and report in dataset order.

    Samples are any iterable, lazy or async. Who answers is `config.endpoint`, with the messages
    that `prepare_messages(sample)` gives and in the environment that `environment_factory(sample)`
    makes; or `agent=`, any function or `MainLoop`. With `store=` every row is on disk at once, and
    `resume="latest"` goes on where a run ended. Further options: `adapter` (for judges), `run_id`,
    `retry_errors`, `bus`, `tags`, `dataset_name`.
    """
    return await report_of(
        _run(samples, config, score_fn, prepare_messages, environment_factory, options)
    )


def stream(
    samples: Any,
    config: EvalConfig,
    score_fn: Callable[..., Any],
    prepare_messages: Callable[..., Any] | None = None,
    environment_factory: Callable[..., Any] | None = None,
    **options: Any,
) -> Stream:
    """Like `evaluate`, but gives results as they finish, and keeps none.

    `async for result in stream(...)` to the end; to leave earlier, `async with stream(...) as
    results` ends what is under way.
    """
    return Stream(_run(samples, config, score_fn, prepare_messages, environment_factory, options))
