"""The training loop: prompts from a buffer, rollouts, rewards, advantages, a step of the backend.

Rules of this file:
1. A failed rollout has no reward. It is counted, but neither trained on nor part of a baseline.
2. The rewards and all logged numbers are those of the step's `EvalReport`.
3. The loop itself has no state: all state is in the backend, the buffer and the history.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..errors import UsageError, WinkError, short_repr
from ..evals import EvalReport, Trajectory
from ..evals.engine import Agent, endpoint_agent
from ..internal.checks import check_whole
from ..rollouts.environment import call_user_function
from .advantages import (
    Advantages,
    compared,
    compute_dr_grpo_advantages,
    compute_grpo_advantages,
    compute_rloo_advantages,
    compute_turn_advantages,
    is_flat,
    turn_of,
)
from .buffer import DataBuffer
from .checkpoint import Checkpoint
from .groups import GroupFilter, RolloutGroup, keep_groups
from .rollouts import RolloutPlan, Rollouts, roll_out
from .scoring import Scorer, scorer_of
from .sequences import Advantage

LogMetric = Callable[..., object]
OnStep = Callable[[dict[str, Any], EvalReport[Any]], "Awaitable[object] | object"]

_NEED_A_GROUP = (compute_dr_grpo_advantages, compute_grpo_advantages, compute_rloo_advantages)


class TrainingBackend(Protocol):
    """The owner of the policy and its optimizer.

    Optional: `endpoint`, an async function from messages to a `ModelReply` with tokens, is used
    if the config has no other. Checkpoints need `state_dict()` (JSON data, arrays included) and
    `load_state_dict(state)`, or `save(path)` and `load(path)`. `metrics`, a mapping of numbers, is
    logged after each step.
    """

    def train_step(
        self, trajectories: Sequence[Trajectory[Any]], advantages: Sequence[Advantage]
    ) -> float | Awaitable[float]:
        """Update the policy once, and return the loss. A synchronous method runs in a thread.

        An advantage is a number for the whole trajectory or, if rewards name their turn, one for
        each of `trajectory.tokens`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RLTrainingConfig:
    """Settings of a training.

    A step trains on `batch_size` prompts with `group_size` rollouts each. `over_sampling` more
    prompts are started, and once the batch is complete the slowest return to the buffer. `timeout`
    is in seconds, for one rollout. `filters` drop groups that should not be trained on.
    """

    num_steps: int
    batch_size: int = 16
    group_size: int = 8
    endpoint: Any = None
    environment_factory: Callable[..., Any] | None = None
    prepare_messages: Callable[..., Any] | None = None
    max_concurrent: int = 16
    timeout: float | None = None
    over_sampling: int = 0
    advantages: Advantages = compute_dr_grpo_advantages
    filters: tuple[GroupFilter, ...] = ()
    seed: int = 0
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            check_whole(getattr(self, name), least, f"RLTrainingConfig.{name}")
        object.__setattr__(self, "filters", tuple(self.filters))
        for function in (self.advantages, *self.filters):
            if not callable(function):
                raise UsageError(
                    f"expected functions for `advantages` and `filters`, got {short_repr(function)}"
                )
        if self.group_size == 1 and self.advantages in _NEED_A_GROUP:
            raise UsageError(
                "expected `group_size` >= 2, got 1: a rollout is compared with others of its "
                "prompt, so alone its advantage is always 0"
            )
        _ = self.plan  # checks the rest

    @property
    def plan(self) -> RolloutPlan:
        """The plan for the rollouts of each step."""
        return RolloutPlan(
            self.group_size, self.max_concurrent, self.timeout, self.batch_size, self.seed
        )


_LEAST = {
    "num_steps": 0,
    "batch_size": 1,
    "group_size": 1,
    "max_concurrent": 1,
    "over_sampling": 0,
    "seed": 0,
    "checkpoint_every": 1,
}
_FIXED = ("batch_size", "group_size", "over_sampling", "seed")  # must not change on resume


async def run_rl_training(
    backend: TrainingBackend,
    data_buffer: DataBuffer,
    score_fn: Callable[..., Any],
    config: RLTrainingConfig,
    *,
    log_metric: LogMetric | None = None,
    on_step: OnStep | None = None,
    checkpoint: Path | str | None = None,
) -> list[dict[str, Any]]:
    """Train the backend's policy for `config.num_steps` steps; return an entry for each step.

    `score_fn` is any evaluator or a `group_scorer`. A step's entry has `step`, `loss` (None if
    nothing was left to train on), `mean_reward` (None if no rollout has one), and counts: `groups`,
    `rollouts`, `failed` (rollouts that ended in an error), `masked` (rollouts not trained on),
    `zero_spread` (groups in which no two rewards differ), `unfinished` (samples returned to the
    buffer), and `dropped`, groups by the filter's reason.

    `log_metric(name, value, step=step)` gets `score/<name>` for every metric of every score, and
    `train/<name>` for the numbers of the entry and of the backend's `metrics`. `on_step(entry,
    report)` gets the rollouts of the step as an `EvalReport`.

    With `checkpoint`, a folder, the training is stored every `config.checkpoint_every` steps and at
    its end; the same call resumes it from there. Its history is then that of an uninterrupted
    training, if the policy draws from `rollout_random` and nothing depends on time, as
    `over_sampling` and `timeout` do.
    """
    if not isinstance(config, RLTrainingConfig):
        raise UsageError(f"expected an `RLTrainingConfig`, got {short_repr(config)}")
    scorer = scorer_of(score_fn)
    stored: Checkpoint | None = None
    history: list[dict[str, Any]] = []
    if checkpoint is not None:
        facts = {name: getattr(config, name) for name in _FIXED}
        stored = Checkpoint(checkpoint, backend, data_buffer, facts)
        history = await call_user_function(stored.restore, abandon=False)
    agent = _agent(backend, config)
    log = log_metric or (lambda name, value, *, step: None)
    for step in range(len(history), config.num_steps):
        rollouts = await _roll_out(data_buffer, agent, scorer, config, step)
        if not rollouts.groups:
            break  # an iterator of samples is exhausted
        report = rollouts.report(f"step-{step}")
        _log_scores(report, log, step)
        entry = await _train(backend, rollouts, report, config, step)
        for name, value in {**entry, **_metrics(backend, entry)}.items():
            if name != "step" and isinstance(value, int | float):
                log(f"train/{name}", value, step=step)
        history.append(entry)
        if stored and len(history) % config.checkpoint_every == 0:
            await call_user_function(stored.write, history, abandon=False)
        if on_step is not None:
            pending = on_step(entry, report)
            if inspect.isawaitable(pending):
                await pending
    if stored and len(history) % config.checkpoint_every:
        await call_user_function(stored.write, history, abandon=False)
    return history


