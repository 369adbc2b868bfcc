"""`evaluate` and `stream`, and the run behind every entry point."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Unpack, overload

import anyio
from anyio.abc import TaskGroup

from ...errors import UsageError
from ...experiment import Experiment
from ...internal.checks import check_tags
from ...internal.threads import in_thread
from ...internal.typevars import ExpectedT, InputT, OutputT
from ...runtime import tracing
from ...secrets import logger_for
from .._types import Dataset, EvalConfig, Sample
from ..built_ins import Evaluators, as_criterion
from ..model.explain import type_mismatch
from ..model.quarantine import quarantine_line, split_by_date
from ..model.result import EvalResult
from ..model.run_events import EvalRunCompleted, EvalRunStarted, SampleEvaluated
from ..runs.report import EvalReport
from .agents import SnapshotTimes, agent_of, check_models, endpoint_agent, versions_before
from .attempts import AttemptOutcome
from .engine import MAX_OVERCOMMIT, Engine, Reused, RunSpec, Task
from .fingerprint import criteria_fingerprint
from .requirements import check_clusters
from .run_options import EvaluateKeywords, RunOptions
from .tasks import DatasetDigest, count_of

if TYPE_CHECKING:
    from ...prompt import PromptTemplate
    from ...runtime.agent.main_loop import MainLoop
    from ..model.corrections import Correction
    from ..model.decision import Decision
    from ..model.selection import Selection
    from ..store.deaths import InFlightFile
    from ..store.manifest import RunManifest
    from ..store.run_store import RunClaim, RunStore
    from ..store.stored_row import StoredRow
    from .agents import AgentFunction, AgentTrajectory, PrepareMessages
    from .baselines import Baseline
    from .resume import ResumePlan
    from .row_writer import RowWriter

    Samples = Iterable[Sample[InputT, ExpectedT]] | AsyncIterable[Sample[InputT, ExpectedT]]
    AgentTarget = (
        AgentFunction[InputT, Any, ExpectedT] | MainLoop[InputT, Any] | PromptTemplate[Any]
    )

logger = logger_for(__name__)

Emit = Callable[[int, EvalResult[Any]], Awaitable[None]]
"""What a run calls with every result as it finishes, and its position in the dataset."""


@dataclass(slots=True, kw_only=True)
class Run(RunSpec):
    """A run from its manifest to its last row: agent, criterion, engine, store and bus."""

    samples: Any
    options: RunOptions = RunOptions()  # noqa: RUF009  # frozen
    run_id: str = field(init=False)
    tags: Mapping[str, str] = field(init=False)
    baseline: Baseline | None = field(init=False)
    store: RunStore | None = field(init=False)
    dataset_name: str = field(init=False)
    engine: Engine = field(init=False)
    resume_plan: ResumePlan | None = field(init=False, default=None)
    selection: Selection | None = field(init=False, default=None)
    _error: BaseException | None = field(init=False, default=None)
    _claim: RunClaim | None = field(init=False, default=None)
    _in_flight: InFlightFile | None = field(init=False, default=None)
    _ended: bool = field(init=False, default=False)
    _criteria_fingerprint: str = field(init=False, default="")
    _writer: RowWriter | None = field(init=False, default=None)
    _digest: DatasetDigest | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        options = self.options
        self.store, self.run_id, self.baseline = options.store, options.run_id, options.baseline
        self.tags = options.tags or {}
        if options.resume is not None and self.store is None:
            raise UsageError("expected `store` to resume a run from, got none")
        own_name = self.samples.name if isinstance(self.samples, Dataset) else ""
        self.dataset_name = options.dataset_name or own_name
        check_tags(self.tags)
        if self.baseline is not None or self.config.against is not None:
            self._compare_with_baseline()
        if self.config.choose_by:
            self._choose_samples()
        self.experiment = Experiment(self.config.experiment_name)
        self.keep_sessions = self.store is not None
        if options.quarantine:
            self.left_out = frozenset(split_by_date(options.quarantine)[0])

    def _compare_with_baseline(self) -> None:
        """Find the run that this one is compared with, and keep only the samples that it has."""
        from .baselines import stored_baseline

        if self.baseline is None:
            if self.store is None:
                raise UsageError("expected `store` with the run `against`, got none")
            self.baseline = stored_baseline(self.store, str(self.config.against))
        self.config = replace(self.config, against=self.baseline.name)
        self.samples = self.baseline.common_samples(self.samples)

    def _choose_samples(self) -> None:
        """Draw the samples by their earlier pass rates; a resumed run keeps those that it has."""
        from .choosing import choose_samples, chosen_before

        if self.store is None:
            raise UsageError("expected `store` with the runs to `choose_by`, got none")
        resume = self.options.resume
        earlier = None if resume is None else self.store.run(resume).manifest.selection
        if earlier is not None:
            self.samples, self.selection = chosen_before(self.samples, earlier), earlier
            return
        config = self.config
        self.samples, self.selection = choose_samples(
            self.samples, config.max_samples, config.choose_by, self.store, seed=config.seed
        )

    async def execute(self, emit: Emit) -> None:
        """Run to the end; `emit` gets every result as it finishes."""
        self.check()
        check_clusters(self.samples, self.config)
        check_models(self.agent, self.criterion, self.adapter)
        try:
            await self._execute_claimed(emit)
        finally:
            self._ended = True  # first, since `_begin` may be running in its thread
            if self._claim is not None:
                with anyio.CancelScope(shield=True):
                    await in_thread(self._claim.release)

    async def _execute_claimed(self, emit: Emit) -> None:
        manifest: RunManifest | None = None
        if self.store is not None:
            from .row_writer import RowWriter

            manifest = await in_thread(self._begin, self.store)
            self._writer = RowWriter(
                self.store,
                self.config.max_concurrent,
                self._criteria_fingerprint,
                manifest.agent_version,
            )
        self.run_id = self.run_id or _new_run_id()
        is_tracing = tracing.is_tracing()
        if isinstance(self.samples, Dataset) and (is_tracing or self.store is not None):
            self._digest = DatasetDigest(self.samples)
        if is_tracing:
            if manifest is None:
                manifest = await in_thread(self._build_manifest)
            # A trace begins with its facts, so this one cannot wait for the end.
            digest = await in_thread(self._dataset_digest)
            manifest = replace(manifest, dataset_digest=digest)
        with tracing.span("run", self.run_id, manifest=manifest) as span:
            try:
                await self._execute_traced(emit, span)
            except BaseException as error:
                self._error = error
                raise
        if is_tracing:
            await in_thread(tracing.flush)

    def ended_from_inside(self, error: BaseException) -> bool:
        """Return whether the event loop ended with an error that is not the run's own.

        A callback that calls `sys.exit`, `loop.stop()` or a stray cancellation does that. The run
        itself only sees its tasks cancelled.
        """
        return self._error is not None and (
            error is not self._error or isinstance(error, CancelledError)
        )

    async def _execute_traced(self, emit: Emit, span: tracing.Span) -> None:
        self.engine = engine = Engine(
            self,
            partial(self._settle, emit),
            None if self.store is None else self._select,
            self._in_flight,
            None if self.store is None else partial(in_thread, self.store.flush, self.run_id),
        )
        count = count_of(self.samples, self.config)
        self._publish(EvalRunStarted(self.run_id, self.dataset_name, count))
        status = "interrupted"
        try:
            await engine.run(self.samples)
            await self._reuse_stored_rows(emit)
            done_all = count is not None and engine.tally.done >= count * self.config.epochs
            if done_all or engine.tried_all:
                # The stop condition fired on the last sample: the run is complete.
                engine.stopped, engine.stop_reason = "", ""
            status = "stopped" if engine.stopped else "complete"
        finally:
            span.add(tally=engine.tally, stopped=engine.stopped)
            if self.store is not None:
                with anyio.CancelScope(shield=True):
                    await in_thread(self._finish, self.store, status)
        tally = engine.tally
        rate, mean = tally.pass_rate_without_errors, tally.mean_score or 0.0
        self._publish(EvalRunCompleted(self.run_id, rate, mean, tally.known_tokens))

    def _begin(self, store: RunStore) -> RunManifest:
        """Store the manifest; to resume, read what an earlier run left."""
        options = self.options
        earlier = None if options.resume is None else store.run(options.resume).manifest
        if earlier is not None:
            self.run_id = earlier.run_id
        self.run_id = self.run_id or _new_run_id()
        self._criteria_fingerprint = criteria_fingerprint(self.criterion)
        manifest = self._build_manifest()
        self._claim = store.claim(self.run_id, new=earlier is None)
        self._check_not_cancelled()
        if earlier is not None:
            from .resume import ResumePlan

            self.resume_plan = ResumePlan(
                store,
                earlier,
                manifest,
                self._criteria_fingerprint,
                retry_errors=options.retry_errors,
                versions_before=partial(versions_before, self.agent),
                force=options.force,
            )
            manifest = replace(
                manifest,
                created_at=earlier.created_at,
                earlier_agents=self.resume_plan.earlier_agents,
                tags={**earlier.tags, **manifest.tags},
                decision=_kept_decision(earlier),
                command=manifest.command or earlier.command,
            )
        self._check_not_cancelled()
        if self.resume_plan is not None:
            self.resume_plan.place_all(self.samples, self.config)
        store.begin(manifest, self._claim)
        self._in_flight = self._claim.track(MAX_OVERCOMMIT * self.config.max_concurrent)
        return manifest

    def _finish(self, store: RunStore, status: str) -> None:
        """Store how the run ended, and what is known only now."""
        engine = self.engine
        store.finish(
            self.run_id,
            status,
            engine.stopped,
            engine.stop_reason,
            settled=engine.tally.done,
            decision=engine.decision,
            dataset_digest=self._dataset_digest(),
        )

    def _dataset_digest(self) -> str | None:
        """Return the digest of the dataset; None for a stream. Call it off the event loop."""
        return None if self._digest is None else self._digest.finish()

    def _check_not_cancelled(self) -> None:
        """End the thread of `_begin`, before it changes the run, if `execute` was cancelled."""
        if self._ended and self._claim is not None:
            self._claim.release()
            raise UsageError(f"run {self.run_id} was cancelled before it began")

    def _build_manifest(self) -> RunManifest:
        from .run_manifest import build_manifest

        return build_manifest(
            self.run_id,
            self.agent,
            self.criterion,
            self.config,
            self.samples,
            name=self.dataset_name,
            suite=self.options.suite,
            model=self.options.model,
            tags=self.tags,
            command=self.options.command,
            quarantine=self.options.quarantine,
            adapter=self.adapter,
            selection=self.selection,
        )

    def _select(self, task: Task) -> Task | Reused:
        """Return the task if it must run."""
        if self._digest is not None:
            self._digest.note(task)
        return task if self.resume_plan is None else self.resume_plan.select(task)

    async def _settle(self, emit: Emit, task: Task, outcome: AttemptOutcome) -> None:
        """Store, publish, pass on."""
        if self._writer is not None:
            if self.resume_plan is not None:
                self.resume_plan.note_run(task)
            await self._writer.put_outcome(task, outcome)
        self._publish(SampleEvaluated(self.run_id, outcome.result))
        await emit(task.position, outcome.result)

    async def _reuse_stored_rows(self, emit: Emit) -> None:
        """Add the rows of an earlier run, scored by the current criteria."""
        plan, writer = self.resume_plan, self._writer
        if plan is None or writer is None:
            return
        from .rescoring import rescore_rows

        await in_thread(plan.place_rest, self.engine.tried_all)
        for note in await in_thread(lambda: [*plan.notes(self._dataset_digest())]):
            self.options.on_note(note)

        async def add(row: StoredRow, result: EvalResult[Any]) -> None:
            self.engine.tally.add(result)
            await emit(row.position, result)

        # None after a failure.
        types = {"output_type": Optional[self.options.output_type]}  # noqa: UP045
        await rescore_rows(
            (_with_sample(row, self.samples) for row in plan.rows(types)),
            self.criterion,
            writer,
            context=self.context,
            timeout=self.config.timeout,
            max_concurrent=self.config.max_concurrent,
            on_result=add,
            is_current=plan.is_current,
            deaths_of=plan.deaths_of,
            in_flight=self._in_flight,
        )

    def _publish(self, event: object) -> None:
        if self.options.bus is not None:
            self.options.bus.publish(event)


def _kept_decision(earlier: RunManifest) -> Decision | None:
    """Return a comparison that was decided earlier; more samples do not change it."""
    found = earlier.decision
    return found if found is not None and found.outcome != "none" else None


def _new_run_id() -> str:
    from .run_manifest import new_run_id

    return new_run_id()


def _with_sample(row: StoredRow, samples: Any) -> StoredRow:
    """Return the row with the sample of the dataset: a stored sample has lost its types."""
    if not isinstance(samples, (Dataset, list, tuple)):
        return row
    return replace(row, result=replace(row.result, sample=samples[row.position]))


async def run_to_report(run: Run) -> EvalReport[Any]:
    """Execute the run and return its report, in dataset order whatever the finishing order."""
    finished: list[tuple[int, int, EvalResult[Any]]] = []

    async def keep(position: int, result: EvalResult[Any]) -> None:
        finished.append((position, result.epoch, result))

    await run.execute(keep)
    finished.sort(key=lambda item: item[:2])
    results = [result for _, _, result in finished]
    if warning := type_mismatch(results):
        logger.warning(warning)
    if expired := split_by_date(run.options.quarantine)[1]:
        logger.warning(quarantine_line(0, expired))
    return EvalReport(
        results,
        run.run_id,
        run.dataset_name,
        run.config.stored(),
        run.engine.stopped,
        corrections=()
        if run.store is None
        else await in_thread(_corrections, run.store, run.run_id),
        quarantined=sorted(run.left_out),
        decision=run.engine.decision,
        selection=run.selection,
        mixed="" if run.resume_plan is None else await in_thread(_mixed_versions, run),
    )


def _mixed_versions(run: Run) -> str:
    """Return which versions of the agent ran a run that was resumed with a changed one."""
    if run.store is None or run.resume_plan is None or not run.resume_plan.earlier_agents:
        return ""
    return run.store.run(run.run_id).mixed


def _corrections(store: RunStore, run_id: str) -> tuple[Correction, ...]:
    """Return what people's labels say about the judges of a stored run."""
    from ..store.stored_corrections import corrections_of

    # Without any, the manifest need not be read back.
    if not store.people.exist("calibrations"):
        return ()
    return corrections_of(store, store.run(run_id).manifest)


