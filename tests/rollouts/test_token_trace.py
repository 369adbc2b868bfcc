"""A reply in tokens: what it may hold, and that it comes back from disk as it was."""

from __future__ import annotations

import json
import sqlite3
from array import array
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as our
from weakincentives import serde
from weakincentives.adapters import ModelReply
from weakincentives.chat import ChatMessage, TokenTrace, ToolCall
from weakincentives.errors import SerializationError, UsageError
from weakincentives.evals import EvalConfig, EvalReport, RunStore, Sample, evaluate, exact_match
from weakincentives.evals.store.rows import compress, decompress
from weakincentives.rollouts import CalculatorEnvironment, Trajectory, run_agent

ASKED = [ChatMessage("user", "What is 2 + 3, times 7?")]
WISHES = [
    ToolCall("c-1", "calculate", {"expression": "2 + 3"}),
    ToolCall("c-2", "calculate", {"expression": "5 * 7"}),
]


# --- the value -----------------------------------------------------------------------------------


@given(our.token_traces)
def test_it_comes_back_equal(trace: TokenTrace) -> None:
    assert serde.decode(serde.encode(trace), TokenTrace) == trace
    assert hash(trace) == hash(serde.decode(serde.encode(trace), TokenTrace))


def test_arrays_become_plain_numbers() -> None:
    given: dict[str, Any] = {
        "prompt_ids": array("q", [1, 15]),
        "ids": np.array([7, 2], dtype=np.int32),
        "logprobs": [np.float32(-0.5), 0],
        "mask": np.array([True, False]),
    }
    trace = TokenTrace(**given)

    assert trace == TokenTrace((1, 15), (7, 2), (-0.5, 0.0), (1, 0))
    assert {type(each) for each in trace.ids + trace.mask} == {int}
    assert {type(each) for each in trace.logprobs} == {float}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"logprobs": [-1.0]}, "expected 2 or no numbers for `TokenTrace.logprobs`, .* got 1"),
        ({"mask": [1, 1, 1]}, "expected 2 or no numbers for `TokenTrace.mask`, .* got 3"),
        ({"ids": [], "mask": [1]}, "expected 0 or no numbers for `TokenTrace.mask`"),
        ({"ids": [7, 2.0]}, r"a whole number .*, got 2.0 - at `TokenTrace.ids\[1\]`"),
        ({"ids": [7, True]}, r"a whole number .*, got True - at `TokenTrace.ids\[1\]`"),
        ({"ids": [7, -1]}, r"a whole number from 0 to .*, got -1 - at `TokenTrace.ids\[1\]`"),
        ({"prompt_ids": [2**63]}, r"to 2\*\*63 - 1, got 9223372036854775808 - at"),
        ({"prompt_ids": "ab"}, "several numbers for `TokenTrace.prompt_ids`, got 'ab'"),
        ({"prompt_ids": {1, 2}}, "several numbers for `TokenTrace.prompt_ids`, got {1, 2}"),
        ({"prompt_ids": [[1], [2]]}, r"got \[1\] - at `TokenTrace.prompt_ids\[0\]`"),
        ({"logprobs": [-1.0, 0.5]}, r"a finite number <= 0, got 0.5 - at `.*logprobs\[1\]`"),
        ({"logprobs": [-1.0, float("-inf")]}, r"a finite number <= 0, got -inf - at"),
        ({"logprobs": [float("nan"), -1.0]}, r"a finite number <= 0, got nan - at .*\[0\]"),
        ({"logprobs": [-1.0, "-1"]}, r"a finite number <= 0, got '-1' - at"),
        ({"mask": [1, 2]}, r"expected 0 or 1, got 2 - at `TokenTrace.mask\[1\]`"),
        ({"policy_version": 3}, "expected `str` for `TokenTrace.policy_version`, got 3"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TokenTrace(**{"ids": (7, 2), **given})


def test_rounding_may_lift_a_certain_token_a_little() -> None:
    assert TokenTrace(ids=(7,), logprobs=(1e-6,)).logprobs == (1e-6,)


def test_tampered_lengths_do_not_load() -> None:
    with pytest.raises(SerializationError, match="expected 2 or no numbers"):
        serde.decode(b'{"ids":[1,2],"logprobs":[-1.0]}', TokenTrace)


def test_a_trajectory_takes_traces_only() -> None:
    many: Any = [TokenTrace(ids=(7,))]

    assert Trajectory(tokens=many).tokens == (TokenTrace(ids=(7,)),)
    assert Trajectory(tokens=many) != Trajectory()
    with pytest.raises(UsageError, match=r"expected `TokenTrace`, got 7 - at `.*tokens\[0\]`"):
        Trajectory(tokens=(7,))  # type: ignore[arg-type]


@given(st.lists(our.token_traces, max_size=3))
def test_a_trajectory_without_the_field_is_one_without_traces(traces: list[TokenTrace]) -> None:
    whole = Trajectory(output="5", tokens=tuple(traces))
    before = {key: value for key, value in serde.plain(whole).items() if key != "tokens"}

    assert serde.decode(serde.encode(whole), Trajectory) == whole
    assert serde.convert(before, Trajectory) == Trajectory(output="5")


# --- a policy in an environment ------------------------------------------------------------------


def said(turn: int) -> TokenTrace:
    return TokenTrace((turn,), (10 + turn, 20 + turn), (-0.5, -0.25), policy_version="step-3")


async def policy(messages: list[ChatMessage]) -> ModelReply:
    """Calls two tools one after the other, then answers; the second time without tokens."""
    turn = sum(message.role == "assistant" for message in messages)
    message = ChatMessage("assistant", "35")
    if turn < len(WISHES):
        message = ChatMessage("assistant", "", (WISHES[turn],))
    return ModelReply(message=message, tokens=None if turn == 1 else said(turn))


@pytest.mark.anyio
async def test_a_policy_leaves_one_trace_for_each_reply_that_has_one() -> None:
    left = await run_agent(ASKED, CalculatorEnvironment(), policy)

    assert [message.role for message in left.messages[1:]] == ["assistant", "tool"] * 2 + [
        "assistant"
    ]
    assert left.tokens == (said(0), said(2))


@pytest.mark.anyio
async def test_without_traces_there_are_none() -> None:
    assert (await run_agent(ASKED, CalculatorEnvironment(), "demo/large")).tokens == ()


# --- on disk -------------------------------------------------------------------------------------


async def evaluated(store: RunStore) -> EvalReport[Any]:
    samples = [Sample(str(number), ASKED[0].content, "35") for number in range(3)]
    config = EvalConfig(endpoint=policy, max_concurrent=3)
    return await evaluate(
        samples, config, exact_match, None, lambda _: CalculatorEnvironment(), store=store
    )


def traces(store: RunStore) -> list[tuple[TokenTrace, ...]]:
    return [row.result.trajectory.tokens for row in store.rows("latest") if row.result.trajectory]


@pytest.mark.anyio
async def test_a_store_and_a_report_keep_them(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        report = await evaluated(store)
    report.save(tmp_path / "report.jsonl")

    assert [each.trajectory.tokens for each in report.results] == [(said(0), said(2))] * 3
    assert EvalReport.load(tmp_path / "report.jsonl").results == report.results
    with RunStore(tmp_path / "runs.db") as store:
        assert traces(store) == [(said(0), said(2))] * 3


@pytest.mark.anyio
async def test_rows_from_before_there_were_traces_load(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        await evaluated(store)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        for body, result in database.execute("SELECT id, result FROM bodies").fetchall():
            row = json.loads(decompress(result))
            del row["trajectory"]["tokens"]
            change = compress(json.dumps(row).encode()), body
            database.execute("UPDATE bodies SET result = ? WHERE id = ?", change)
        database.execute("UPDATE rows SET checksum = NULL, body_checksum = NULL")  # as before them

    with RunStore(tmp_path / "runs.db") as store:
        assert traces(store) == [(), (), ()]


@pytest.mark.anyio
async def test_an_agent_that_took_no_time_itself_keeps_its_traces() -> None:
    async def agent(sample: Sample[str, str]) -> Trajectory[str]:
        return Trajectory(output="35", tokens=(said(0),))  # the engine adds how long it took

    report = await evaluate([Sample("1", "?", "35")], EvalConfig(), exact_match, agent=agent)

    assert report.results[0].trajectory.tokens == (said(0),)
