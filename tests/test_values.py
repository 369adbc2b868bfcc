"""Experiments, chat messages, token counts, clocks and errors."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given

import weakincentives
from weakincentives import BASELINE, CONTROL, ChatMessage, Experiment, TokenUsage, ToolCall, errors
from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.errors import DatasetError, MissingExtraError, UsageError, WinkError
from weakincentives.rollouts import Trajectory

from . import strategies as our


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


def test_a_message_is_a_turn_of_a_known_role() -> None:
    message = ChatMessage("assistant", tool_calls=[ToolCall("1", "search", {"q": "x"})])  # type: ignore[arg-type]

    assert message.tool_calls == (ToolCall("1", "search", {"q": "x"}),)
    with pytest.raises(UsageError, match="got 'robot'"):
        ChatMessage("robot")  # type: ignore[arg-type]


@given(our.usages, our.usages, our.usages)
def test_adding_usage_is_associative_and_has_a_zero(
    a: TokenUsage, b: TokenUsage, c: TokenUsage
) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + TokenUsage() == a
    assert (a + b).total_tokens == a.total_tokens + b.total_tokens


def test_usage_is_refused_where_it_makes_no_sense() -> None:
    with pytest.raises(UsageError, match="expected `output_tokens` >= 0, got -1"):
        TokenUsage(1, -1)
    with pytest.raises(TypeError):
        TokenUsage(1) + 1  # type: ignore[operator]


def test_the_system_clock_is_steady_and_aware() -> None:
    assert SYSTEM_CLOCK.monotonic() <= SYSTEM_CLOCK.monotonic()
    assert SYSTEM_CLOCK.now().utcoffset() is not None


def test_the_package_offers_its_names_and_no_others() -> None:
    assert set(weakincentives.__all__) <= set(dir(weakincentives))
    assert weakincentives.Session.__name__ == "Session"
    with pytest.raises(AttributeError, match="has no attribute 'Sessions'"):
        weakincentives.Sessions  # noqa: B018


def test_a_trajectory_keeps_its_messages_as_a_tuple() -> None:
    messages = [ChatMessage("user", "hi")]

    assert Trajectory(messages=messages).messages == tuple(messages)  # type: ignore[arg-type]


def test_every_error_of_ours_has_one_root_and_stands_in_the_tree() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), WinkError)
        assert name in (errors.__doc__ or "")


def test_a_file_error_names_its_place_and_survives_a_process_boundary() -> None:
    error = DatasetError("expected `str`, got `int`", file="qa.jsonl", line=17, path="$.input")

    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "expected `str`, got `int` - at `$.input` (qa.jsonl:17)"
    assert (copy.file, copy.line, copy.path) == ("qa.jsonl", 17, "$.input")
    assert str(DatasetError("gone", file="qa.jsonl")) == "gone (qa.jsonl)"


def test_a_missing_extra_says_how_to_install_it() -> None:
    error = MissingExtraError("pyarrow", "parquet", "reading Parquet")

    assert isinstance(error, ImportError)
    assert "pip install 'weakincentives-evals[parquet]'" in str(error)
