"""Prices of tokens, for estimates of the cost.

Prices change, and a table in a package is outdated when it is published: these are standard list
prices as of autumn 2026 (no batch, no priority, no surcharge for long prompts, no price of writing
to a cache), for an estimate and not for a bill. Pass your own if it matters:

    OpenAIAdapter("my-model", prices={**PRICES, "my-model": Price(1.0, 0.1, 4.0)})
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..chat import TokenUsage
from ..internal.checks import check_number


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. `cached_input` is for input that the provider had cached."""

    input: float
    cached_input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "cached_input", "output"):
            check_number(getattr(self, name), f"Price.{name}", unit="dollars", least=0)


# Only prices that several public sources agreed on. No cost is better than a wrong one.
PRICES: Mapping[str, Price] = MappingProxyType(
    {
        "gpt-6.1-sol": Price(2.00, 0.10, 10.00),
        "gpt-6-sol": Price(2.00, 0.20, 10.00),
        "gpt-6-luna": Price(0.10, 0.01, 0.50),
        "gpt-4.1": Price(2.00, 0.50, 8.00),
        "gpt-4.1-mini": Price(0.40, 0.10, 1.60),
        "gpt-4o": Price(2.50, 1.25, 10.00),
        "gpt-4o-mini": Price(0.15, 0.075, 0.60),
        "claude-opus-4-7": Price(5.00, 0.50, 25.00),
        "claude-opus-4-6": Price(5.00, 0.50, 25.00),
        "claude-opus-4-5": Price(5.00, 0.50, 25.00),
        "claude-sonnet-5-5": Price(2.00, 0.20, 10.00),
        "claude-sonnet-5": Price(2.00, 0.20, 10.00),
        "claude-sonnet-4-6": Price(3.00, 0.30, 15.00),
        "claude-sonnet-4-5": Price(3.00, 0.30, 15.00),
        "claude-haiku-4-5": Price(1.00, 0.10, 5.00),
    }
)

# A suffix that does not make it another model: a date, or `latest`.
_SNAPSHOT = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)")


def price_of(model: str, usage: TokenUsage, prices: Mapping[str, Price] = PRICES) -> float | None:
    """Return the cost of the tokens in US dollars; None if no key of `prices` matches the model.

    A key matches its own name and dated snapshots of it; a key that ends in `-`, `/` or `:` matches
    every name that starts with it. The longest match counts.

    >>> price_of("gpt-4o-2024-08-06", TokenUsage(1_000_000, 0))
    2.5
    >>> price_of("gpt-4o-audio-preview", TokenUsage(1_000_000, 0)) is None
    True
    """
    key = max((key for key in prices if _matches(key, model)), key=len, default=None)
    if key is None:
        return None
    price = prices[key]
    sent, received = usage.input_tokens or 0, usage.output_tokens or 0
    cached = min(usage.cached_tokens or 0, sent)
    dollars = (sent - cached) * price.input + cached * price.cached_input + received * price.output
    return dollars / 1_000_000


def _matches(key: str, model: str) -> bool:
    if not key or not model.startswith(key):
        return False
    rest = model[len(key) :]
    return not rest or key[-1] in "-/:" or _SNAPSHOT.fullmatch(rest) is not None