class Stream:
    """The results of a run as they finish. Few are buffered: a slow reader slows the run down."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._buffer_size = run.config.max_concurrent
        self._buffer: deque[EvalResult[Any]] = deque()
        self._ended = False
        self._failure: Exception | None = None
        self._group: TaskGroup
        self._results: AsyncGenerator[EvalResult[Any]]

    async def __aenter__(self) -> AsyncIterator[EvalResult[Any]]:
        self._changed = anyio.Event()
        self._lock = anyio.Lock(fast_acquire=True)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._execute)
        self._results = self._read()
        return self._results

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._group.cancel_scope.cancel()  # after the last result there is nothing to cancel
        await self._results.aclose()
        if isinstance(error, anyio.get_cancelled_exc_class()):
            return await self._group.__aexit__(kind, error, traceback)
        await self._group.__aexit__(None, None, None)  # it would wrap any other error
        if self._failure is not None and error is None:
            raise self._failure
        return None

    async def __aiter__(self) -> AsyncIterator[EvalResult[Any]]:
        async with self as results:
            async for result in results:
                yield result

    async def _read(self) -> AsyncGenerator[EvalResult[Any]]:
        while True:
            while self._buffer:
                result = self._buffer.popleft()
                if len(self._buffer) == self._buffer_size - 1:
                    self._notify()
                yield result
            if self._ended:
                return
            await self._changed.wait()

    async def _execute(self) -> None:
        try:
            await self.run.execute(self._put)
        except Exception as error:
            self._failure = error
        self._ended = True
        self._notify()

    async def _put(self, position: int, result: EvalResult[Any]) -> None:
        """Buffer the result, then wait while the buffer is full.

        Tasks wait one by one: of all that were woken at once, the first could fill the buffer.
        """
        self._buffer.append(result)
        if len(self._buffer) == 1:
            self._notify()
        if len(self._buffer) >= self._buffer_size:
            async with self._lock:
                while len(self._buffer) >= self._buffer_size:
                    await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _agent_of_call(
    config: EvalConfig,
    agent: AgentTarget[InputT, ExpectedT] | None,
    prepare_messages: PrepareMessages | None,
    environment_factory: Callable[[Sample[InputT, ExpectedT]], Any] | None,
    snapshots: SnapshotTimes | None,
) -> Any:
    """Return the agent of a call of `evaluate`: `agent`, or else that of the endpoint."""
    if not isinstance(config, EvalConfig):
        raise UsageError(f"expected an `EvalConfig`, got `{type(config).__name__}`")
    if agent is None and config.endpoint is None:
        raise UsageError(
            "expected an endpoint or an agent, got neither - set "
            "`EvalConfig(endpoint='openai/gpt-4o')`, or pass `agent=`"
        )
    if agent is None:
        return endpoint_agent(
            config.endpoint, prepare_messages, environment_factory, snapshots=snapshots
        )
    if prepare_messages or environment_factory or snapshots:
        raise UsageError(
            "`prepare_messages`, `environment_factory` and `snapshots` are for an endpoint's agent"
        )
    return agent


def _build_run(
    samples: Any,
    config: EvalConfig,
    score_fn: Evaluators,
    agent: Any,
    adapter: Any,
    options: RunOptions,
) -> Run:
    if adapter is not None:
        from ...rollouts.endpoint import named_adapter

        adapter = named_adapter(adapter)
    return Run(
        samples=samples,
        agent=agent_of(agent, adapter=adapter, bus=options.bus),
        criterion=as_criterion(score_fn),
        config=config,
        adapter=adapter,
        options=options,
    )


# For type checkers: the agent may return a trajectory, an awaitable, or the output itself, as that
# of an `EvalSuite`.
@overload
async def evaluate(
    samples: Samples[InputT, ExpectedT],
    config: EvalConfig,
    score_fn: Evaluators,
    *,
    agent: AgentFunction[
        InputT, AgentTrajectory[OutputT] | Awaitable[AgentTrajectory[OutputT]], ExpectedT
    ]
    | MainLoop[InputT, OutputT]
    | PromptTemplate[OutputT],
    adapter: Any = None,
    **options: Unpack[EvaluateKeywords],
) -> EvalReport[OutputT]: ...
@overload
async def evaluate(
    samples: Samples[InputT, ExpectedT],
    config: EvalConfig,
    score_fn: Evaluators,
    *,
    agent: AgentFunction[InputT, Awaitable[OutputT], ExpectedT],
    adapter: Any = None,
    **options: Unpack[EvaluateKeywords],
) -> EvalReport[OutputT]: ...
@overload
async def evaluate(
    samples: Samples[InputT, ExpectedT],
    config: EvalConfig,
    score_fn: Evaluators,
    *,
    agent: AgentFunction[InputT, OutputT, ExpectedT],
    adapter: Any = None,
    **options: Unpack[EvaluateKeywords],
) -> EvalReport[OutputT]: ...
@overload
async def evaluate(
    samples: Samples[InputT, ExpectedT],
    config: EvalConfig,
    score_fn: Evaluators,
    prepare_messages: PrepareMessages | None = None,
    environment_factory: Callable[[Sample[InputT, ExpectedT]], Any] | None = None,
    *,
    agent: AgentTarget[InputT, ExpectedT] | None = None,
    snapshots: SnapshotTimes | None = None,
    adapter: Any = None,
    **options: Unpack[EvaluateKeywords],
) -> EvalReport[Any]: ...
async def evaluate(
    samples: Any,
    config: EvalConfig,
    score_fn: Evaluators,
    prepare_messages: PrepareMessages | None = None,
    environment_factory: Callable[[Any], Any] | None = None,
    *,
    snapshots: SnapshotTimes | None = None,
    agent: Any = None,
    adapter: Any = None,
    **options: Unpack[EvaluateKeywords],
) -> EvalReport[Any]:
    """Evaluate every sample, and report in dataset order.

    Samples are any iterable, lazy or async. The agent is `config.endpoint`, with the messages that
    `prepare_messages(sample)` returns and in the environment that `environment_factory(sample)`
    makes, of which `snapshots` are kept ("turn" or "failure"); or `agent`, any function or
    `MainLoop`. `adapter` is the model for judges. Nothing is printed, and nothing is stored
    without `store`.

    Options: `store`, in which every row is stored as it finishes; `run_id`, `tags`, `dataset_name`
    and `model`, its names there; `resume="latest"`, which continues a run, also what ended in an
    error (`retry_errors`), even if the agent changed (`force`), and tells `on_note` what is reused;
    `quarantine`, samples that run and do not count, such as `load_quarantine("capitals")`; `bus`.
    """
    known = RunOptions.of("evaluate", options, EvaluateKeywords)
    agent = _agent_of_call(config, agent, prepare_messages, environment_factory, snapshots)
    return await run_to_report(_build_run(samples, config, score_fn, agent, adapter, known))


def stream(
    samples: Samples[InputT, ExpectedT],
    config: EvalConfig,
    score_fn: Evaluators,
    prepare_messages: PrepareMessages | None = None,
    environment_factory: Callable[[Sample[InputT, ExpectedT]], Any] | None = None,
    *,
    snapshots: SnapshotTimes | None = None,
    agent: AgentTarget[InputT, ExpectedT] | None = None,
    adapter: Any = None,
    **options: Unpack[EvaluateKeywords],
) -> Stream:
    """Evaluate like `evaluate`, but yield results as they finish, and keep none.

    Memory does not grow with the samples, and a source may never end. A sample id that occurs twice
    is refused: in a dataset or a list always, in a source without a length among its first 100,000
    samples; after these, an id is compared with the first 50,000 and the latest 50,000.
    `async for result in stream(...)` to the end; to leave earlier, `async with stream(...) as
    results` cancels what is in flight.
    """
    known = RunOptions.of("evaluate", options, EvaluateKeywords)
    agent = _agent_of_call(config, agent, prepare_messages, environment_factory, snapshots)
    return Stream(_build_run(samples, config, score_fn, agent, adapter, known))
