"""The proof without a GPU: a policy that guesses learns to add, through the engine of the evals."""

from __future__ import annotations

import anyio
import pytest

from tests.rl.policies import SUMS, TablePolicy
from weakincentives.evals import exact_match
from weakincentives.rl import (
    DataBuffer,
    RLTrainingConfig,
    compute_dr_grpo_advantages,
    run_rl_training,
)

# The other tests cover the same code, and measuring it here would double the time.
pytestmark = pytest.mark.no_cover


def mean_rewards(seed: int, backend: str = "asyncio", **config: object) -> list[float]:
    """Train for 80 steps with 5 questions of 8 rollouts each; return the mean reward per step."""
    settings = RLTrainingConfig(
        **{"num_steps": 80, "batch_size": 5, "group_size": 8, "seed": seed, **config}
    )
    training = (TablePolicy(rate=0.6), DataBuffer(SUMS, seed=seed), exact_match, settings)
    history = anyio.run(run_rl_training, *training, backend=backend)
    return [entry["mean_reward"] for entry in history]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_policy_that_guesses_learns_to_add(seed: int) -> None:
    rewards = mean_rewards(seed)

    # Over seeds: 0.24 to 0.36 at first, 0.97 to 0.99 at the end. A processor that rounds
    # differently draws differently, so the bars are far from both.
    assert sum(rewards[:20]) / 20 < 0.5
    assert sum(rewards[-20:]) / 20 >= 0.9


@pytest.mark.slow
def test_a_policy_with_negated_advantages_does_not_learn() -> None:
    """Check that the test above can fail."""
    rewards = mean_rewards(
        0,
        num_steps=40,
        advantages=lambda r, g: [-each for each in compute_dr_grpo_advantages(r, g)],
    )

    assert sum(rewards[-20:]) / 20 < 0.15


def test_learning_does_not_depend_on_concurrency() -> None:
    alone = mean_rewards(0, num_steps=6, max_concurrent=1)

    assert mean_rewards(0, num_steps=6, max_concurrent=40) == alone
    assert mean_rewards(0, "trio", num_steps=6) == alone
