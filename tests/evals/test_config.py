"""`EvalConfig`: validation, storage and timeouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from weakincentives import serde
from weakincentives.adapters import DemoAdapter, ScriptedAdapter
from weakincentives.errors import UsageError
from weakincentives.evals import EvalConfig
from weakincentives.evals._types import config_of, endpoint_label
from weakincentives.rollouts import Endpoint


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_concurrent", 0, "expected a whole number >= 1 for `EvalConfig.max_concurrent`"),
        ("max_concurrent", None, "expected a whole number >= 1"),
        ("max_concurrent", True, "expected a whole number >= 1"),
        ("max_concurrent", 2.0, "expected a whole number >= 1"),
        ("timeout_per_sample_ms", 0, "expected a whole number >= 1"),
        ("max_retries", -1, "expected a whole number >= 0"),
        ("max_samples", -1, "expected a whole number >= 0"),
        ("epochs", 0, "expected a whole number >= 1"),
        ("seed", -1, "expected a whole number >= 0"),
        ("max_total_tokens", 0, "expected a whole number >= 1"),
        ("max_total_cost", 0, "expected a number > 0 for `EvalConfig.max_total_cost`, got 0"),
        ("max_total_cost", float("nan"), "expected a number > 0"),
        ("max_total_seconds", float("inf"), "expected a number > 0"),
        ("max_total_seconds", "10", "expected a number > 0"),
        ("stop_on_error", 1, "expected a bool for `EvalConfig.stop_on_error`, got 1"),
        ("experiment_name", 3, "expected a `str` for `EvalConfig.experiment_name`, got 3"),
    ],
)
def test_an_invalid_value_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EvalConfig(**{field: value})


@pytest.mark.parametrize(
    "field",
    ["timeout_per_sample_ms", "max_samples", "max_total_tokens", "max_total_cost", "endpoint"],
)
def test_optional_fields_can_be_none(field: str) -> None:
    assert EvalConfig(**{field: None})[field] is None


def test_it_can_be_read_like_the_config_of_a_stored_report() -> None:
    config = replace(EvalConfig(), max_samples=100, experiment_name="math_500")

    assert config["experiment_name"] == "math_500"
    assert {name: config[name] for name in config}["max_samples"] == 100
    with pytest.raises(KeyError, match=r"expected one of max_concurrent, .*, got 'typo'"):
        config["typo"]


async def answer(messages: list[Any]) -> str:
    return ""


@pytest.mark.parametrize(
    ("endpoint", "label"),
    [
        ("openai/gpt-4o", "openai/gpt-4o"),
        (Endpoint("openai/gpt-4o", temperature=0.0), "openai/gpt-4o (temperature=0.0)"),
        (ScriptedAdapter(["x"], model="m"), "scripted/m"),
        (DemoAdapter("small"), "demo/small"),
        (answer, "answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_it_is_stored_with_the_label_of_its_endpoint(endpoint: Any, label: str) -> None:
    config = EvalConfig(endpoint=endpoint, epochs=2)

    assert endpoint_label(endpoint) == label
    assert config.stored() == EvalConfig(endpoint=label, epochs=2)
    assert config_of(serde.plain(config.stored())) == config.stored()


def test_a_config_with_unknown_fields_stays_a_mapping() -> None:
    assert config_of({"anything": 1}) == {"anything": 1}
    oldest = {
        "max_concurrent": 2,
        "timeout_per_sample_ms": 5,
        "max_retries": 0,
        "stop_on_error": False,
    }
    assert config_of(oldest) == EvalConfig(max_concurrent=2, timeout_per_sample_ms=5)
    assert config_of({**oldest, "from_the_future": 1}) == {**oldest, "from_the_future": 1}
    with pytest.raises(UsageError, match="expected a usable configuration"):
        config_of({**oldest, "epochs": "many"})
    with pytest.raises(UsageError, match="expected an `EvalConfig` or a mapping"):
        config_of(3)


# ── timeouts ────────────────────────────────────────────────────────────────────────────────────


def test_a_timeout_is_in_seconds_and_also_available_in_milliseconds() -> None:
    assert EvalConfig(timeout=0.25) == EvalConfig(timeout_per_sample_ms=250)
    assert EvalConfig(timeout=0.25).timeout_per_sample_ms == 250
    assert EvalConfig(timeout=0.25)["timeout_per_sample_ms"] == 250
    assert EvalConfig(timeout_per_sample_ms=None) == EvalConfig(timeout=None)
    assert EvalConfig(timeout=None).timeout_per_sample_ms is None
    assert EvalConfig().timeout is None


def test_replacing_either_form_of_the_timeout_works() -> None:
    assert replace(EvalConfig(timeout=3), timeout=7.0).timeout == 7.0
    assert replace(EvalConfig(timeout=3), timeout_per_sample_ms=100).timeout == 0.1  # type: ignore[call-arg]
    assert replace(EvalConfig(timeout=3), epochs=2).timeout == 3


def test_a_timeout_is_stored_in_seconds_and_read_in_either_form() -> None:
    stored = serde.plain(EvalConfig(timeout=0.25).stored())

    assert stored["timeout"] == 0.25
    assert "timeout_per_sample_ms" not in stored
    assert config_of(stored) == EvalConfig(timeout=0.25)
    without_timeout = {key: value for key, value in stored.items() if key != "timeout"}
    assert config_of({**without_timeout, "timeout_per_sample_ms": 250}) == EvalConfig(timeout=0.25)
    assert config_of({**without_timeout, "timeout_per_sample_ms": None}) == EvalConfig(timeout=None)


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), float("nan"), "30", [30]])
def test_a_timeout_must_be_a_number_above_zero(timeout: Any) -> None:
    with pytest.raises(UsageError, match=r"expected a number > 0 for `EvalConfig.timeout`"):
        EvalConfig(timeout=timeout)
