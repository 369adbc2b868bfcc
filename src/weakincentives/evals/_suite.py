"""EvalSuite: a prompt or an agent, a dataset, an evaluator; `run()` from any script."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from .._typevars import ExpectedT, InputT, OutputT
from ..errors import UsageError, shown
from ._agents import agent_of
from ._config import EvalConfig
from ._criterion import Criterion, criterion
from ._evaluate import Run, report_of
from ._evaluators import all_of
from ._report import EvalReport
from ._types import Dataset, Sample

if TYPE_CHECKING:
    from ..runtime.dispatcher import EventBus
    from ._store import RunStore

__all__ = ["EvalSuite", "from_sync"]

T = TypeVar("T")


class EvalSuite(Generic[InputT, OutputT, ExpectedT]):
    """What is evaluated, on what, by which evaluators.

    `prompt` is a `PromptTemplate` that `adapter` answers, or an agent: a function of the input, a
    `MainLoop`. Several evaluators in a list must all pass. `adapter` is also there for judges.

    >>> from weakincentives.evals import contains
    >>> dataset = Dataset([Sample("fr", "Capital of France?", "Paris")], name="capitals")
    >>> print(EvalSuite(lambda question: "Paris.", dataset, contains).run())
    1/1 passed, 0 errors (100.0%, 95% interval 20.7% to 100.0%, n = 1)
    """

    def __init__(
        self,
        prompt: Any = None,
        dataset: Dataset[InputT, ExpectedT] | Sequence[Sample[InputT, ExpectedT]] = (),
        evaluator: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
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
            raise UsageError(f"expected an `EvalConfig` for `config`, got {shown(config)}")
        self.prompt = agent if prompt is None else prompt
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset, name)
        self.evaluator: Criterion = _one(evaluator)
        self.adapter = adapter
        self.config = config or EvalConfig()
        self.name = name or self.dataset.name
        agent_of(self.prompt, adapter=adapter)  # what is wrong is said here, and not when it runs

    def run(
        self,
        *,
        bus: EventBus | None = None,
        tags: Mapping[str, str] | None = None,
        store: RunStore | None = None,
        run_id: str = "",
        resume: str | None = None,
        retry_errors: bool = False,
    ) -> EvalReport[OutputT]:
        """Evaluate every sample and report, from synchronous code, an event loop running or not.

        With `store`, every row is on disk at once, and `resume="latest"` goes on where a run ended.
        """
        return from_sync(
            partial(
                self.run_async,
                bus=bus,
                tags=tags,
                store=store,
                run_id=run_id,
                resume=resume,
                retry_errors=retry_errors,
            )
        )

    async def run_async(self, **options: Any) -> EvalReport[OutputT]:
        """The same for async code."""
        return await report_of(self.planned(**options))

    def planned(self, *, config: EvalConfig | None = None, **options: Any) -> Run:
        """The run that `run` carries out."""
        options["tags"] = options.get("tags") or {}
        return Run(
            samples=options.pop("samples", self.dataset),
            agent=agent_of(self.prompt, adapter=self.adapter, bus=options.get("bus")),
            criterion=self.evaluator,
            config=config or self.config,
            adapter=self.adapter,
            dataset_name=self.dataset.name or self.name,
            output_type=getattr(self.prompt, "output_type", Any),
            **options,
        )


def _one(evaluator: Any) -> Criterion:
    if isinstance(evaluator, (list, tuple)):
        return all_of(*evaluator) if len(evaluator) != 1 else criterion(evaluator[0])
    return criterion(evaluator)


def from_sync(call: Callable[[], Awaitable[T]]) -> T:
    """Run to the end, in an event loop of its own; in a thread where this one has a loop."""
    if _loop_is_running():
        with start_blocking_portal() as portal:  # an interrupt here ends the run there
            return portal.call(call)
    return anyio.run(call)


def _loop_is_running() -> bool:
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
