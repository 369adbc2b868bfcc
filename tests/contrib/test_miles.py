"""Evaluators as reward models of miles, tested without the miles package."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import anyio
import pytest

from weakincentives.contrib.miles import miles_data_source, miles_reward, miles_sample
from weakincentives.errors import UsageError
from weakincentives.evals import EvalResult, Metric, Sample, Score, Trajectory


class Status(Enum):
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass
class MilesSample:
    """The fields of a sample of miles that a reward model reads and sets."""

    response: str
    prompt: Any = "2 + 2?"
    label: str | None = "4"
    index: int = 3
    status: Status = Status.COMPLETED
    remove_sample: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


def judge(trajectory: Trajectory[str], sample: Sample[Any, Any]) -> Score:
    if trajectory.output == "?":
        raise LookupError("unreadable")
    right = trajectory.output == sample.expected
    return Score(
        metrics=[Metric("right", right, weight=2), Metric("turns", len(trajectory.messages))]
    )


def test_the_reward_has_the_score_and_each_metric() -> None:
    reward = miles_reward(judge)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]

    assert anyio.run(reward, None, MilesSample("4")) == {
        "score": 1.0,
        "metric/right": 1.0,
        "metric/turns": 2.0,
    }
    many: Any = anyio.run(reward, None, [MilesSample("5"), MilesSample("4", prompt=chat)])
    assert [(each["score"], each["metric/turns"]) for each in many] == [(0.0, 2.0), (1.0, 3.0)]
    assert reward.__name__ == "judge"


def test_a_failure_is_marked_and_reported() -> None:
    failed_ids: list[str] = []
    reward = miles_reward(judge, failed=-1.0, on_failure=lambda id, error: failed_ids.append(id))
    sample = MilesSample("?", metadata={"sample_id": "s7", "tensor": object()})

    assert anyio.run(reward, None, sample) == {"score": -1.0}
    assert (sample.status, sample.remove_sample, failed_ids) == (Status.FAILED, True, ["s7"])
    assert "unreadable" in sample.metadata["reward_error"]


def test_without_the_package_the_error_has_the_install_command() -> None:
    result: EvalResult[str] = EvalResult("s", Score(1.0), 0, sample=Sample("s", "?"))
    for call in (lambda: miles_data_source(lambda args: None), lambda: miles_sample(result)):
        with pytest.raises(UsageError, match="--no-deps miles-rl"):
            call()
