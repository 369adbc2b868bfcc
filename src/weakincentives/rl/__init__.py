"""Reinforcement learning: groups of rollouts, advantages, a buffer, a training loop."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .advantages import (
        compute_dr_grpo_advantages as compute_dr_grpo_advantages,
        compute_grpo_advantages as compute_grpo_advantages,
        compute_rloo_advantages as compute_rloo_advantages,
        compute_turn_advantages as compute_turn_advantages,
    )
    from .buffer import DataBuffer as DataBuffer
    from .groups import (
        RolloutGroup as RolloutGroup,
        drop_stale as drop_stale,
        drop_unscored as drop_unscored,
        drop_zero_spread as drop_zero_spread,
        keep_groups as keep_groups,
    )
    from .rollouts import (
        Rollouts as Rollouts,
        branch_rollouts as branch_rollouts,
        generate_rollouts as generate_rollouts,
        rollout_random as rollout_random,
    )
    from .scoring import group_scorer as group_scorer
    from .torch_backend import (
        PyTorchTrainingBackend as PyTorchTrainingBackend,
        PyTorchTrainingConfig as PyTorchTrainingConfig,
    )
    from .training import (
        RLTrainingConfig as RLTrainingConfig,
        TrainingBackend as TrainingBackend,
        run_rl_training as run_rl_training,
    )
else:
    from ..internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
