"""Continue from a snapshot of a stored attempt: once to resume it, several times to branch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...internal.checks import check_whole
from .._types import Dataset, EvalConfig
from ..evaluators.criteria import Criterion
from ..model.result import EvalResult
from ..runs.report import EvalReport
from ..store.run_store import RunStore
from .agents import Agent, branch_agent
from .run import Run, run_to_report
from .run_options import RunOptions

if TYPE_CHECKING:
    from ...rollouts import EnvironmentSnapshot


def find_snapshot(
    store: RunStore, run_id: str, sample_id: str, *, at: int | None = None, epoch: int | None = None
) -> tuple[EvalResult[Any], EnvironmentSnapshot]:
    """Return a stored result of a sample and its snapshot after turn `at`; or else the last one.

    Without an `epoch`, it is the first one that has such a snapshot.
    """
    results = [
        row.result
        for row in store.rows(run_id)
        if row.result.sample_id == sample_id and epoch in (None, row.result.epoch)
    ]
    if not results:
        raise UsageError(f"expected a result of sample {sample_id!r} in run {run_id}, found none")
    problem: UsageError | None = None
    for result in results:
        if result.trajectory is None:
            continue
        try:
            return result, result.trajectory.snapshot_at(at)
        except UsageError as error:
            problem = error
    raise problem or UsageError(f"expected a trajectory of sample {sample_id!r}, found none")


def branch_run(
    result: EvalResult[Any],
    snapshot: EnvironmentSnapshot,
    agent: Agent,
    criterion: Criterion,
    config: EvalConfig,
    *,
    n: int = 8,
    adapter: Any = None,
    store: RunStore | None = None,
    tags: Mapping[str, str] | None = None,
    dataset_name: str = "",
) -> Run:
    """Return the run that continues n times from a snapshot, each as an epoch of the sample."""
    check_whole(n, 1, "n")
    sample = result.sample
    if sample is None:
        raise UsageError(f"expected a result with its sample, got {result.sample_id!r} without")
    origin = f"{result.run_id}/{result.sample_id}@{snapshot.turn}"
    return Run(
        samples=Dataset([sample], name=dataset_name),
        agent=branch_agent(agent, snapshot),
        criterion=criterion,
        config=replace(config, epochs=n, max_samples=None, stop_at_width=None, stop_against=None),
        adapter=adapter,
        options=RunOptions(store=store, tags={**(tags or {}), "branched_from": origin}),
    )


async def branch_sample(
    store: RunStore,
    run_id: str,
    sample_id: str,
    agent: Agent,
    criterion: Criterion,
    *,
    at: int | None = None,
    n: int = 8,
    epoch: int | None = None,
    config: EvalConfig | None = None,
    adapter: Any = None,
) -> EvalReport[Any]:
    """Continue n times from a snapshot of a stored sample; store and return the new run.

    With n = 1 and no `at`, it resumes the attempt from its last snapshot.
    """
    result, snapshot = find_snapshot(store, run_id, sample_id, at=at, epoch=epoch)
    return await run_to_report(
        branch_run(
            result,
            snapshot,
            agent,
            criterion,
            config or EvalConfig(),
            n=n,
            adapter=adapter,
            store=store,
        )
    )
