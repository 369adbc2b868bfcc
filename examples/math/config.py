"""What the maths evals share; an experiment replaces what is its own."""

from __future__ import annotations

from typing import Any

from solver import solve

from weakincentives.chat import ChatMessage
from weakincentives.evals import EvalConfig, Sample

config = EvalConfig(endpoint=solve, max_concurrent=4, timeout_per_sample_ms=60_000)


def prepare_messages(sample: Sample[Any, str]) -> list[ChatMessage]:
    """The problem, and the form that the answer must have."""
    form = r"Put your final answer in \boxed{}."
    return [ChatMessage("user", f"{sample.input['problem']}\n\n{form}")]
