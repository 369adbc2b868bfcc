"""Rollouts: every prompt several times, by the engine that runs evals.

Rules of this file:
1. A group is handed over whole, or its sample comes back in `unfinished`.
2. A rollout that failed stays in its place. It is never a trajectory that could be scored.
3. What a rollout draws from `rollout_random` depends on the seed, the step, the sample and the
   epoch; not on what else ran at the same time.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, overload

from ..errors import UsageError, shown
from ..evals import (
    Criterion,
    EvalConfig,
    EvalReport,
    EvalResult,
    Sample,
    Trajectory,
    endpoint_agent,
    stream,
)
from ..evals._agents import Agent, Leavings, current
from ..evals._config import check_whole
from ._groups import RolloutGroup
from ._scoring import UNSCORED, Scorer, score_groups, scorer_of

__all__ = ["Plan", "Rollouts", "generate_rollouts", "roll_out", "rollout_random"]

_random: ContextVar[Random | None] = ContextVar("weakincentives.rl.random", default=None)


def rollout_random() -> Random:
    """The random numbers of the rollout that the caller is part of; new ones outside of any.

    A policy that samples by these gives the same rollouts again after a restart, however many run
    at once.
    """
    return _random.get() or Random()


class Rollouts(Sequence[Trajectory[Any]]):
    """The trajectories, sample by sample and epoch by epoch; and how they belong together.

    `groups` has them with their scores and errors. `unfinished` are the samples that were given up
    once enough groups were complete.
    """

    __slots__ = ("_trajectories", "groups", "unfinished")

    def __init__(
        self, groups: Iterable[RolloutGroup], unfinished: Iterable[Sample[Any, Any]] = ()
    ) -> None:
        self.groups = tuple(groups)
        self.unfinished = tuple(unfinished)
        self._trajectories = tuple(each for group in self.groups for each in group.trajectories)

    def report(self, run_id: str = "") -> EvalReport[Any]:
        """The report of these rollouts, as an eval of them would give it."""
        for group in self.groups:
            if not group.scored:
                raise UsageError(
                    f"expected rollouts that were scored, got those of sample {group.id!r} - "
                    "pass `score_fn` to `generate_rollouts`"
                )
        return EvalReport([each for group in self.groups for each in group.rollouts], run_id)

    def __len__(self) -> int:
        return len(self._trajectories)

    @overload
    def __getitem__(self, index: int) -> Trajectory[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Trajectory[Any]]: ...
    def __getitem__(self, index: int | slice) -> Trajectory[Any] | Sequence[Trajectory[Any]]:
        return self._trajectories[index]

    def __repr__(self) -> str:
        return (
            f"<Rollouts: {len(self)} of {len(self.groups)} samples, "
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
    enough: int | None = None,
    seed: int = 0,
) -> Rollouts:
    """Roll every sample out n times, in the order of the samples.

    `endpoint`, `environment_factory` and `prepare_messages` are those of `evaluate`. Samples are
    pulled as there is room for them. A `RolloutGroup` that has its rollouts is handed on as it is.
    `timeout` is in seconds, for one rollout. With `score_fn`, an evaluator or a `group_scorer`,
    rollouts come scored.

    With `enough`, rolling out ends as soon as so many groups are complete: what is under way is
    cancelled, its environments are closed, and its samples are in `unfinished`.
    """
    agent = endpoint_agent(endpoint, prepare_messages, environment_factory)
    plan = Plan(n, max_concurrent, timeout, enough, seed)
    return await roll_out(samples, agent, None if score_fn is None else scorer_of(score_fn), plan)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to roll out; the same in every step of a training."""

    n: int
    max_concurrent: int
    timeout: float | None
    enough: int | None
    seed: int

    def __post_init__(self) -> None:
        check_whole(self.n, 1, "n")
        if self.enough is not None:
            check_whole(self.enough, 1, "enough")
        seconds = self.timeout
        if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < inf):
            raise UsageError(f"expected seconds > 0 for `timeout`, got {shown(seconds)}")

    @property
    def config(self) -> EvalConfig:
        """The same for an engine."""
        limit = None if self.timeout is None else max(1, round(self.timeout * 1000))
        return EvalConfig(self.max_concurrent, limit, epochs=self.n)


async def roll_out(
    samples: Iterable[Sample[Any, Any] | RolloutGroup],
    agent: Agent,
    scorer: Scorer | None,
    plan: Plan,
    step: int = 0,
) -> Rollouts:
    """Roll out by any agent; `generate_rollouts` makes one of an endpoint."""
    judge = scorer if isinstance(scorer, Criterion) else UNSCORED
    coming = iter(samples)
    pulled: dict[str, RolloutGroup] = {}
    made: dict[str, list[EvalResult[Any]]] = {}

    def fresh() -> Iterator[Sample[Any, Any]]:
        for given in coming:
            group = RolloutGroup(given) if isinstance(given, Sample) else given
            if not isinstance(group, RolloutGroup):
                raise UsageError(f"expected a `Sample` or a `RolloutGroup`, got {shown(given)}")
            if group.id in pulled:
                raise UsageError(f"expected every sample once, got {group.id!r} twice")
            pulled[group.id] = group
            if not group.rollouts:
                yield group.sample

    def complete() -> list[RolloutGroup]:
        return [group for group in pulled.values() if group.rollouts]

    drawing = _drawing(agent, plan.seed, step)
    async with stream(fresh(), plan.config, judge, agent=drawing) as results:
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
    if isinstance(samples, Sized):  # or the rest is left in its source
        deque(fresh(), maxlen=0)
    groups = complete()
    if scorer is not None:
        groups = await score_groups(groups, scorer, plan.max_concurrent, plan.timeout)
    return Rollouts(groups, (group.sample for group in pulled.values() if not group.rollouts))


def _drawing(agent: Agent, seed: int, step: int) -> Agent:
    """The agent, with random numbers of its own for every attempt."""

    @functools.wraps(agent)
    async def drawing(sample: Sample[Any, Any]) -> Leavings:
        this = current()
        marks = (seed, step, sample.id, this.epoch, this.number)
        token = _random.set(Random(repr(marks)))
        try:
            left: Leavings = await agent(sample)  # type: ignore[misc]  # an endpoint's is async
            return left
        finally:
            _random.reset(token)

    return drawing
