"""A policy in NumPy, as a training backend: a softmax table, one row a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weakincentives.adapters import ModelReply
from weakincentives.chat import ChatMessage, TokenTrace
from weakincentives.evals import Sample, Trajectory
from weakincentives.rl import rollout_random

__all__ = ["ANSWERS", "SUMS", "TablePolicy", "right_sum"]

SUMS = [
    Sample(f"{a}+{b}", f"{a}+{b}", str(a + b), {"row": 5 * a + b})
    for a in range(5)
    for b in range(5)
]
ANSWERS = 9  # 0 to 8


def right_sum(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> bool:
    """Whether the answer is the sum."""
    return bool(trajectory.messages[-1].content == sample.expected)


class TablePolicy:
    """Answers by chance at first, and learns by the policy gradient of what it said."""

    def __init__(self, rate: float = 1.0) -> None:
        self.logits = np.zeros((len(SUMS), ANSWERS))
        self.rate = rate
        self.version = 0

    def chances(self, row: int) -> Any:
        raised = np.exp(self.logits[row] - self.logits[row].max())
        return raised / raised.sum()

    async def endpoint(self, messages: Sequence[ChatMessage]) -> ModelReply:
        a, b = map(int, messages[-1].content.split("+"))
        chances = self.chances(5 * a + b)
        said = int(np.searchsorted(chances.cumsum(), rollout_random().random() * chances.sum()))
        return ModelReply(
            message=ChatMessage("assistant", str(said)),
            tokens=TokenTrace(
                (5 * a + b,), (said,), (float(np.log(chances[said])),), (), str(self.version)
            ),
        )

    def train_step(self, trajectories: Sequence[Trajectory[Any]], advantages: Any) -> float:
        loss, gradient = 0.0, np.zeros_like(self.logits)
        for trajectory, advantage in zip(trajectories, advantages, strict=True):
            for trace in trajectory.tokens:
                ((row,), (said,)) = (trace.prompt_ids, trace.ids)
                chances = self.chances(row)
                gradient[row] += advantage * (np.arange(ANSWERS) == said) - advantage * chances
                loss -= advantage * float(np.log(chances[said]))
        self.logits += self.rate * gradient
        self.version += 1
        return loss / len(trajectories)

    def state_dict(self) -> dict[str, Any]:
        return {"logits": self.logits, "version": self.version}

    def load_state_dict(self, state: Any) -> None:
        self.logits, self.version = np.array(state["logits"]), state["version"]
