"""The events that a run publishes on its bus: start, each result, end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...internal.frozen import fast_init
from ...internal.wire_names import wire_name
from .result import EvalResult


@wire_name("wink:EvalRunStarted", "weakincentives.evals._events:EvalRunStarted")
@dataclass(frozen=True, slots=True)
class EvalRunStarted:
    """A run began. `sample_count` is None if the samples are a stream of unknown length."""

    run_id: str
    dataset_name: str = ""
    sample_count: int | None = None


@wire_name("wink:SampleEvaluated", "weakincentives.evals._events:SampleEvaluated")
@fast_init
@dataclass(frozen=True, slots=True)
class SampleEvaluated:
    """One attempt ended with this result."""

    run_id: str
    result: EvalResult[Any]


@wire_name("wink:EvalRunCompleted", "weakincentives.evals._events:EvalRunCompleted")
@dataclass(frozen=True, slots=True)
class EvalRunCompleted:
    """A run ended."""

    run_id: str
    pass_rate: float
    mean_score: float
    total_tokens: int
