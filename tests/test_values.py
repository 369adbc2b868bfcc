"""Experiments, chat messages, token counts, clocks and errors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

import weakincentives
from weakincentives import (
    BASELINE,
    CONTROL,
    ChatMessage,
    Experiment,
    TokenTrace,
    TokenUsage,
    ToolCall,
    errors,
    serde,
)
from weakincentives.chat import Role
from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.errors import (
    DatasetError,
    MissingExtraError,
    ProviderError,
    UsageError,
    WinkError,
    WorkerEndedError,
)
from weakincentives.rollouts import Trajectory
from weakincentives.runtime import PromptExecuted, PromptRendered, ToolInvoked

from . import strategies as our


class Number:
    """An integer of another library, as NumPy's are."""

    def __index__(self) -> int:
        return 7


class Name(str):
    """Text of another library, as NumPy's is."""


class Tool(str, Enum):  # noqa: UP042 - it is what many have
    SEARCH = "search"


class Moment(datetime):
    """A date of another library, as pandas' is."""


MINIMAL: dict[type[Any], dict[str, Any]] = {
    TokenUsage: {},
    TokenTrace: {"ids": (5,)},
    ToolCall: {"id": "1", "name": "search"},
    ChatMessage: {"role": "user"},
    Experiment: {"name": "e"},
    ToolInvoked: {"name": "search"},
    PromptExecuted: {},
    PromptRendered: {},
}
PLAUSIBLE: list[Any] = [
    *(None, True, 0, 1, -1, 10**20, 2.5, -2.5, float("nan"), float("inf"), Decimal("0.1")),
    *(Number(), "", "user", "\ud800", Name("user"), Tool.SEARCH, b"a", Path("a"), 10**400),
    *((), [], ["a"], ("a", 1), [Name("a")], [Tool.SEARCH], [None], {"a"}, iter(["a"])),
    *([0], [0.5], [-0.5], [True], [Number()], [float("nan")], [10**20], range(1), [[0]]),
    *({}, {"a": [1, None]}, {1: 2}, {Name("a"): 1}, MappingProxyType({"a": 1}), [("a", 1)]),
    *(date(2025, 1, 1), datetime(2025, 1, 1), Moment.now(UTC)),  # noqa: DTZ001
    datetime(2025, 1, 1, tzinfo=timezone(timedelta(seconds=3230))),
    datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    *(uuid4(), str(uuid4()), object(), int, ValueError("no"), TimeoutError(), timedelta(1)),
    *(ToolCall("1", "a"), [ToolCall("1", "a")], [{"id": "1"}], TokenUsage(1), {"input_tokens": 1}),
]


@pytest.mark.parametrize("cls", MINIMAL)
def test_constructed_values_survive_a_round_trip(cls: type[Any]) -> None:
    for field in fields(cls):
        for value in PLAUSIBLE:
            try:
                value_of_class = cls(**{**MINIMAL[cls], field.name: value})
            except UsageError:
                continue
            assert serde.decode(serde.encode(value_of_class), cls) == value_of_class, (
                field.name,
                value,
            )


def test_an_experiment_carries_flags_and_a_tag() -> None:
    variant = BASELINE.with_flag("words", None).with_tag("v2")

    assert (variant.overrides_tag, variant.get_flag("words", 3)) == ("v2", None)
    assert variant.has_flag("words")
    assert not BASELINE.has_flag("words")
    assert BASELINE.get_flag("words", 3) == 3
    assert (BASELINE.name, CONTROL.name) == ("baseline", "control")
    assert hash(variant) == hash(variant.with_flag("more", []))


@pytest.mark.parametrize("name", ["", "  ", None])
def test_an_experiment_needs_a_name(name: Any) -> None:
    with pytest.raises(UsageError, match="non-empty experiment name"):
        Experiment(name)


def test_the_flags_are_the_experiments_own() -> None:
    flags = {"words": 3}
    variant = Experiment("concise", flags=flags)
    flags["words"] = 4

    assert variant.get_flag("words") == 3
    with pytest.raises(UsageError, match=r"expected a mapping for `Experiment.flags`, got `list`"):
        Experiment("concise", flags=["words"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"expected `str` keys in `Experiment.flags`, got 1"):
        Experiment("concise", flags={1: 2})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["overrides_tag", "owner", "description"])
def test_the_texts_of_an_experiment_are_text(name: str) -> None:
    with pytest.raises(UsageError, match=f"expected `str` for `Experiment.{name}`, got 3"):
        Experiment("concise", **{name: 3})  # type: ignore[arg-type]


def test_a_message_is_a_turn_of_a_known_role() -> None:
    message = ChatMessage("assistant", tool_calls=[ToolCall("1", "search", {"q": "x"})])  # type: ignore[arg-type]

    assert message.tool_calls == (ToolCall("1", "search", {"q": "x"}),)
    with pytest.raises(UsageError, match="got 'robot'"):
        ChatMessage("robot")  # type: ignore[arg-type]
    assert [ChatMessage(role).role for role in get_args(Role)] == [*get_args(Role)]
    assert "developer" in get_args(Role)


