"""Generate rollouts: every prompt several times, by the engine that runs evals.

Rules of this file:
1. A group is returned complete, or its sample is in `unfinished`.
2. A failed rollout keeps its position and cannot be read as a trajectory, so that it is never
   scored nor trained on.
3. The random numbers of `rollout_random` depend on the seed, the step, the sample and the epoch,
   not on concurrency.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextvars import ContextVar
from dataclasses import dataclass, replace
from random import Random
from typing import Any, overload

from ..errors import UsageError
from ..evals import Criterion, EvalConfig, EvalReport, EvalResult, Sample, Trajectory, stream
from ..evals.engine import endpoint_agent
from ..evals.engine.agents import Agent, AgentOutput, branch_agent, current
from ..internal.checks import check_number, check_whole
from ..rollouts import EnvironmentSnapshot
from ..secrets import logger_for
from .groups import RolloutGroup, as_group, has_failed, trajectory_of
from .scoring import UNSCORED, Scorer, score_groups, scorer_of

_log = logger_for(__name__)
current_random: ContextVar[Random | None] = ContextVar("weakincentives.rl.random", default=None)


def rollout_random() -> Random:
    """Return the random generator of the current rollout; a new one outside of any.

    A policy that samples with it gives the same rollouts after a restart, at any concurrency.
    """
    return current_random.get() or Random()


class Rollouts(Sequence[Trajectory[Any]]):
    """The trajectories, by sample and epoch.

    Reading that of a failed rollout raises `RolloutError`. `groups` has all rollouts with their
    scores and errors, `failed` the results of those that failed. `unfinished` are the samples that
    were cancelled once enough groups were complete.
    """

    __slots__ = ("_results", "groups", "unfinished")

    def __init__(
        self, groups: Iterable[RolloutGroup], unfinished: Iterable[Sample[Any, Any]] = ()
    ) -> None:
        self.groups = tuple(groups)
        self.unfinished = tuple(unfinished)
        self._results = tuple(each for group in self.groups for each in group.rollouts)

    @property
    def failed(self) -> tuple[EvalResult[Any], ...]:
        """The results of the rollouts that failed, with their errors."""
        return tuple(filter(has_failed, self._results))

    def report(self, run_id: str = "") -> EvalReport[Any]:
        """Return the report of these rollouts, like that of an eval."""
        for group in self.groups:
            if not group.scored:
                raise UsageError(
                    f"expected rollouts that were scored, got those of sample {group.id!r} - "
                    "pass `score_fn` to `generate_rollouts`"
                )
        return EvalReport(self._results, run_id)

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, index: int) -> Trajectory[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Trajectory[Any]]: ...
    def __getitem__(self, index: int | slice) -> Trajectory[Any] | Sequence[Trajectory[Any]]:
        if isinstance(index, slice):
            return [trajectory_of(each, self._results) for each in self._results[index]]
        return trajectory_of(self._results[index], self._results)

    def __repr__(self) -> str:
        failed = f"{len(self.failed)} failed, " if self.failed else ""
        return (
            f"<Rollouts: {len(self)} of {len(self.groups)} samples, {failed}"
            f"{len(self.unfinished)} unfinished>"
        )


async def generate_rollouts(
    samples: Iterable[Sample[Any, Any] | RolloutGroup],
    endpoint: Any,
    environment_factory: Callable[..., Any] | None = None,
    n: int = 1,
    *,
    prepare_messages: Callable[..., Any] | None = None,
    score_fn: Callable[..., Any] | None = None,
    max_concurrent: int = 16,
    timeout: float | None = None,
    max_retries: int = 2,
    enough: int | None = None,
    seed: int = 0,
) -> Rollouts:
    """Run every sample n times; return the rollouts in the order of the samples.

    `endpoint`, `environment_factory` and `prepare_messages` are those of `evaluate`. Samples are
    pulled as slots become free. A `RolloutGroup` that has rollouts is passed through. `timeout` is
    in seconds, for one rollout. With `score_fn`, an evaluator or a `group_scorer`, the rollouts
    are scored.

    A rollout that fails is tried `max_retries` times more. If it still fails, it has no reward, and
    reading its trajectory raises `RolloutError`.

    With `enough`, it ends as soon as that many groups are complete: rollouts in flight are
    cancelled, their environments closed, and their samples are in `unfinished`.
    """
    agent = endpoint_agent(endpoint, prepare_messages, environment_factory)
    plan = RolloutPlan(n, max_concurrent, timeout, enough, seed, max_retries)
    scorer = None if score_fn is None else scorer_of(score_fn)
    return _warn_of_failures(await roll_out(samples, agent, scorer, plan))


async def branch_rollouts(
    snapshots: Iterable[tuple[Sample[Any, Any], EnvironmentSnapshot]],
    endpoint: Any,
    environment_factory: Callable[..., Any],
    n: int = 8,
    *,
    score_fn: Callable[..., Any] | None = None,
    max_concurrent: int = 16,
    timeout: float | None = None,
    max_retries: int = 2,
    seed: int = 0,
) -> Rollouts:
    """Continue n times from each snapshot, and return the rollouts as one group for each.

    A snapshot is that of a trajectory, `trajectory.snapshot_at(turn)`, next to its sample. The
    group has the sample's id with the turn, `maze@3`, so that advantages are computed among
    rollouts that share their beginning. Only replies after the snapshot have token traces.
    """
    agent = endpoint_agent(endpoint, None, environment_factory)
    plan = RolloutPlan(n, max_concurrent, timeout, None, seed, max_retries)
    scorer = None if score_fn is None else scorer_of(score_fn)
    groups: list[RolloutGroup] = []
    for sample, snapshot in snapshots:
        own = replace(sample, id=f"{sample.id}@{snapshot.turn}")
        made = await roll_out([own], branch_agent(agent, snapshot), scorer, plan)
        groups += made.groups
    return _warn_of_failures(Rollouts(groups))


def _warn_of_failures(rollouts: Rollouts) -> Rollouts:
    if failed := rollouts.failed:
        _log.warning(
            "%s of %s rollouts failed and %s no reward; the first, of sample %r: %s",
            len(failed),
            len(rollouts),
            "has" if len(failed) == 1 else "have",
            failed[0].sample_id,
            failed[0].error,
        )
    return rollouts


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """The settings of rollouts, the same in every step of a training."""

    n: int
    max_concurrent: int
    timeout: float | None
    enough: int | None
    seed: int
    max_retries: int = 0

    def __post_init__(self) -> None:
        check_whole(self.n, 1, "n")
        check_whole(self.max_retries, 0, "max_retries")
        if self.enough is not None:
            check_whole(self.enough, 1, "enough")
        if self.timeout is not None:
            check_number(self.timeout, "timeout", unit="seconds")

    @property
    def config(self) -> EvalConfig:
        """The settings for the engine."""
        return EvalConfig(
            self.max_concurrent,
            timeout=self.timeout,
            epochs=self.n,
            max_retries=self.max_retries,
        )


async def roll_out(
    samples: Iterable[Sample[Any, Any] | RolloutGroup],
    agent: Agent,
    scorer: Scorer | None,
    plan: RolloutPlan,
    step: int = 0,
) -> Rollouts:
    """Generate rollouts with any agent; `generate_rollouts` makes one from an endpoint."""
    judge = scorer if isinstance(scorer, Criterion) else UNSCORED
    coming = iter(samples)
    pulled: dict[str, RolloutGroup] = {}
    made: dict[str, list[EvalResult[Any]]] = {}

    def fresh() -> Iterator[Sample[Any, Any]]:
        for group in map(as_group, coming):
            if group.id in pulled:
                raise UsageError(f"expected every sample once, got {group.id!r} twice")
            pulled[group.id] = group
            if not group.rollouts:
                yield group.sample

    def complete() -> list[RolloutGroup]:
        return [group for group in pulled.values() if group.rollouts]

    seeded = _with_random(agent, plan.seed, step)
    async with stream(fresh(), plan.config, judge, agent=seeded) as results:
        async for result in results:
            rollouts = made.setdefault(result.sample_id, [])
            rollouts.append(result)
            if len(rollouts) < plan.n:
                continue
            rollouts.sort(key=lambda each: each.epoch)
            sample = pulled[result.sample_id].sample
            pulled[sample.id] = RolloutGroup(sample, tuple(rollouts), judge is scorer, step)
            if plan.enough is not None and len(complete()) >= plan.enough:
                break
    if isinstance(samples, Sized):  # otherwise the rest stays in its source
        deque(fresh(), maxlen=0)
    groups = complete()
    if scorer is not None:
        groups = await score_groups(groups, scorer, plan.max_concurrent, plan.timeout)
    return Rollouts(groups, (group.sample for group in pulled.values() if not group.rollouts))


def _with_random(agent: Agent, seed: int, step: int) -> Agent:
    """Return the agent with its own random generator for every attempt."""

    @functools.wraps(agent)
    async def seeded(sample: Sample[Any, Any]) -> AgentOutput:
        this = current()
        marks = (seed, step, sample.id, this.epoch, this.number)
        token = current_random.set(Random(repr(marks)))
        try:
            left: AgentOutput = await agent(sample)  # type: ignore[misc]  # an endpoint's is async
            return left
        finally:
            current_random.reset(token)

    return seeded
