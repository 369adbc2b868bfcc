"""Our endpoints inside OpenAI's simple-evals: a sampler for its evals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..chat import ChatMessage
from ..internal.event_loop import run_sync
from ..rollouts import endpoint_of, run_agent


@dataclass(frozen=True, slots=True)
class SamplerResponse:
    """The return value of a sampler of simple-evals."""

    response_text: str
    actual_queried_message_list: list[dict[str, Any]]
    response_metadata: dict[str, Any] = field(default_factory=dict)


class Sampler:
    """A sampler for the evals of simple-evals that asks one of our endpoints.

    `MMLUEval(num_examples=10)(Sampler("openai/gpt-4o"))`. Errors of the endpoint propagate: they
    are never graded as answers.
    """

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint_of(endpoint)

    def __call__(self, message_list: Sequence[Mapping[str, Any]]) -> SamplerResponse:
        messages = [ChatMessage(each["role"], str(each["content"])) for each in message_list]
        left = run_sync(run_agent, messages, None, self._endpoint)
        usage = left.usage
        counted = {} if usage is None else {"usage": usage}
        return SamplerResponse(str(left.output), [dict(each) for each in message_list], counted)

    def _pack_message(self, role: str, content: Any) -> dict[str, Any]:
        """Return a message as its evals build them."""
        return {"role": role, "content": content}