def test_a_message_that_only_calls_tools_has_no_content() -> None:
    message = ChatMessage("assistant", None, None)  # type: ignore[arg-type]

    assert (message.content, message.tool_calls) == ("", ())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ChatMessage("assistant", tool_calls=[ToolCall("1", "a"), {"id": "2"}]),
            r"expected `ToolCall`, got \{'id': '2'\} - at `ChatMessage.tool_calls\[1\]`; pass Tool",
        ),
        (
            lambda: ChatMessage("assistant", tool_calls=ToolCall("1", "a")),
            r"expected several of `ToolCall`, got ToolCall\(.* - for `ChatMessage.tool_calls`",
        ),
        (
            lambda: ChatMessage("user", [{"type": "text"}]),
            "expected `str` for `ChatMessage.content",
        ),
        (lambda: ToolCall("1", None), "expected `str` for `ToolCall.name`, got None"),
        (
            lambda: ToolCall("1", "search", '{"q": "x"}'),
            "expected a mapping for `ToolCall.arguments`, got `str` - pass json.loads",
        ),
        (lambda: ToolCall("1", "a", {1: 2}), "expected `str` keys in `ToolCall.arguments`, got 1"),
    ],
)
def test_a_message_of_other_types_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


@given(our.usages, our.usages, our.usages)
def test_adding_usage_is_associative_and_has_a_zero(
    a: TokenUsage, b: TokenUsage, c: TokenUsage
) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + TokenUsage() == a
    assert (a + b).total_tokens == a.total_tokens + b.total_tokens


def test_usages_have_a_sum() -> None:
    assert sum([TokenUsage(1, 2), TokenUsage(3, None, 1)]) == TokenUsage(4, 2, 1)
    with pytest.raises(TypeError):
        1 + TokenUsage(1)  # type: ignore[operator]


def test_a_count_is_a_plain_whole_number() -> None:
    assert type(TokenUsage(Number()).input_tokens) is int  # type: ignore[arg-type]
    for count in (1.5, True, "3"):
        with pytest.raises(UsageError, match="expected a whole number >= 0"):
            TokenUsage(2, count)  # type: ignore[arg-type]


def test_invalid_usage_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`TokenUsage\.output_tokens`, got -1"):
        TokenUsage(1, -1)
    with pytest.raises(TypeError):
        TokenUsage(1) + 1  # type: ignore[operator]


def test_the_system_clock_is_steady_and_aware() -> None:
    assert SYSTEM_CLOCK.monotonic() <= SYSTEM_CLOCK.monotonic()
    assert SYSTEM_CLOCK.now().utcoffset() is not None


def test_the_package_knows_its_version_and_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "weakincentives", "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert output == f"wink {weakincentives.__version__}\n"


def test_the_package_offers_its_names_and_no_others() -> None:
    assert set(weakincentives.__all__) <= set(dir(weakincentives))
    assert weakincentives.Session.__name__ == "Session"
    with pytest.raises(AttributeError, match="has no attribute 'Sessions'"):
        weakincentives.Sessions  # noqa: B018


def test_a_trajectory_keeps_its_messages_as_a_tuple() -> None:
    messages = [ChatMessage("user", "hi")]

    assert Trajectory(messages=messages).messages == tuple(messages)  # type: ignore[arg-type]


def test_every_error_of_ours_has_one_root_and_is_in_the_tree() -> None:
    for name in errors.__all__:
        if not isinstance(each := getattr(errors, name), type):
            continue  # a function
        assert issubclass(each, WinkError)
        assert name in (errors.__doc__ or "")


def test_a_file_error_names_its_place_and_survives_a_process_boundary() -> None:
    error = DatasetError("expected `str`, got `int`", file="qa.jsonl", line=17, path="$.input")

    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "expected `str`, got `int` - at `$.input` (qa.jsonl:17)"
    assert (copy.file, copy.line, copy.path) == ("qa.jsonl", 17, "$.input")
    assert str(DatasetError("gone", file="qa.jsonl")) == "gone (qa.jsonl)"


def test_an_error_about_a_value_is_short_and_never_fails() -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError

    assert len(errors.short_repr("x" * 1000)) == 80
    assert errors.short_repr(Unprintable()).startswith("<tests.test_values")


def test_a_provider_error_survives_a_process_boundary() -> None:
    error = ProviderError("slow down", retryable=True, retry_after=2.5, status=429)

    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.retryable, copy.retry_after, copy.status) == (
        "slow down",
        True,
        2.5,
        429,
    )


def test_a_missing_extra_says_how_to_install_it() -> None:
    error = MissingExtraError("pyarrow", "parquet", "reading Parquet")

    assert isinstance(error, ImportError)
    assert "pip install 'weakincentives-evals[parquet]'" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_end_of_a_worker_keeps_its_message_across_a_process_boundary() -> None:
    error = WorkerEndedError("its loop was stopped")

    assert str(pickle.loads(pickle.dumps(error))) == str(error)
