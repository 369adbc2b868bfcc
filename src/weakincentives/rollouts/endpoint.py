"""Endpoints: a model's name, an `Endpoint`, an adapter, or a function of messages.

All four are converted to an adapter, once, before a conversation starts.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ..adapters import AsyncProviderAdapter, ModelAdapter, ProviderAdapter, adapter_for
from ..adapters.model import ModelReply, ModelRequest, ModelSettings, check_model_name
from ..adapters.model_names import split_name
from ..chat import ChatMessage
from ..errors import ProviderError, UsageError, short_repr
from ..internal.checks import check_number, whole_or_none
from .environment import call_user_function

Adapter = ModelAdapter[Any] | ProviderAdapter[Any] | AsyncProviderAdapter[Any]

_SECRETS = {"accesstoken", "apikey", "authorization", "key", "password", "secret", "token"}
_SEPARATORS = re.compile(r"^x-|[-_ ]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model and its settings, as data without a secret: keys stay in environment variables.

    With a `base_url`, a name without a known provider is that of a model on an OpenAI-compatible
    server. `timeout` is in seconds for one call, and a failed call is retried `retries` times; None
    leaves the provider's defaults.

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
    retries: int | None = None

    def __post_init__(self) -> None:
        check_model_name(self.model, "Endpoint.model")
        whole = {"max_tokens": 1, "seed": -(2**63), "max_turns": 1, "retries": 0}
        for name, least in whole.items():
            whole_or_none(self, name, least=least)
        if self.max_turns is None:
            raise UsageError("expected a whole number >= 1 for `Endpoint.max_turns`, got None")
        for name in ("temperature", "top_p", "timeout"):
            if (value := getattr(self, name)) is not None:
                check_number(value, f"Endpoint.{name}", least=0)
        settings = self.settings  # checks and copies the other two
        object.__setattr__(self, "stop", settings.stop)
        object.__setattr__(self, "extra", settings.extra)
        self._refuse_secrets()

    @property
    def settings(self) -> ModelSettings:
        """The sampling settings."""
        names = (each.name for each in fields(ModelSettings))
        return ModelSettings(**{name: getattr(self, name) for name in names})

    def __str__(self) -> str:
        address = f" at {self.base_url}" if self.base_url else ""
        settings = ", ".join(
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if each.name not in ("model", "base_url")
            and getattr(self, each.name) not in (each.default, {})
        )
        return f"{self.model}{address}{f' ({settings})' if settings else ''}"

    def _refuse_secrets(self) -> None:
        """Refuse secrets, since an endpoint is written to manifests and pages."""
        if not isinstance(self.base_url, str | None):
            raise UsageError(f"expected a `str` for `base_url`, got {short_repr(self.base_url)}")
        url = urlsplit(self.base_url or "")
        names = [*_names(self.extra), *(name for name, _ in parse_qsl(url.query))]
        secrets = [name for name in names if _SEPARATORS.sub("", name.lower()) in _SECRETS]
        if secrets or url.username or url.password:
            what = f"`{secrets[0]}`" if secrets else "a user or a password in `base_url`"
            raise UsageError(
                f"expected no secret in an `Endpoint`, got {what} - set the key in the provider's "
                "environment variable, such as OPENAI_API_KEY"
            )


def _names(data: Any) -> Iterator[str]:
    """Yield the names of texts in plain data, at any depth; a schema may have a field `key`."""
    if isinstance(data, Mapping):
        yield from (str(name) for name, value in data.items() if isinstance(value, str))
        data = [*data.values()]
    if isinstance(data, list | tuple):
        for item in data:
            yield from _names(item)


def endpoint_of(given: Any) -> Adapter:
    """Return the adapter for an endpoint; an adapter is returned unchanged.

    A function takes the messages and returns the assistant's: a text, a `ChatMessage`, or a
    `ModelReply` with usage and tokens. A synchronous function runs in a thread.
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
        f"expected an endpoint, got {short_repr(given)} - pass a model's name "
        "(`openai/gpt-4o`), an "
        "Endpoint(...), an adapter, or an async function of messages"
    )


def named_adapter(given: Any) -> Any:
    """Return the adapter of a model's name or an `Endpoint`; anything else unchanged."""
    return endpoint_of(given) if isinstance(given, str | Endpoint) else given


def _adapter_at(endpoint: Endpoint) -> ModelAdapter[Any]:
    name = endpoint.model
    if endpoint.base_url is not None:
        try:
            split_name(name)
        except UsageError:
            name = f"http/{name}"
    return adapter_for(
        name,
        settings=endpoint.settings,
        base_url=endpoint.base_url,
        timeout=endpoint.timeout,
        retries=endpoint.retries,
        max_turns=endpoint.max_turns,
    )


def _function_adapter(fn: Callable[..., Any]) -> ModelAdapter[Any]:
    name = getattr(fn, "__name__", type(fn).__name__)
    try:
        inspect.signature(fn).bind([])
    except TypeError as error:
        raise UsageError(
            f"expected a function of the messages as endpoint, got `{name}`: {error}"
        ) from None
    except ValueError:  # a built-in without a signature
        pass

    async def ask(request: ModelRequest) -> ModelReply:
        reply = await call_user_function(fn, list(request.messages))
        if isinstance(reply, ModelReply):
            return reply
        if isinstance(reply, str):
            reply = ChatMessage("assistant", reply)
        if not isinstance(reply, ChatMessage) or reply.role != "assistant":
            raise ProviderError(
                f"expected a text or an assistant's `ChatMessage` from `{name}`, got "
                f"{short_repr(reply)}"
            )
        return ModelReply(message=reply, finish_reason="tool_calls" if reply.tool_calls else "stop")

    return ModelAdapter(ask=ask, model=name, name="function")
