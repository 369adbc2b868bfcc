"""The training loop as the specification writes it, and ours in its place."""

from __future__ import annotations

import inspect
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.engine import in_jumping_time
from tests.rl.policies import TablePolicy
from weakincentives.errors import RolloutError
from weakincentives.evals import Metric, Sample, Score, Trajectory
from weakincentives.rl import DataBuffer, RLTrainingConfig, run_rl_training
from weakincentives.rollouts import CalculatorEnvironment

pytestmark = pytest.mark.anyio

# The file of the specification; we changed only imports, and `log_metric` appends to a list.
RL_LOOP = '''
"""RL training loop using eval types for scoring.

Compatible with Miles DataBuffer pattern.
Pure function orchestrates stateful objects.
"""

from collections.abc import Callable

from weakincentives.rl import (
    DataBuffer, RLTrainingConfig, TrainingBackend, compute_grpo_advantages, generate_rollouts,
)
from weakincentives.evals import Sample, Score, Metric, Trajectory

logged = []

def log_metric(name, value, *, step):
    logged.append((name, value, step))

async def run_rl_training(
    backend: TrainingBackend,             # Stateful: owns model/optimizer
    data_buffer: DataBuffer,              # Stateful: owns iteration
    score_fn: Callable[[Trajectory, Sample], Score],  # Pure
    config: RLTrainingConfig,             # Frozen
) -> list[dict]:
    """Pure function orchestrating stateful objects."""
    metrics_history = []

    for step in range(config.num_steps):
        # Get prompts from buffer (stateful)
        prompt_batch = data_buffer.get_prompts(config.batch_size)

        # Generate rollouts
        samples = [
            Sample(id=f"step_{step}_{i}", input={"prompt": p}, ground_truth=None)
            for i, p in enumerate(prompt_batch)
        ]

        trajectories = await generate_rollouts(
            samples=samples,
            endpoint=config.endpoint,
            environment_factory=config.environment_factory,
        )

        # Score rollouts (pure)
        scores = [score_fn(traj, sample) for traj, sample in zip(trajectories, samples)]

        # Compute advantages from reward signal
        rewards = [s.reward for s in scores]
        advantages = compute_grpo_advantages(rewards)

        # Log all metrics (rewards + tracking-only)
        for score in scores:
            for m in score.metrics:
                log_metric(f"score/{m.name}", m.value, step=step)

        # Update weights (stateful)
        loss = backend.train_step(trajectories, advantages)

        metrics_history.append({
            "step": step,
            "loss": loss,
            "mean_reward": sum(rewards) / len(rewards),
        })

    return metrics_history
'''

PROMPTS = [Sample(f"{a}+1", {"prompt": f"{a}+1"}, str(a + 1)) for a in range(5)]


def score_fn(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    a, b = map(int, sample.input["prompt"].split("+"))
    correct = trajectory.messages[-1].content == str(a + b)
    return Score(
        metrics=(
            Metric("correct", 1.0 if correct else 0.0, weight=1.0),
            Metric("num_turns", len(trajectory.messages), weight=0),
        )
    )


def config(backend: TablePolicy, **options: Any) -> RLTrainingConfig:
    return RLTrainingConfig(
        **{
            "num_steps": 40,
            "batch_size": 5,
            "endpoint": backend.endpoint,
            "environment_factory": lambda sample: CalculatorEnvironment(),
            **options,
        }
    )


@pytest.fixture
def rl_loop(tmp_path: Path) -> ModuleType:
    """Import the file of the specification."""
    path = tmp_path / "rl_loop.py"
    path.write_text(RL_LOOP, "utf-8")
    spec = spec_from_file_location("rl_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_loop_of_the_specification_runs_as_it_is_written(rl_loop: ModuleType) -> None:
    backend = TablePolicy(rate=0.3)

    history = await rl_loop.run_rl_training(backend, DataBuffer(PROMPTS), score_fn, config(backend))

    assert [entry["step"] for entry in history] == list(range(40))
    assert set(history[0]) == {"step", "loss", "mean_reward"}
    assert backend.version == 40
    assert [name for name, _, step in rl_loop.logged if step == 3] == [
        *("score/correct", "score/num_turns") * 5
    ]


async def test_our_loop_is_called_in_the_same_way_and_improves_the_policy(
    rl_loop: ModuleType,
) -> None:
    backend = TablePolicy()
    logged: list[tuple[str, float, int]] = []

    history = await run_rl_training(
        backend,
        DataBuffer(PROMPTS),
        score_fn,
        config(backend, num_steps=20),
        log_metric=lambda name, value, *, step: logged.append((name, value, step)),
    )

    assert {"step", "loss", "mean_reward"} <= set(history[0])
    assert history[-1]["mean_reward"] > 0.9 > 0.5 > history[0]["mean_reward"]
    assert {name for name, _, _ in logged} >= {"score/correct", "score/num_turns"}
    seeds = list(inspect.signature(rl_loop.run_rl_training).parameters)
    assert list(inspect.signature(run_rl_training).parameters)[: len(seeds)] == seeds


@in_jumping_time
async def test_the_loop_of_the_specification_runs_with_a_model_that_fails_now_and_then(
    rl_loop: ModuleType, anyio_backend: Any
) -> None:
    backend, calls, scored = TablePolicy(rate=0.3), Counter[str](), []

    async def fail_sometimes(messages: Any) -> Any:
        calls[question := messages[0].content] += 1
        if calls[question] % 2:  # the first try of each rollout, in whichever order they run
            raise OSError("the server is gone")
        return await backend.endpoint(messages)

    def record(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
        scored.append((trajectory.messages[0].content, sample.input["prompt"], trajectory.tokens))
        return score_fn(trajectory, sample)

    settings = config(backend, num_steps=4, endpoint=fail_sometimes, max_concurrent=1)
    history = await rl_loop.run_rl_training(backend, DataBuffer(PROMPTS), record, settings)

    assert [entry["step"] for entry in history] == [0, 1, 2, 3]
    assert all(asked == prompt and tokens for asked, prompt, tokens in scored)
    assert len(scored) == 20


@in_jumping_time
async def test_the_loop_of_the_specification_neither_scores_nor_trains_on_a_failed_rollout(
    rl_loop: ModuleType, anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    backend, scored = TablePolicy(), []

    async def fail_on_two(messages: Any) -> Any:
        if messages[-1].content == "2+1":
            raise OSError("the server is gone")
        return await backend.endpoint(messages)

    def brevity(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
        scored.append(sample.input["prompt"])
        return Score(1.0 / (1 + len(trajectory.messages[-1].content)))

    with pytest.raises(RolloutError, match=r"the server is gone.*1 of 5 failed.*`score_fn`"):
        await rl_loop.run_rl_training(
            backend, DataBuffer(PROMPTS), brevity, config(backend, endpoint=fail_on_two)
        )

    assert "2+1" not in scored
    assert backend.version == 0
    assert "1 of 5 rollouts failed" in caplog.text


def by_type(t: Trajectory[Any], s: Sample[Any, Any]) -> Score:
    return score_fn(t, s)


async def test_a_score_function_is_recognised_by_its_annotations(rl_loop: ModuleType) -> None:
    backend = TablePolicy()

    (entry,) = await run_rl_training(
        backend, DataBuffer(PROMPTS), by_type, config(backend, num_steps=1)
    )

    assert entry["failed"] == 0
    assert entry["loss"] is not None
