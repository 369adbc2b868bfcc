"""Pairwise judges: which of two outputs is better, independent of their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from tests import strategies as our
from tests.judging import FAILING, SAMPLE, Plain, Recording, saying
from weakincentives import ChatMessage, TokenUsage
from weakincentives.adapters import ModelReply, ModelRequest, ScriptedAdapter
from weakincentives.errors import EvaluatorError, UsageError
from weakincentives.evals.judges.pairwise import (
    PairOutput,
    PairwiseJudge,
    Preference,
    pairwise_judge,
)


def judge_with(model: Callable[[ModelRequest], str]) -> PairwiseJudge:
    return pairwise_judge(
        ScriptedAdapter(lambda request: {"reason": "so", "winner": model(request)}), "Clearer"
    )


def prefer_longer(request: ModelRequest) -> str:
    """Return the longer candidate, independent of its position."""
    lines = request.messages[1].content.splitlines()
    a, b = (len(line) for line in lines if line.startswith("Candidate "))
    return "tie" if a == b else "A" if a > b else "B"


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [("long text", "short", "first"), ("short", "long text", "second"), ("ab", "cd", "tie")],
)
def test_a_judge_of_the_text_prefers_the_same_output_in_both_orders(
    first: str, second: str, winner: str
) -> None:
    preference = judge_with(prefer_longer)(SAMPLE, first, second)

    assert (preference.winner, preference.consistent) == (winner, True)
    assert preference.reasons == ("so", "so")


@pytest.mark.parametrize("position", ["A", "B"])
@given(first=our.texts, second=our.texts)
def test_a_judge_of_the_position_gives_only_ties(position: str, first: str, second: str) -> None:
    preference = judge_with(lambda request: position)(SAMPLE, first, second)
    assert (preference.winner, preference.consistent) == ("tie", False)


def test_a_tie_in_one_order_only_is_no_preference() -> None:
    replies = saying({"reason": "r", "winner": "A"}, {"reason": "s", "winner": "tie"})
    preference = pairwise_judge(replies, "Clearer")(SAMPLE, "a", "b")

    assert (preference.winner, preference.consistent) == ("tie", False)
    assert sorted(preference.reasons) == ["r", "s"]


@pytest.mark.anyio
async def test_a_comparison_in_async_code_has_its_usage() -> None:
    reply = ModelReply(
        message=ChatMessage("assistant", '{"reason": "r", "winner": "tie"}'),
        usage=TokenUsage(100, 20),
    )
    judge = pairwise_judge(saying(reply, reply, reply, reply), "Clearer", name="clear")

    preference = await judge.compare(SAMPLE, "a", "b")

    assert preference == Preference("tie", ("r", "r"), True, TokenUsage(200, 40))
    assert judge(SAMPLE, "a", "b") == preference  # works inside a running event loop


def test_a_users_adapter_can_compare() -> None:
    judge = pairwise_judge(Plain(PairOutput(reason="r", winner="A")), "Clearer")
    assert judge(SAMPLE, "a", "b") == Preference("tie", ("r", "r"), False, None, 1.0)


@pytest.mark.parametrize("winner", ["first", "C", "a", "", 1, None])
def test_an_unknown_winner_is_an_error(winner: Any) -> None:
    answer = Recording({"reason": "r", "winner": winner})
    with pytest.raises(EvaluatorError, match="expected A, B or tie from the judge `Clearer`"):
        pairwise_judge(ScriptedAdapter(answer), "Clearer")(SAMPLE, "a", "b")
    with pytest.raises(EvaluatorError, match="expected A, B or tie from the judge `Clearer`"):
        pairwise_judge(Plain(PairOutput(reason="", winner=winner)), "Clearer")(SAMPLE, "a", "b")


@pytest.mark.parametrize("reply", [*FAILING, RuntimeError("odd")])
def test_a_comparison_that_fails_is_an_error(reply: Any) -> None:
    judge = pairwise_judge(ScriptedAdapter(Recording(reply)), "Clearer")
    with pytest.raises(EvaluatorError, match="the judge `Clearer`"):
        judge(SAMPLE, "a", "b")


def test_values_without_a_json_form_cannot_be_compared() -> None:
    with pytest.raises(EvaluatorError, match="cannot read this"):
        judge_with(prefer_longer)(SAMPLE, object(), "b")


@pytest.mark.parametrize(
    "build",
    [lambda: pairwise_judge(saying(), ""), lambda: pairwise_judge("adapter", "Clear")],
)
def test_misuse_is_refused(build: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        build()
