"""Reinforcement learning: groups of rollouts, advantages, a buffer, a training loop."""

from typing import TYPE_CHECKING

from ..internal.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from .advantages import (
        compute_dr_grpo_advantages,
        compute_grpo_advantages,
        compute_rloo_advantages,
        compute_turn_advantages,
    )
    from .buffer import DataBuffer
    from .groups import RolloutGroup, drop_stale, drop_unscored, drop_zero_spread, keep_groups
    from .rollouts import Rollouts, branch_rollouts, generate_rollouts, rollout_random
    from .scoring import group_scorer
    from .torch_backend import PyTorchTrainingBackend, PyTorchTrainingConfig
    from .training import RLTrainingConfig, TrainingBackend, run_rl_training

__all__ = [
    "DataBuffer",
    "PyTorchTrainingBackend",
    "PyTorchTrainingConfig",
    "RLTrainingConfig",
    "RolloutGroup",
    "Rollouts",
    "TrainingBackend",
    "branch_rollouts",
    "compute_dr_grpo_advantages",
    "compute_grpo_advantages",
    "compute_rloo_advantages",
    "compute_turn_advantages",
    "drop_stale",
    "drop_unscored",
    "drop_zero_spread",
    "generate_rollouts",
    "group_scorer",
    "keep_groups",
    "rollout_random",
    "run_rl_training",
]

# Lazy, so that advantages can be used without PyTorch.
__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        ".advantages": "compute_dr_grpo_advantages compute_grpo_advantages compute_rloo_advantages "
        "compute_turn_advantages",
        ".buffer": "DataBuffer",
        ".groups": "RolloutGroup drop_stale drop_unscored drop_zero_spread keep_groups",
        ".rollouts": "Rollouts branch_rollouts generate_rollouts rollout_random",
        ".scoring": "group_scorer",
        ".torch_backend": "PyTorchTrainingBackend PyTorchTrainingConfig",
        ".training": "RLTrainingConfig TrainingBackend run_rl_training",
    },
)
