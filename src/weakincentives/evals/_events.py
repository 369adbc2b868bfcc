"""What a run tells its bus: that it began, each result, that it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._report import EvalResult

__all__ = ["EvalRunCompleted", "EvalRunStarted", "SampleEvaluated"]


@dataclass(frozen=True, slots=True)
class EvalRunStarted:
    """A run begins. `sample_count` is None where samples come one by one, nobody knows how many."""

    run_id: str
    dataset_name: str = ""
    sample_count: int | None = None


@dataclass(frozen=True, slots=True)
class SampleEvaluated:
    """One attempt has its result."""

    run_id: str
    result: EvalResult[Any]


@dataclass(frozen=True, slots=True)
class EvalRunCompleted:
    """A run has ended, and this came of it."""

    run_id: str
    pass_rate: float
    mean_score: float
    total_tokens: int
