"""From a model's name to its adapter: `openai/gpt-4o`, `anthropic:claude-opus-5`, or `gpt-4o`."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import UsageError, shown
from ._adapter import ModelAdapter
from .anthropic import AnthropicAdapter
from .demo import DemoAdapter
from .http import HTTPAdapter
from .openai import OpenAIAdapter

__all__ = ["PROVIDERS", "WELL_KNOWN", "adapter_for"]


def _at(base_url: str) -> Callable[..., ModelAdapter[Any]]:
    """A server of one's own at its usual address, which takes no key."""
    return partial(HTTPAdapter, base_url=base_url, key_variable=None)


PROVIDERS: dict[str, Callable[..., ModelAdapter[Any]]] = {
    "anthropic": AnthropicAdapter,
    "demo": DemoAdapter,
    "http": HTTPAdapter,
    "ollama": _at("http://127.0.0.1:11434/v1"),
    "openai": OpenAIAdapter,
    "vllm": _at("http://127.0.0.1:8000/v1"),
}
"""What makes an adapter, by the provider's name; called with the model and the options."""

WELL_KNOWN: dict[str, str] = {
    "claude-": "anthropic",
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
}
"""Whose a model is if its name begins so: as a whole word, where the beginning has no dash."""


def adapter_for(name: str, **options: Any) -> ModelAdapter[Any]:
    """The adapter for a model's name; the options go to it as they are.

    >>> adapter_for("openai/gpt-4o", base_url="http://127.0.0.1:8000/v1").model
    'gpt-4o'
    """
    provider, model = split_name(name)
    return PROVIDERS[provider](model, **options)


def split_name(name: str) -> tuple[str, str]:
    """Provider and model. The model's own name may hold `/` and `:` as well."""
    if not isinstance(name, str):
        raise UsageError(f"expected a model's name as `provider/model`, got {shown(name)}")
    given = name.strip()
    first, mark, model = _parts(given)
    provider = first.lower()
    if mark and provider in PROVIDERS:
        if not model:
            raise UsageError(f"expected a model after `{first}{mark}`, got {shown(name)}")
        return provider, model
    for start, owner in WELL_KNOWN.items():
        if given.startswith(start) and (start[-1] == "-" or _ends_a_word(given[len(start) :])):
            return owner, given
    close = get_close_matches(provider, PROVIDERS, n=1)
    meant = f"did you mean `{close[0]}{mark or '/'}{model or '...'}`? " if close else ""
    raise UsageError(f"expected a model that is known, got {shown(name)} - {meant}{_known()}")


def _parts(name: str) -> tuple[str, str, str]:
    """The name at its first `/` or `:`."""
    found = re.search(r"[/:]", name)
    at = found.start() if found else len(name)
    return name[:at], name[at : at + 1], name[at + 1 :]


def _ends_a_word(rest: str) -> bool:
    return not rest or rest[0] in "-:"


def _known() -> str:
    providers = ", ".join(f"`{each}/...`" for each in sorted(PROVIDERS))
    starts = ", ".join(f"`{each}...`" for each in sorted(WELL_KNOWN))
    return f"known: {providers}; without a provider: {starts}"
