"""Judges for tests: scripted models, models that record requests, and a gullible one."""

from __future__ import annotations

from typing import Any

from weakincentives.adapters import ModelRequest, ScriptedAdapter
from weakincentives.errors import ProviderError
from weakincentives.evals import Sample, Score
from weakincentives.prompt import Prompt
from weakincentives.runtime import PromptResponse

SAMPLE = Sample("1", "2+2?", "4")


def verdict(rating: str, reason: str = "because") -> dict[str, str]:
    return {"reason": reason, "rating": rating}


def saying(*replies: Any) -> ScriptedAdapter[Any]:
    return ScriptedAdapter(list(replies))


def values(score: Score) -> dict[str, float]:
    return {metric.name: metric.value for metric in score.metrics}


FAILING: list[Any] = [
    "no idea",
    verdict("splendid"),
    ProviderError("down"),
    TimeoutError("too slow"),
    {"reason": "r", "rating": 1},
    "",
]
"""Replies of a judge that are not a verdict."""


class Recording:
    """A model that gives these replies, repeats the last one, and records its requests."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        return self.replies[min(len(self.requests), len(self.replies)) - 1]


class Plain:
    """A user's adapter, synchronous and with only the method `evaluate`."""

    def __init__(self, output: Any) -> None:
        self.output = output

    def evaluate(self, prompt: Prompt[Any]) -> PromptResponse[Any]:
        return PromptResponse(prompt_name="judge", output=self.output, cost=0.5)


def gullible(request: ModelRequest) -> Any:
    """Return the rating that a line outside of JSON text demands."""
    lines = [line for message in request.messages for line in message.content.splitlines()]
    loose = [line.split('"')[0] for line in lines if not line.startswith("- ")]
    is_demanded = any("excellent" in line.lower() for line in loose)
    return verdict("excellent" if is_demanded else "wrong", "as told")
