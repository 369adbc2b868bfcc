"""A policy in NumPy, as a training backend: a softmax table, one row per question."""

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
    """Return whether the answer is the sum."""
    return bool(trajectory.messages[-1].content == sample.expected)


class TablePolicy:
    """Answers at random at first, and learns by the policy gradient of its answers."""

    def __init__(self, rate: float = 1.0) -> None:
        self.logits = np.zeros((len(SUMS), ANSWERS))
        self.rate = rate
        self.version = 0

    def probabilities(self, row: int) -> Any:
        raised = np.exp(self.logits[row] - self.logits[row].max())
        return raised / raised.sum()

    async def endpoint(self, messages: Sequence[ChatMessage]) -> ModelReply:
        a, b = map(int, messages[-1].content.split("+"))
        probabilities = self.probabilities(5 * a + b)
        answer = int(
            np.searchsorted(probabilities.cumsum(), rollout_random().random() * probabilities.sum())
        )
        return ModelReply(
            message=ChatMessage("assistant", str(answer)),
            tokens=TokenTrace(
                (5 * a + b,),
                (answer,),
                (float(np.log(probabilities[answer])),),
                (),
                str(self.version),
            ),
        )

    def train_step(self, trajectories: Sequence[Trajectory[Any]], advantages: Any) -> float:
        loss, gradient = 0.0, np.zeros_like(self.logits)
        for trajectory, advantage in zip(trajectories, advantages, strict=True):
            for trace in trajectory.tokens:
                ((row,), (answer,)) = (trace.prompt_ids, trace.ids)
                probabilities = self.probabilities(row)
                gradient[row] += (
                    advantage * (np.arange(ANSWERS) == answer) - advantage * probabilities
                )
                loss -= advantage * float(np.log(probabilities[answer]))
        self.logits += self.rate * gradient
        self.version += 1
        return loss / len(trajectories)

    def state_dict(self) -> dict[str, Any]:
        return {"logits": self.logits, "version": self.version}

    def load_state_dict(self, state: Any) -> None:
        self.logits, self.version = np.array(state["logits"]), state["version"]
