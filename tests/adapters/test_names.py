"""From a model's name to its adapter."""

from __future__ import annotations

from typing import Any

import pytest

from weakincentives.adapters import ModelSettings, ScriptedAdapter
from weakincentives.adapters.model_names import PROVIDERS, adapter_for
from weakincentives.errors import UsageError


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("openai:gpt-4o", "openai", "gpt-4o"),
        (" OpenAI/gpt-4o ", "openai", "gpt-4o"),
        ("openai/org/model:7b", "openai", "org/model:7b"),
        ("openai:ft:gpt-4o:me", "openai", "ft:gpt-4o:me"),
        ("anthropic/claude-opus-5", "anthropic", "claude-opus-5"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("gpt-oss:20b", "openai", "gpt-oss:20b"),
        ("o1", "openai", "o1"),
        ("o3-mini", "openai", "o3-mini"),
        ("claude-3-opus", "anthropic", "claude-3-opus"),
    ],
)
def test_a_name_selects_provider_and_model(name: str, provider: str, model: str) -> None:
    adapter = adapter_for(name)

    assert (adapter.name, adapter.model) == (provider, model)


def test_options_go_to_the_adapter() -> None:
    adapter = adapter_for("gpt-4o", settings=ModelSettings(max_tokens=3), max_turns=2)

    assert (adapter.settings.max_tokens, adapter.max_turns) == (3, 2)


@pytest.mark.parametrize("name", ["llama", "o100", "scripted/x", "ft:x", "", "/gpt-4o"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        adapter_for(name)

    assert "`anthropic/...`" in str(caught.value)
    assert "`openai/...`" in str(caught.value)
    assert "`gpt-...`" in str(caught.value)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"did you mean `openai/gpt-4o`\?"):
        adapter_for("opnai/gpt-4o")
    with pytest.raises(UsageError, match=r"did you mean `anthropic/\.\.\.`\?"):
        adapter_for("antropic")


@pytest.mark.parametrize("name", ["openai/", "openai:"])
def test_a_provider_without_a_model_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected a model after `openai"):
        adapter_for(name)


def test_a_value_that_is_not_a_name_is_refused() -> None:
    wrong: Any = 3
    with pytest.raises(UsageError, match="expected a model's name"):
        adapter_for(wrong)


def test_a_provider_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "echo", lambda model: ScriptedAdapter(["hi"], model=model))

    assert adapter_for("echo/small").model == "small"


def test_settings_are_keywords() -> None:
    adapter = adapter_for(
        "gpt-4o", temperature=0, max_tokens=9, top_p=1, stop=["END"], seed=7, extra={"user": "me"}
    )

    assert adapter.settings == ModelSettings(0, 9, 1, ("END",), 7, {"user": "me"})


def test_a_named_setting_wins_over_the_settings() -> None:
    settings = ModelSettings(temperature=1, max_tokens=5)

    assert adapter_for("gpt-4o", settings=settings, temperature=0).settings == ModelSettings(0, 5)


@pytest.mark.parametrize("name", ["openai/x", "anthropic/x", "http/x", "demo/large"])
def test_a_misspelt_option_is_refused(name: str) -> None:
    wrong: Any = {"temprature": 0}
    with pytest.raises(TypeError, match="temprature"):
        adapter_for(name, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": "hot"},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"seed": "x"},
        {"stop": "END"},
        {"retries": -1},
        {"retries": 1.5},
        {"timeout": 0},
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        adapter_for("openai/gpt-4o", **wrong)


def test_an_option_that_a_provider_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"options that `demo/large` has, got: .*timeout"):
        adapter_for("demo/large", timeout=3)
    with pytest.raises(UsageError, match="seed"):
        adapter_for("anthropic/claude-opus-5", seed=1)


def test_an_adapter_has_a_short_repr() -> None:
    adapter = adapter_for("openai/gpt-4o", temperature=0)

    assert repr(adapter) == "<OpenAIAdapter openai/gpt-4o (temperature=0)>"
    assert repr(adapter_for("openai/gpt-4o")) == "<OpenAIAdapter openai/gpt-4o>"


def test_a_missing_server_address_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="set the environment variable OPENAI_BASE_URL"):
        adapter_for("http/foo")
