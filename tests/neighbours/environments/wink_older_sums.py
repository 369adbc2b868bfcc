"""An environment of the older stack of verifiers (0.3) for the tests."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from datasets import Dataset


def correct(completion: Any, answer: str) -> float:
    if "boom" in completion[-1]["content"]:
        raise ValueError("scorer broke")
    return float(completion[-1]["content"] == answer)


def words(completion: Any) -> float:
    return float(len(completion[-1]["content"].split()))


def load_environment(rubric: Any = None) -> vf.Environment:
    rows = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(4)]
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows),
        rubric=rubric or vf.Rubric(funcs=[correct, words], weights=[0.5, 0.0]),
    )
