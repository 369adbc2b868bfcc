"""One call of a model, as data: what every provider is asked, and what every provider answers.

A model is an async function from a request to a reply. Retrying, limiting and caching are
functions from a model to a model, so they compose around any of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._checks import plain_mapping
from ..chat import ChatMessage, TokenTrace, TokenUsage
from ..errors import UsageError, shown

__all__ = ["Model", "ModelReply", "ModelRequest", "ModelSettings", "ToolSpec"]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How to sample; None leaves the provider's own default.

    `extra` goes into the request body as it is, for what only one provider knows.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise UsageError(f"expected several texts for `stop`, got {shown(self.stop)}")
        object.__setattr__(self, "stop", tuple(self.stop))
        object.__setattr__(self, "extra", plain_mapping(self.extra, "ModelSettings.extra"))


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a provider sees it: its name, what it is for, the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model. `epoch` tells repeats apart: each is a new answer to a cache."""

    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_name: str = "output"
    output_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    settings: ModelSettings = field(default_factory=ModelSettings)
    epoch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """One answer. `latency_ms` is the provider's own time, without our waiting and retrying.

    `tokens` is what a trainer needs of it, where the provider gives it.
    """

    message: ChatMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    model: str | None = None
    latency_ms: float | None = None
    cached: bool = False
    tokens: TokenTrace | None = None


Model = Callable[[ModelRequest], Awaitable[ModelReply]]
