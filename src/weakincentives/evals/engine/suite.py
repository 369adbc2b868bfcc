"""`EvalSuite`: a prompt or an agent, a dataset and an evaluator, with `run()` for scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

import anyio

from ...errors import RunIncompleteError, UsageError, short_repr
from ...eval_config import SETTINGS
from ...internal.checks import checked_options
from ...internal.event_loop import run_sync
from ...internal.interrupts import keyboard_interrupt
from ...internal.threads import in_thread
from ...internal.typevars import ExpectedT, InputT, OutputT
from .._types import Dataset, EvalConfig, Sample
from ..built_ins import Evaluators, as_criterion
from ..evaluators.criteria import Criterion
from ..model.quarantine import load_quarantine
from ..runs.report import EvalReport
from ..store.location import DEFAULT_STORE, DefaultStore, opened_store
from .agents import agent_of
from .display import progress_of, run_with_progress
from .run import Run, run_to_report
from .run_options import RunKeywords, RunOptions
from .tasks import count_of

if TYPE_CHECKING:
    from ...prompt import PromptTemplate
    from ...runtime.agent.main_loop import MainLoop
    from ..model.versions import WorkerVersion
    from ..store.run_store import RunStore
    from .agents import AgentFunction, AgentTrajectory

if TYPE_CHECKING:
    Samples = Dataset[InputT, ExpectedT] | Sequence[Sample[InputT, ExpectedT]]
    Store = RunStore | Path | str | DefaultStore | None


@dataclass(init=False, eq=False, repr=False)
class EvalSuite(Generic[InputT, OutputT, ExpectedT]):
    """An agent or a prompt, the dataset that it is evaluated on, and the evaluators.

    `prompt` is a `PromptTemplate` that `adapter` answers; `agent` is a function of the input or a
    `MainLoop`. The first argument may be either. Several evaluators in a list must all pass.
    `adapter`, which may be a model's name (`"openai/gpt-4o"`), is also the model for judges. `name`
    distinguishes its runs from those of other suites.

    >>> from weakincentives.evals import contains
    >>> dataset = Dataset([Sample("fr", "Capital of France?", "Paris")], name="capitals")
    >>> print(EvalSuite(lambda question: "Paris.", dataset, contains).run(store=None))
    1/1 passed, 0 errors (100.0%, 95% interval 20.7% to 100.0%, n = 1)
    """

    prompt: Any
    dataset: Dataset[InputT, ExpectedT]
    evaluator: Criterion
    adapter: Any
    config: EvalConfig
    name: str

    # For type checkers: the agent may return a trajectory, an awaitable, or the output itself. The
    # first overload that fits gives the type of the output, so the order matters.
    @overload
    def __init__(
        self,
        prompt: PromptTemplate[OutputT]
        | MainLoop[InputT, OutputT]
        | AgentFunction[
            InputT, AgentTrajectory[OutputT] | Awaitable[AgentTrajectory[OutputT]], ExpectedT
        ],
        dataset: Samples[InputT, ExpectedT],
        evaluator: Evaluators,
        adapter: Any = None,
        config: EvalConfig | None = None,
        *,
        name: str = "",
    ) -> None: ...
    @overload
    def __init__(
        self,
        prompt: AgentFunction[InputT, Awaitable[OutputT], ExpectedT],
        dataset: Samples[InputT, ExpectedT],
        evaluator: Evaluators,
        adapter: Any = None,
        config: EvalConfig | None = None,
        *,
        name: str = "",
    ) -> None: ...
    @overload
    def __init__(
        self,
        prompt: AgentFunction[InputT, OutputT, ExpectedT],
        dataset: Samples[InputT, ExpectedT],
        evaluator: Evaluators,
        adapter: Any = None,
        config: EvalConfig | None = None,
        *,
        name: str = "",
    ) -> None: ...
    @overload
    def __init__(
        self,
        *,
        agent: MainLoop[InputT, OutputT]
        | AgentFunction[
            InputT, AgentTrajectory[OutputT] | Awaitable[AgentTrajectory[OutputT]], ExpectedT
        ],
        dataset: Samples[InputT, ExpectedT],
        evaluator: Evaluators,
        adapter: Any = None,
        config: EvalConfig | None = None,
        name: str = "",
    ) -> None: ...
    @overload
    def __init__(
        self,
        *,
        agent: AgentFunction[InputT, Awaitable[OutputT], ExpectedT],
        dataset: Samples[InputT, ExpectedT],
        evaluator: Evaluators,
        adapter: Any = None,
        config: EvalConfig | None = None,
        name: str = "",
    ) -> None: ...
    @overload
    def __init__(
        self,
        *,
        agent: AgentFunction[InputT, OutputT, ExpectedT],
        dataset: Samples[InputT, ExpectedT],
        evaluator: Evaluators,
        adapter: Any = None,
        config: EvalConfig | None = None,
        name: str = "",
    ) -> None: ...
    @checked_options(SETTINGS)
    def __init__(
        self,
        prompt: Any = None,
        dataset: Any = (),
        evaluator: Any = None,
        adapter: Any = None,
        config: EvalConfig | None = None,
        *,
        agent: Any = None,
        name: str = "",
    ) -> None:
        if (prompt is None) == (agent is None):
            raise UsageError("expected one of `prompt` and `agent`, got both or neither")
        if evaluator is None:
            raise UsageError("expected an `evaluator`, got none - `exact_match` is one")
        if not isinstance(config, EvalConfig | None):
            raise UsageError(f"expected an `EvalConfig` for `config`, got {short_repr(config)}")
        self.prompt = agent if prompt is None else prompt
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset, name)
        self.evaluator = as_criterion(evaluator)
        self.adapter = adapter = _as_adapter(adapter)
        self.config = config or EvalConfig()
        self.own_name, self.name = name, name or self.dataset.name
        agent_of(self.prompt, adapter=adapter)  # raises here, not when it runs

    def run(
        self,
        *,
        store: Store = DEFAULT_STORE,
        progress: bool = True,
        **options: Unpack[RunKeywords],
    ) -> EvalReport[OutputT]:
        """Evaluate every sample and report. It works with or without a running event loop.

        Every row is stored as it finishes, and `resume="latest"` continues a run. `store` is a
        `RunStore` or a path; the default is `$WINK_STORE`, or `.wink/runs.db`; None stores nothing.
        If the agent changed since, that is refused, unless `force` is set: then the rows of the
        changed agent are marked. In a terminal and in a notebook progress is shown, unless
        `progress` is False.

        Ctrl-C raises a `KeyboardInterrupt` that says how to continue, and ends a script with that
        line.
        """
        with opened_store(store) as opened:
            run = self.build_run(RunOptions.of("EvalSuite.run", options, store=opened))
            try:
                with progress_of(run, wanted=progress) as show:
                    return run_sync(run_with_progress, partial(run_to_report, run), show)
            except KeyboardInterrupt:
                raise _interrupted(run, is_default=store is DEFAULT_STORE) from None
            except BaseException as error:
                # A `SystemExit` may come from the script's own signal handler.
                if isinstance(error, SystemExit) or not run.ended_from_inside(error):
                    raise
                raise RunIncompleteError(run.engine.tally.done) from error

    async def run_async(
        self,
        *,
        store: Store = DEFAULT_STORE,
        progress: bool = True,
        **options: Unpack[RunKeywords],
    ) -> EvalReport[OutputT]:
        """Evaluate every sample and report, from async code; with the options of `run`."""
        with ExitStack() as stack:
            opened = await in_thread(stack.enter_context, opened_store(store))
            try:
                run = self.build_run(RunOptions.of("EvalSuite.run", options, store=opened))
                with progress_of(run, wanted=progress) as show:
                    return await run_with_progress(partial(run_to_report, run), show)
            finally:
                with anyio.CancelScope(shield=True):
                    await in_thread(stack.close)  # it may wait for the disk

    @property
    def version(self) -> WorkerVersion:
        """The version of agent and evaluators, which `submit_dataset(expect=...)` takes."""
        from .run_manifest import version_of

        return version_of(agent_of(self.prompt, adapter=self.adapter), self.evaluator, self.adapter)

    def build_run(
        self,
        options: RunOptions = RunOptions(),  # noqa: B008  # frozen
        *,
        samples: Dataset[InputT, ExpectedT] | None = None,
        config: EvalConfig | None = None,
    ) -> Run:
        """Return the run that `run` executes; `samples` and `config` replace those of the suite.

        Samples that the file `quarantine.jsonl` lists for the suite run, but do not count.
        """
        suite = options.suite or self.own_name
        return Run(
            samples=self.dataset if samples is None else samples,
            agent=agent_of(self.prompt, adapter=self.adapter, bus=options.bus),
            criterion=self.evaluator,
            config=config or self.config,
            adapter=self.adapter,
            options=replace(
                options,
                suite=suite,
                dataset_name=self.dataset.name or self.name,
                output_type=getattr(self.prompt, "output_type", Any),
                quarantine=load_quarantine(suite or self.dataset.name or self.name),
            ),
        )


def _as_adapter(adapter: Any) -> Any:
    if adapter is None:
        return None
    from ...rollouts.endpoint import named_adapter

    return named_adapter(adapter)


def _interrupted(run: Run, *, is_default: bool) -> KeyboardInterrupt:
    """Return what Ctrl-C raises: how much is stored, and how to continue."""
    engine, planned = getattr(run, "engine", None), count_of(run.samples, run.config) or 0
    planned *= run.config.epochs
    if engine is None:
        return keyboard_interrupt("interrupted before the first sample")
    if run.store is None:
        return keyboard_interrupt(
            f"interrupted after {engine.tally.done:,} of {planned:,} results; none is stored, "
            "because `store` is None"
        )
    stored = run.store.run(run.run_id).stored
    where = "" if is_default else "store=..., "
    return keyboard_interrupt(
        f"interrupted, {stored:,} of {planned:,} results are stored in {run.store.location} - to "
        f'continue: suite.run({where}resume="{run.run_id}")'
    )
