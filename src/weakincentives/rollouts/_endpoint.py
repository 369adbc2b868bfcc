"""Who answers: a model's name, an `Endpoint`, an adapter, or a function of messages.

All four become an adapter, once; a conversation only talks to it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .._checks import whole_or_none
from ..adapters import AsyncProviderAdapter, ModelAdapter, ProviderAdapter, adapter_for
from ..adapters._model import ModelReply, ModelRequest, ModelSettings
from ..adapters._names import split_name
from ..chat import ChatMessage
from ..errors import ProviderError, UsageError, shown
from ._environment import called

__all__ = ["Adapter", "Endpoint", "endpoint_of"]

Adapter = ModelAdapter[Any] | ProviderAdapter[Any] | AsyncProviderAdapter[Any]

_SECRETS = {"accesstoken", "apikey", "authorization", "key", "password", "secret", "token"}
_NO_WORD = re.compile(r"^x-|[-_ ]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model and how to ask it, as data without a secret: keys stay in environment variables.

    With a `base_url`, a name without a known provider is that of a model on an OpenAI-compatible
    server. `timeout` is in seconds for one call; None leaves the provider's own defaults.

    >>> str(Endpoint("openai/gpt-4o", temperature=0.2, stop=["END"]))
    "openai/gpt-4o (temperature=0.2, stop=('END',))"
    """

    model: str
    base_url: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    max_turns: int = 20
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise UsageError(f"expected a model's name for `Endpoint.model`, got {self.model!r}")
        for name, least in (("max_tokens", 1), ("seed", -(2**63)), ("max_turns", 1)):
            whole_or_none(self, name, least=least)
        if self.max_turns is None:
            raise UsageError("expected a whole number >= 1 for `Endpoint.max_turns`, got None")
        for name in ("temperature", "top_p", "timeout"):
            _check_number(self, name)
        settings = self.settings  # checks and copies the other two
        object.__setattr__(self, "stop", settings.stop)
        object.__setattr__(self, "extra", settings.extra)
        self._refuse_secrets()

    @property
    def settings(self) -> ModelSettings:
        """How to sample."""
        names = (each.name for each in fields(ModelSettings))
        return ModelSettings(**{name: getattr(self, name) for name in names})

    def __str__(self) -> str:
        place = f" at {self.base_url}" if self.base_url else ""
        said = ", ".join(
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if each.name not in ("model", "base_url")
            and getattr(self, each.name) not in (each.default, {})
        )
        return f"{self.model}{place}{f' ({said})' if said else ''}"

    def _refuse_secrets(self) -> None:
        """An endpoint is written to manifests and pages as it is."""
        if not isinstance(self.base_url, str | None):
            raise UsageError(f"expected a `str` for `base_url`, got {shown(self.base_url)}")
        url = urlsplit(self.base_url or "")
        names = [*_names(self.extra), *(name for name, _ in parse_qsl(url.query))]
        found = [name for name in names if _NO_WORD.sub("", name.lower()) in _SECRETS]
        if found or url.username or url.password:
            what = f"`{found[0]}`" if found else "a user or a password in `base_url`"
            raise UsageError(
                f"expected no secret in an `Endpoint`, got {what} - set the key in the provider's "
                "environment variable, such as OPENAI_API_KEY"
            )


def _names(data: Any) -> Iterator[str]:
    """Every name of a text in plain data, at any depth: a schema may well have a field `key`."""
    if isinstance(data, Mapping):
        yield from (str(name) for name, value in data.items() if isinstance(value, str))
        data = [*data.values()]
    if isinstance(data, list | tuple):
        for each in data:
            yield from _names(each)


def _check_number(owner: object, name: str) -> None:
    value = getattr(owner, name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UsageError(f"expected a finite `Endpoint.{name}` >= 0, got {shown(value)}")


def endpoint_of(given: Any) -> Adapter:
    """The adapter for whatever names one; what is an adapter already stays itself.

    A function takes the messages and returns the assistant's: a text, a `ChatMessage`, or a
    `ModelReply` with usage and tokens. A synchronous one runs in a thread.
    """
    if isinstance(given, str):
        given = Endpoint(given)
    if isinstance(given, Endpoint):
        return _adapter_at(given)
    if not isinstance(given, type):
        if isinstance(given, ModelAdapter | ProviderAdapter | AsyncProviderAdapter):
            return given
        if callable(given):
            return _function_adapter(given)
    raise UsageError(
        f"expected an endpoint, got {shown(given)} - pass a model's name (`openai/gpt-4o`), an "
        "Endpoint(...), an adapter, or an async function of messages"
    )


def _adapter_at(endpoint: Endpoint) -> ModelAdapter[Any]:
    name = endpoint.model
    if endpoint.base_url is not None:
        try:
            split_name(name)
        except UsageError:
            name = f"http/{name}"
    options = {"base_url": endpoint.base_url, "timeout": endpoint.timeout}
    given = {key: value for key, value in options.items() if value is not None}
    try:
        return adapter_for(name, settings=endpoint.settings, max_turns=endpoint.max_turns, **given)
    except TypeError as error:  # the demo's models are nowhere, and take no time
        raise UsageError(f"expected options that `{name}` has, got: {error}") from None


def _function_adapter(fn: Callable[..., Any]) -> ModelAdapter[Any]:
    who = getattr(fn, "__name__", type(fn).__name__)
    try:
        inspect.signature(fn).bind([])
    except TypeError as error:
        raise UsageError(
            f"expected a function of the messages as endpoint, got `{who}`: {error}"
        ) from None
    except ValueError:  # no signature to be seen
        pass

    async def ask(request: ModelRequest) -> ModelReply:
        said = await called(fn, list(request.messages))
        if isinstance(said, ModelReply):
            return said
        if isinstance(said, str):
            said = ChatMessage("assistant", said)
        if not isinstance(said, ChatMessage) or said.role != "assistant":
            raise ProviderError(
                f"expected a text or an assistant's `ChatMessage` from `{who}`, got {shown(said)}"
            )
        return ModelReply(message=said, finish_reason="tool_calls" if said.tool_calls else "stop")

    return ModelAdapter(ask=ask, model=who, name="function")
