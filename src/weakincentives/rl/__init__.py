"""From rewards to a better policy: rollouts in groups, advantages, a buffer, a training loop."""

from typing import TYPE_CHECKING

from .._lazy import lazily as _lazily

if TYPE_CHECKING:
    from ._advantages import (
        compute_dr_grpo_advantages,
        compute_grpo_advantages,
        compute_rloo_advantages,
        compute_turn_advantages,
    )
    from ._buffer import DataBuffer
    from ._groups import (
        RolloutGroup,
        drop_stale,
        drop_unscored,
        drop_zero_spread,
        keep_groups,
    )
    from ._rollouts import Rollouts, generate_rollouts, rollout_random
    from ._scoring import group_scorer
    from ._torch import PyTorchTrainingBackend, PyTorchTrainingConfig
    from ._training import RLTrainingConfig, TrainingBackend, run_rl_training

__all__ = [
    "DataBuffer",
    "PyTorchTrainingBackend",
    "PyTorchTrainingConfig",
    "RLTrainingConfig",
    "RolloutGroup",
    "Rollouts",
    "TrainingBackend",
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

# PyTorch is there for those who train with it; advantages need nothing at all.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        **dict.fromkeys(
            (
                "compute_dr_grpo_advantages",
                "compute_grpo_advantages",
                "compute_rloo_advantages",
                "compute_turn_advantages",
            ),
            "._advantages",
        ),
        "DataBuffer": "._buffer",
        **dict.fromkeys(
            ("RolloutGroup", "drop_stale", "drop_unscored", "drop_zero_spread", "keep_groups"),
            "._groups",
        ),
        **dict.fromkeys(("Rollouts", "generate_rollouts", "rollout_random"), "._rollouts"),
        "group_scorer": "._scoring",
        **dict.fromkeys(("PyTorchTrainingBackend", "PyTorchTrainingConfig"), "._torch"),
        **dict.fromkeys(("RLTrainingConfig", "TrainingBackend", "run_rl_training"), "._training"),
    },
)
