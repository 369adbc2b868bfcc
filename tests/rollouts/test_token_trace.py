"""A reply in tokens: which values are valid, and that it is stored without loss."""

from __future__ import annotations

import json
import sqlite3
from array import array
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests import strategies as our
from weakincentives import serde
from weakincentives.adapters import ModelReply
from weakincentives.chat import ChatMessage, TokenTrace, ToolCall
from weakincentives.errors import SerializationError, UsageError
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    RunStore,
    Sample,
    evaluate,
    exact_match,
    open_store,
)
from weakincentives.evals.store.sqlite.encoding import compress, decompress
from weakincentives.rollouts import CalculatorEnvironment, Trajectory, run_agent

MESSAGES = [ChatMessage("user", "What is 2 + 3, times 7?")]
TOOL_CALLS = [
    ToolCall("c-1", "calculate", {"expression": "2 + 3"}),
    ToolCall("c-2", "calculate", {"expression": "5 * 7"}),
]


# --- the value -----------------------------------------------------------------------------------


@given(our.token_traces)
def test_a_trace_survives_a_round_trip(trace: TokenTrace) -> None:
    assert serde.decode(serde.encode(trace), TokenTrace) == trace
    assert hash(trace) == hash(serde.decode(serde.encode(trace), TokenTrace))


def test_arrays_become_plain_numbers() -> None:
    arrays: dict[str, Any] = {
        "prompt_ids": array("q", [1, 15]),
        "ids": np.array([7, 2], dtype=np.int32),
        "logprobs": [np.float32(-0.5), 0],
        "mask": np.array([True, False]),
    }
    trace = TokenTrace(**arrays)

    assert trace == TokenTrace((1, 15), (7, 2), (-0.5, 0.0), (1, 0))
    assert {type(each) for each in trace.ids + trace.mask} == {int}
    assert {type(each) for each in trace.logprobs} == {float}


@pytest.mark.parametrize(
    ("fields", "message"),
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
def test_an_invalid_trace_is_refused_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TokenTrace(**{"ids": (7, 2), **fields})


def test_a_logprob_may_be_slightly_positive_by_rounding() -> None:
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


def trace_of_turn(turn: int) -> TokenTrace:
    return TokenTrace((turn,), (10 + turn, 20 + turn), (-0.5, -0.25), policy_version="step-3")


async def policy(messages: list[ChatMessage]) -> ModelReply:
    """Call two tools one after the other, then answer; the second reply has no tokens."""
    turn = sum(message.role == "assistant" for message in messages)
    message = ChatMessage("assistant", "35")
    if turn < len(TOOL_CALLS):
        message = ChatMessage("assistant", "", (TOOL_CALLS[turn],))
    return ModelReply(message=message, tokens=None if turn == 1 else trace_of_turn(turn))


@pytest.mark.anyio
async def test_a_trajectory_has_the_trace_of_each_reply_that_has_one() -> None:
    trajectory = await run_agent(MESSAGES, CalculatorEnvironment(), policy)

    assert [message.role for message in trajectory.messages[1:]] == ["assistant", "tool"] * 2 + [
        "assistant"
    ]
    assert trajectory.tokens == (trace_of_turn(0), trace_of_turn(2))


@pytest.mark.anyio
async def test_replies_without_tokens_have_no_traces() -> None:
    assert (await run_agent(MESSAGES, CalculatorEnvironment(), "demo/large")).tokens == ()


# --- on disk -------------------------------------------------------------------------------------


async def evaluate_three(store: RunStore) -> EvalReport[Any]:
    samples = [Sample(str(number), MESSAGES[0].content, "35") for number in range(3)]
    config = EvalConfig(endpoint=policy, max_concurrent=3)
    return await evaluate(
        samples, config, exact_match, None, lambda _: CalculatorEnvironment(), store=store
    )


def traces(store: RunStore) -> list[tuple[TokenTrace, ...]]:
    return [row.result.trajectory.tokens for row in store.rows("latest") if row.result.trajectory]


@pytest.mark.anyio
async def test_a_store_and_a_report_keep_traces(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        report = await evaluate_three(store)
    report.save(tmp_path / "report.jsonl")

    assert [each.trajectory.tokens for each in report.results] == [
        (trace_of_turn(0), trace_of_turn(2))
    ] * 3
    assert EvalReport.load(tmp_path / "report.jsonl").results == report.results
    with open_store(tmp_path / "runs.db") as store:
        assert traces(store) == [(trace_of_turn(0), trace_of_turn(2))] * 3


@pytest.mark.anyio
async def test_rows_of_versions_without_traces_load(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        await evaluate_three(store)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        for body, result in database.execute("SELECT id, result FROM bodies").fetchall():
            row = json.loads(decompress(result))
            del row["trajectory"]["tokens"]
            change = compress(json.dumps(row).encode()), body
            database.execute("UPDATE bodies SET result = ? WHERE id = ?", change)
        database.execute(
            "UPDATE rows SET checksum = NULL, body_checksum = NULL"
        )  # as in older versions

    with open_store(tmp_path / "runs.db") as store:
        assert traces(store) == [(), (), ()]


@pytest.mark.anyio
async def test_an_agent_that_reports_no_latency_keeps_its_traces() -> None:
    async def agent(sample: Sample[str, str]) -> Trajectory[str]:
        return Trajectory(output="35", tokens=(trace_of_turn(0),))  # the engine adds the latency

    report = await evaluate([Sample("1", "?", "35")], EvalConfig(), exact_match, agent=agent)

    assert report.results[0].trajectory.tokens == (trace_of_turn(0),)
