"""Shared settings of the maths evals; an experiment overrides its own."""

from __future__ import annotations

from typing import Any

from solver import solve

from weakincentives.chat import ChatMessage
from weakincentives.evals import EvalConfig, Sample

config = EvalConfig(endpoint=solve, max_concurrent=4, timeout_per_sample_ms=60_000)


def prepare_messages(sample: Sample[Any, str]) -> list[ChatMessage]:
    """Return the problem, with the required form of the answer."""
    form = r"Put your final answer in \boxed{}."
    return [ChatMessage("user", f"{sample.input['problem']}\n\n{form}")]
