"""One model call as data: the request and the reply, the same for every provider.

A model is an async function from a request to a reply. Retrying, limiting and caching are
functions from a model to a model, so they compose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..chat import ChatMessage, TokenTrace, TokenUsage
from ..errors import UsageError, short_repr
from ..internal.checks import check_number, plain_mapping, whole_or_none
from ..internal.frozen import fast_init


def check_model_name(name: Any, what: str = "model") -> None:
    """Raise UsageError unless this is a text that can name a model."""
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"expected a model's name for `{what}`, got {short_repr(name)}")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Sampling settings; None leaves the provider's default.

    `extra` is merged into the request body, for settings that only one provider has.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise UsageError(f"expected several texts for `stop`, got {short_repr(self.stop)}")
        object.__setattr__(self, "stop", tuple(self.stop))
        object.__setattr__(self, "extra", plain_mapping(self.extra, "ModelSettings.extra"))
        for name, least in (("max_tokens", 1), ("seed", -(2**63))):
            whole_or_none(self, name, least=least)
        for name in ("temperature", "top_p"):
            if (value := getattr(self, name)) is not None:
                check_number(value, name, least=0)

    def __str__(self) -> str:
        """Return the settings that are set: `temperature=0, seed=7`."""
        return ", ".join(
            f"{each.name}={value!r}"
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None and value not in ((), {})
        )


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is sent to a provider: name, description, JSON schema of the arguments."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(hash=False)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model. `epoch` distinguishes repeats, so that each is a new call to a cache."""

    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_name: str = "output"
    output_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    settings: ModelSettings = field(default_factory=ModelSettings)
    epoch: int = 1


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """One reply. `latency_ms` is the provider's time, without rate limiting and retries.

    `tokens` are the token ids and log-probabilities for training, if the provider returns them.
    """

    message: ChatMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    model: str | None = None
    latency_ms: float | None = None
    cached: bool = False
    tokens: TokenTrace | None = None


Model = Callable[[ModelRequest], Awaitable[ModelReply]]
