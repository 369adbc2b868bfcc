"""Events hold plain data, say whether a tool succeeded, and survive JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given

from tests import strategies as our
from weakincentives import serde
from weakincentives.errors import UsageError
from weakincentives.runtime import (
    TELEMETRY,
    PromptExecuted,
    PromptRendered,
    ToolInvoked,
)


@dataclass(frozen=True)
class Query:
    text: str
    where: Path


class Outcome:
    """A result that says how it went, but has no JSON form."""

    def __init__(self, success: bool) -> None:
        self.success = success

    def __repr__(self) -> str:
        return "Outcome()"


class Hostile:
    """A result that fails whatever is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")


@given(our.events)
def test_every_event_survives_json(event: object) -> None:
    assert serde.decode(serde.encode(event), type(event)) == event


def test_the_constructor_call_of_the_seeds_works() -> None:
    event = ToolInvoked(
        prompt_name="test",
        adapter="openai",
        name="search",
        params={"query": "test"},
        result={"success": True},
        session_id=None,
        created_at=datetime.now(UTC),
    )
    assert (event.params, event.success) == ({"query": "test"}, True)


def test_only_the_name_of_a_tool_is_required() -> None:
    first, second = ToolInvoked(name="search"), ToolInvoked(name="search")
    assert (first.params, first.result, first.success) == ({}, None, True)
    assert first.event_id != second.event_id
    assert datetime.now(UTC) - first.created_at < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("fields", "success"),
    [
        ({"result": {"success": False}}, False),
        ({"result": Outcome(False)}, False),
        ({"result": Outcome(True)}, True),
        ({"result": "success: False"}, True),
        ({"error": "timed out"}, False),
        ({"error": ""}, False),
        ({"error": "recovered", "success": True}, True),
        ({"result": {"success": True}, "success": False}, False),
    ],
)
def test_success_is_explicit_or_derived(fields: dict[str, object], success: bool) -> None:
    assert ToolInvoked(name="search", **fields).success is success


def test_values_are_plain_data_from_the_start() -> None:
    event = ToolInvoked(name="search", params=Query("?", Path("a/b")), result=(1, {2: "x"}))
    assert event.params == {"text": "?", "where": "a/b"}
    assert event.result == [1, {"2": "x"}]
    assert PromptExecuted(result=Query("?", Path("c"))).result == {"text": "?", "where": "c"}


def test_a_value_without_json_form_is_kept_as_its_repr() -> None:
    event = ToolInvoked(
        name="search", params={"query": "?", 3: Outcome(True)}, result=Outcome(True)
    )
    assert event.params == {"query": "?", "3": "Outcome()"}
    assert event.result == "Outcome()"


def test_no_result_is_hostile_enough_to_lose_the_event() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert ToolInvoked(name="deep", result=nested).result.startswith("<list object at")
    hostile = ToolInvoked(name="hostile", result=Hostile())
    assert hostile.success
    assert "Hostile object at" in hostile.result


def test_events_can_be_put_in_a_set() -> None:
    for kind in TELEMETRY:
        event = kind(name="a") if kind is ToolInvoked else kind()
        assert len({event, event}) == 1


def test_a_cost_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a finite `cost`, got nan"):
        PromptExecuted(cost=float("nan"))


def test_the_tools_of_a_prompt_become_a_tuple() -> None:
    assert PromptRendered(tools=["a", "b"], session_id=uuid4()).tools == ("a", "b")
