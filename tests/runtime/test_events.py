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
    SessionSnapshot,
    TokenUsage,
    ToolInvoked,
)
from weakincentives.testing import session_with


@dataclass(frozen=True)
class Query:
    text: str
    where: Path


class Outcome:
    """A result with `success`, but without a JSON form."""

    def __init__(self, success: bool) -> None:
        self.success = success

    def __repr__(self) -> str:
        return "Outcome()"


class Hostile:
    """A result that raises on any access."""

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
        ({"success": 1}, True),
        ({"success": 0}, False),
    ],
)
def test_success_is_explicit_or_derived(fields: dict[str, object], success: bool) -> None:
    assert ToolInvoked(name="search", **fields).success is success


def test_values_become_plain_data_at_construction() -> None:
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


def test_only_the_part_without_json_form_becomes_its_repr() -> None:
    bad = Outcome(True)
    event = ToolInvoked(
        name="search",
        params={"a": {"good": 1, "bad": bad}, "b": [1, (2, bad)], "c": {frozenset({bad})}},
    )
    assert event.params == {
        "a": {"good": 1, "bad": "Outcome()"},
        "b": [1, [2, "Outcome()"]],
        "c": [["Outcome()"]],
    }


def test_a_recursive_value_is_cut_off() -> None:
    parent: dict[str, object] = {"name": "root"}
    parent["children"] = [{"name": str(number), "parent": parent} for number in range(3)]
    result = ToolInvoked(name="tree", result=parent).result
    assert [child["name"] for child in result["children"]] == ["0", "1", "2"]
    assert result["children"][2]["parent"].startswith("<dict object at")


def test_a_result_that_raises_does_not_lose_the_event() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert "<list object at" in str(ToolInvoked(name="deep", result=nested).result)
    hostile = ToolInvoked(name="hostile", result=Hostile())
    assert hostile.success
    assert "Hostile object at" in hostile.result


def test_events_can_be_put_in_a_set() -> None:
    for kind in TELEMETRY:
        event = kind(name="a") if kind is ToolInvoked else kind()
        assert len({event, event}) == 1


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -1, "3", True, timedelta(1), 10**400]
)
@pytest.mark.parametrize("field", ["cost", "latency_ms"])
def test_an_amount_is_finite_and_not_negative(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"expected a finite `{field}` >= 0, got"):
        PromptExecuted(**{field: value})


def test_a_latency_may_be_a_difference_of_perf_counter() -> None:
    assert ToolInvoked(name="search", latency_ms=12.5).latency_ms == 12.5
    assert type(PromptExecuted(latency_ms=3).latency_ms) is float
    with pytest.raises(UsageError, match="expected a finite `latency_ms` >= 0, got -1"):
        ToolInvoked(name="search", latency_ms=-1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": None}, "expected `str` for `ToolInvoked.name`, got None"),
        ({"adapter": None}, "expected `str` for `ToolInvoked.adapter`, got None"),
        ({"call_id": 3}, "expected `str` for `ToolInvoked.call_id`, got 3"),
        ({"usage": {}}, r"expected `TokenUsage` for `ToolInvoked.usage`, got \{\}"),
        ({"session_id": "a"}, "expected `UUID` for `ToolInvoked.session_id`, got 'a'"),
        ({"event_id": None}, "expected `UUID` for `ToolInvoked.event_id`, got None"),
        ({"created_at": datetime(2025, 1, 1)}, "got datetime.* - pass tz=UTC"),  # noqa: DTZ001
        ({"created_at": "now"}, "expected an aware `datetime` for `ToolInvoked.created_at`"),
    ],
)
def test_a_field_of_another_type_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ToolInvoked(**{"name": "search", **fields})


def test_an_exception_as_error_becomes_its_message() -> None:
    assert ToolInvoked(name="a", error=ValueError("no")).error == "no"  # type: ignore[arg-type]
    assert ToolInvoked(name="a", error=TimeoutError()).error == "TimeoutError()"  # type: ignore[arg-type]


def test_one_unusual_event_does_not_break_the_snapshot() -> None:
    usage = TokenUsage(1)
    session = session_with(ToolInvoked(name="a", latency_ms=12.5, success=1, usage=usage))  # type: ignore[arg-type]
    (event,) = SessionSnapshot.from_bytes(session.snapshot())[ToolInvoked].all()
    assert event == session[ToolInvoked].latest()


def test_tools_must_be_names() -> None:
    assert PromptRendered(tools=None).tools == ()  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected several of `str`, got 'search'"):
        PromptRendered(tools="search")  # type: ignore[arg-type]
    with pytest.raises(
        UsageError, match=r"got 3 - at `PromptRendered.tools\[1\]`; pass their names"
    ):
        PromptRendered(tools=["a", 3])  # type: ignore[list-item, arg-type]


def test_the_tools_of_a_prompt_become_a_tuple() -> None:
    assert PromptRendered(tools=["a", "b"], session_id=uuid4()).tools == ("a", "b")