def _agent(backend: Any, config: RLTrainingConfig) -> Agent:
    endpoint = getattr(backend, "endpoint", None) if config.endpoint is None else config.endpoint
    if endpoint is None:
        raise UsageError(
            "expected an endpoint, got none - set `RLTrainingConfig(endpoint=...)`, or give "
            f"`{type(backend).__qualname__}` an `endpoint`"
        )
    return endpoint_agent(endpoint, config.prepare_messages, config.environment_factory)


async def _roll_out(
    buffer: DataBuffer, agent: Agent, scorer: Scorer, config: RLTrainingConfig, step: int
) -> Rollouts:
    """Return the scored groups of a step; return unfinished samples to the buffer."""
    groups = buffer.get_samples(config.batch_size + config.over_sampling, step=step)
    try:
        rollouts = await roll_out(groups, agent, scorer, config.plan, step)
    except BaseException:  # such as a cancellation: they were not trained on
        buffer.add_samples(groups)
        raise
    buffer.add_samples(rollouts.unfinished)
    return rollouts


async def _train(
    backend: TrainingBackend,
    rollouts: Rollouts,
    report: EvalReport[Any],
    config: RLTrainingConfig,
    step: int,
) -> dict[str, Any]:
    """Train on the groups that the filters keep; return the entry of the step."""
    kept, dropped = keep_groups(rollouts.groups, config.filters, step=step)
    trajectories, advantages = _training_batch(kept, config.advantages)
    return {
        "step": step,
        "loss": await _train_step(backend, trajectories, advantages, step),
        "mean_reward": report.mean_score if report.successful else None,
        "groups": len(rollouts.groups),
        "rollouts": report.total,
        "failed": report.errors,
        "masked": report.total - len(trajectories),
        "zero_spread": sum(is_flat(group.rewards) for group in rollouts.groups),
        "unfinished": len(rollouts.unfinished),
        "dropped": dict(dropped),
    }


def _metrics(backend: TrainingBackend, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the backend's metrics, which without a step would be those of an earlier one."""
    return {} if entry["loss"] is None else dict(getattr(backend, "metrics", {}))


def _training_batch(
    groups: Sequence[RolloutGroup], compare: Advantages
) -> tuple[list[Trajectory[Any]], list[Advantage]]:
    """Return the trajectories that have a reward, and the advantage of each."""
    results = [each for group in groups for each in group.rollouts]
    names = [group.id for group in groups for _ in group.rollouts]
    scores = [each.score if each.error is None else None for each in results]
    counted = [metric for score in scores if score for metric in score.metrics]
    advantages: list[Advantage]
    if any(turn_of(metric) is not None for metric in counted):
        turns = [len(each.trajectory.tokens) if each.trajectory else 0 for each in results]
        advantages = [*compute_turn_advantages(scores, turns, names, advantages=compare)]
    else:
        rewards = [score.reward if score else None for score in scores]
        advantages = [*compared(compare, rewards, names)]
    pairs = [
        (each.trajectory, advantage)
        for each, advantage in zip(results, advantages, strict=True)
        if each.error is None and each.trajectory is not None
    ]
    return [trajectory for trajectory, _ in pairs], [advantage for _, advantage in pairs]


async def _train_step(
    backend: TrainingBackend,
    trajectories: list[Trajectory[Any]],
    advantages: list[Advantage],
    step: int,
) -> float | None:
    """Run one step of the backend; return its loss."""
    if not trajectories:
        return None
    # Not abandoned on cancellation, since the thread is changing weights.
    loss = float(
        await call_user_function(backend.train_step, trajectories, advantages, abandon=False)
    )
    if not math.isfinite(loss):
        raise WinkError(
            f"expected a finite loss from `{type(backend).__qualname__}.train_step`, got {loss} - "
            f"at step {step}; lower the learning rate, or resume from an earlier checkpoint"
        )
    return loss


def _log_scores(report: EvalReport[Any], log: LogMetric, step: int) -> None:
    for result in report.results:
        if result.error is not None:
            continue
        score = result.score
        for metric in score.metrics:
            log(f"score/{metric.name}", metric.value, step=step)
        if not score.metrics:
            log(f"score/{score.criterion or 'score'}", score.value, step=step)
