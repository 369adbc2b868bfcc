"""Endpoints: each of the four forms becomes an adapter."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any

import pytest

from weakincentives import serde
from weakincentives.adapters import HTTPAdapter, ModelSettings, ScriptedAdapter
from weakincentives.chat import ChatMessage
from weakincentives.errors import UsageError
from weakincentives.rollouts import Endpoint, endpoint_of

LOCAL = "http://127.0.0.1:8000/v1"


def test_an_endpoint_is_data() -> None:
    endpoint = Endpoint(
        "http/llama-3",
        LOCAL,
        0.2,
        100,
        0.9,
        ["END"],
        7,
        {"min_p": 0.1},
        5,
        30.0,  # type: ignore[arg-type]
    )

    assert serde.decode(serde.encode(endpoint), Endpoint) == endpoint
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint
    assert hash(endpoint) == hash(replace(endpoint))
    assert endpoint.settings == ModelSettings(0.2, 100, 0.9, ("END",), 7, {"min_p": 0.1})
    with pytest.raises(FrozenInstanceError):
        endpoint.seed = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        (Endpoint("openai/gpt-4o"), "openai/gpt-4o"),
        (Endpoint("gpt-4o", temperature=0.0), "gpt-4o (temperature=0.0)"),
        (Endpoint("m", LOCAL, seed=0), f"m at {LOCAL} (seed=0)"),
        (
            Endpoint("m", max_turns=3, extra={"min_p": 0.1}),
            "m (extra={'min_p': 0.1}, max_turns=3)",
        ),
    ],
)
def test_the_text_of_an_endpoint_names_its_settings(endpoint: Endpoint, text: str) -> None:
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"model": ""}, "a model's name"),
        ({"model": 7}, "a model's name"),
        ({"max_turns": 0}, "`Endpoint.max_turns`"),
        ({"max_turns": None}, "`Endpoint.max_turns`"),
        ({"max_tokens": 0}, "`Endpoint.max_tokens`"),
        ({"temperature": float("nan")}, "`Endpoint.temperature`"),
        ({"temperature": "hot"}, "`Endpoint.temperature`"),
        ({"top_p": True}, "`Endpoint.top_p`"),
        ({"timeout": -1}, "`Endpoint.timeout`"),
        ({"stop": "END"}, "several texts for `stop`"),
        ({"extra": 1}, "a mapping"),
        ({"base_url": 1}, "`base_url`"),
    ],
)
def test_misuse_is_refused_at_construction(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Endpoint(**{"model": "m", **options})


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "https://me:sk-secret@host/v1"},
        {"base_url": "https://host/v1?api_key=sk-secret"},
        {"extra": {"api_key": "sk-secret"}},
        {"extra": {"extra_headers": [{"X-API-Key": "sk-secret"}]}},
        {"extra": {"headers": {"Authorization": "Bearer sk-secret"}}},
    ],
)
def test_a_secret_is_refused_and_not_repeated(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no secret in an `Endpoint`") as refused:
        Endpoint("m", **options)

    assert "sk-secret" not in str(refused.value)


def test_a_schema_with_a_field_for_a_key_is_no_secret() -> None:
    schema = {"properties": {"key": {"type": "string"}, "token": {"type": "string"}}}

    assert Endpoint("m", extra={"guided_json": schema}, seed=-1).seed == -1


def test_a_name_becomes_the_adapter_of_its_provider() -> None:
    adapter: Any = endpoint_of("demo/small")

    assert (str(adapter), adapter.max_turns) == ("demo/small", 20)


def test_an_endpoint_becomes_an_adapter_with_its_settings() -> None:
    adapter: Any = endpoint_of(Endpoint("http/llama-3", LOCAL, temperature=0.5, max_turns=3))

    assert isinstance(adapter, HTTPAdapter)
    assert (adapter.model, adapter.settings.temperature, adapter.max_turns) == ("llama-3", 0.5, 3)


def test_any_model_name_is_valid_with_a_base_url() -> None:
    adapter: Any = endpoint_of(Endpoint("meta-llama/Llama-3", LOCAL))

    assert str(adapter) == "http/meta-llama/Llama-3"


def test_an_option_that_a_provider_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"options that `demo/large` has, got: .*base_url"):
        endpoint_of(Endpoint("demo/large", LOCAL))


def test_an_adapter_is_returned_unchanged() -> None:
    class UserAdapter:
        def evaluate(self, prompt: Any, *, session: Any = None) -> Any: ...

    class AsyncUserAdapter:
        async def evaluate_async(self, prompt: Any, *, session: Any = None) -> Any: ...

    for adapter in (
        ScriptedAdapter(["hi"]),
        UserAdapter(),
        AsyncUserAdapter(),
        endpoint_of(lambda m: "hi"),
    ):
        assert endpoint_of(adapter) is adapter


def test_a_function_becomes_an_adapter_with_its_name() -> None:
    async def policy(messages: list[ChatMessage]) -> str:
        return "hi"

    assert str(endpoint_of(policy)) == "function/policy"
    assert str(endpoint_of(partial(policy))) == "function/partial"


@pytest.mark.parametrize(
    "options", [None, 7, {"model": "m"}, ScriptedAdapter, Endpoint, "unknown/model", ""]
)
def test_anything_else_is_refused(options: Any) -> None:
    with pytest.raises(UsageError):
        endpoint_of(options)


@pytest.mark.parametrize("fn", [lambda: "hi", lambda a, b: "hi", lambda *, messages: "hi"])
def test_a_function_of_something_else_is_refused(fn: Any) -> None:
    with pytest.raises(UsageError, match="a function of the messages"):
        endpoint_of(fn)
