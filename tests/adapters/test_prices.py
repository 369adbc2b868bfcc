"""What tokens cost."""

from __future__ import annotations

from typing import Any

import pytest

from weakincentives import TokenUsage
from weakincentives.adapters.prices import PRICES, Price, price_of
from weakincentives.errors import UsageError

MILLION = 1_000_000
OWN = {**PRICES, "my-model": Price(1, 0.5, 2), "lab/": Price(3, 3, 3), "": Price(9, 9, 9)}


def test_cached_tokens_have_a_price_of_their_own() -> None:
    usage = TokenUsage(2 * MILLION, MILLION, cached_tokens=MILLION)

    assert price_of("gpt-4o", usage) == pytest.approx(2.5 + 1.25 + 10)
    assert price_of("my-model", usage, OWN) == pytest.approx(1 + 0.5 + 2)


def test_usage_that_was_not_counted_costs_nothing() -> None:
    assert price_of("gpt-4o", TokenUsage()) == 0.0
    assert price_of("gpt-4o", TokenUsage(0, 0, cached_tokens=5)) == 0.0  # more than there was


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-sonnet-5", "claude-sonnet-5"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-haiku-4-5-latest", "claude-haiku-4-5"),
        ("claude-sonnet-5@20260901", "claude-sonnet-5"),
        ("lab/anything", "lab/"),
    ],
)
def test_the_longest_key_that_fits_counts(model: str, key: str) -> None:
    assert price_of(model, TokenUsage(MILLION, 0), OWN) == OWN[key].input


@pytest.mark.parametrize(
    "model", ["gpt-4o-audio-preview", "gpt-4", "claude-sonnet-5-9", "llama", ""]
)
def test_a_model_that_is_not_in_the_table_has_no_price(model: str) -> None:
    assert price_of(model, TokenUsage(1, 1), OWN) is None


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "1", None])
def test_a_price_is_a_number_of_dollars(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"expected dollars >= 0 for `Price.output`"):
        Price(1, 1, wrong)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        PRICES["x"] = Price(1, 1, 1)  # type: ignore[index]
