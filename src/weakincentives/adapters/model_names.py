"""From a model's name to its adapter: `openai/gpt-4o`, `anthropic:claude-opus-5`, or `gpt-4o`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import UsageError, short_repr
from .adapter import ModelAdapter
from .anthropic import AnthropicAdapter
from .demo import DemoAdapter
from .http import HTTPAdapter
from .model import ModelSettings
from .openai import OpenAIAdapter
from .prices import Price


def _at(base_url: str) -> Callable[..., ModelAdapter[Any]]:
    """Return a constructor for a local server at its default address, which needs no key."""
    return partial(HTTPAdapter, base_url=base_url, key_variable=None)


PROVIDERS: dict[str, Callable[..., ModelAdapter[Any]]] = {
    "anthropic": AnthropicAdapter,
    "demo": DemoAdapter,
    "http": HTTPAdapter,
    "ollama": _at("http://127.0.0.1:11434/v1"),
    "openai": OpenAIAdapter,
    "vllm": _at("http://127.0.0.1:8000/v1"),
}
"""The constructor of the adapter, by provider; called with the model and the options."""

WELL_KNOWN: dict[str, str] = {
    "claude-": "anthropic",
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
}
"""The provider by the prefix of a model's name; a prefix without a dash must be a whole word."""


def adapter_for(
    name: str,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    top_p: float | None = None,
    stop: Sequence[str] | None = None,
    seed: int | None = None,
    extra: Mapping[str, Any] | None = None,
    settings: ModelSettings | None = None,
    base_url: str | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    max_turns: int | None = None,
    stream: bool | None = None,
    prices: Mapping[str, Price] | None = None,
) -> ModelAdapter[Any]:
    """Return the adapter for a model's name. None leaves the provider's default.

    The sampling settings may also be given as `settings`; those that are named win. `max_tokens` is
    for one reply, `timeout` is in seconds for one call. Failed calls are retried `retries` times
    (5), if another attempt may succeed.

    >>> adapter_for("openai/gpt-4o", temperature=0, seed=7)
    <OpenAIAdapter openai/gpt-4o (temperature=0, seed=7)>
    """
    provider, model = split_name(name)
    sampling = {
        "temperature": temperature,
        "max_tokens": max_tokens,
        "top_p": top_p,
        "stop": stop,
        "seed": seed,
        "extra": extra,
    }
    if changes := _given(sampling):
        settings = replace(settings or ModelSettings(), **changes)
    options = _given(
        {
            "settings": settings,
            "base_url": base_url,
            "timeout": timeout,
            "retries": retries,
            "max_turns": max_turns,
            "stream": stream,
            "prices": prices,
        }
    )
    make = PROVIDERS[provider]
    try:
        inspect.signature(make).bind(model, **options)
    except TypeError as error:  # such as `base_url` for the demo's models, which have no server
        raise UsageError(f"expected options that `{name}` has, got: {error}") from None
    return make(model, **options)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def split_name(name: str) -> tuple[str, str]:
    """Return provider and model. The model's own name may contain `/` and `:`."""
    if not isinstance(name, str):
        raise UsageError(f"expected a model's name as `provider/model`, got {short_repr(name)}")
    full = name.strip()
    prefix, separator, model = re.fullmatch(r"(?s)([^/:]*)([/:]?)(.*)", full).groups()  # type: ignore[union-attr]
    provider = prefix.lower()
    if separator and provider in PROVIDERS:
        if not model:
            raise UsageError(
                f"expected a model after `{prefix}{separator}`, got {short_repr(name)}"
            )
        return provider, model
    for start, owner in WELL_KNOWN.items():
        rest = full.removeprefix(start)
        if full.startswith(start) and (start[-1] == "-" or not rest or rest[0] in "-:"):
            return owner, full
    close = get_close_matches(provider, PROVIDERS, n=1)
    hint = f"did you mean `{close[0]}{separator or '/'}{model or '...'}`? " if close else ""
    raise UsageError(f"expected a known model, got {short_repr(name)} - {hint}{_known()}")


def _known() -> str:
    providers = ", ".join(f"`{name}/...`" for name in sorted(PROVIDERS))
    prefixes = ", ".join(f"`{prefix}...`" for prefix in sorted(WELL_KNOWN))
    return f"known: {providers}; without a provider: {prefixes}"
