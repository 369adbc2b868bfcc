"""Snapshots of environments: taken by the engine, restored elsewhere, resumed and branched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from hypothesis import given, strategies as st

from tests.processes import TIMEOUT
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.errors import SerializationError, UsageError
from weakincentives.evals import (
    EvalConfig,
    Sample,
    Trajectory,
    criterion,
    evaluate,
    exact_match,
    open_store,
)
from weakincentives.evals.engine import endpoint_agent
from weakincentives.evals.engine.agents import branch_agent
from weakincentives.evals.engine.branching import branch_sample, find_snapshot
from weakincentives.prompt import Tool
from weakincentives.rl import branch_rollouts
from weakincentives.rollouts import (
    CalculatorEnvironment,
    EnvelopeError,
    EnvironmentSnapshot,
    restore_environment,
    take_snapshot,
)
from weakincentives.rollouts.restoring import complete_turns

opened: list[CalculatorEnvironment] = []
closed: list[CalculatorEnvironment] = []


class CountedCalculator(CalculatorEnvironment):
    """A calculator that is counted when it is closed."""

    async def close(self) -> None:
        closed.append(self)
        await super().close()

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> CountedCalculator:
        env = CountedCalculator((await CalculatorEnvironment.deserialize(data)).history)
        opened.append(env)
        return env


def make(sample: Sample[Any, Any]) -> CountedCalculator:
    env = CountedCalculator()
    opened.append(env)
    return env


def add_up(messages: list[ChatMessage]) -> ChatMessage:
    """Call the calculator three times, then answer with its last result."""
    results = [message.content for message in messages if message.role == "tool"]
    if len(results) == 3:
        return ChatMessage("assistant", results[-1])
    expression = f"{results[-1] if results else 1} + 1"
    call = ToolCall(f"c{len(results)}", "calculate", {"expression": expression})
    return ChatMessage("assistant", tool_calls=(call,))


SAMPLE = Sample("one", "Add 1 three times to 1", "4")


def run(**options: Any) -> Trajectory[Any]:
    async def main() -> Any:
        config = EvalConfig(1, endpoint=options.pop("endpoint", add_up))
        return await evaluate([SAMPLE], config, exact_match, environment_factory=make, **options)

    opened.clear()
    closed.clear()
    (result,) = anyio.run(main).results
    assert result.trajectory is not None
    return result.trajectory


def test_a_snapshot_is_taken_after_each_turn() -> None:
    trajectory = run(snapshots="turn")

    assert [snapshot.turn for snapshot in trajectory.snapshots] == [0, 1, 2, 3]
    assert [len(each.state["history"]) for each in trajectory.snapshots] == [0, 1, 2, 3]
    assert [each.message_count for each in trajectory.snapshots] == [1, 3, 5, 7]
    assert len({each.episode_id for each in trajectory.snapshots}) == 1
    assert trajectory.snapshot_at(2).messages == trajectory.messages[:5]
    assert trajectory.snapshot_at().turn == 3
    assert opened == closed


def test_no_snapshot_is_taken_by_default() -> None:
    assert run().snapshots == ()
    with pytest.raises(UsageError, match="enable them: snapshots='turn'"):
        run().snapshot_at(1)


def test_a_failure_has_a_snapshot_of_the_last_complete_turn() -> None:
    def fails(messages: list[ChatMessage]) -> ChatMessage:
        if len(messages) == 5:
            raise ConnectionError("lost")
        return add_up(messages)

    trajectory = run(snapshots="failure", endpoint=fails)

    assert [(each.turn, each.message_count) for each in trajectory.snapshots] == [(2, 5)]
    assert opened == closed


def test_an_incomplete_turn_is_dropped() -> None:
    question = ChatMessage("user", "?")
    called = ChatMessage("assistant", tool_calls=(ToolCall("a", "x"), ToolCall("b", "x")))
    one = ChatMessage("tool", "1", tool_call_id="a")

    assert complete_turns([question, called, one]) == (question,)
    both = [question, called, one, ChatMessage("tool", "2", tool_call_id="b")]
    assert complete_turns(both) == tuple(both)


# ── lossless, elsewhere, and only where it fits ─────────────────────────────────────────────────

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(json_values)
def test_a_snapshot_comes_back_equal_from_json_and_from_ludic(value: Any) -> None:
    state = {"env_kind": "maze", "version": "2.1", "value": value}
    messages = (ChatMessage("user", "?"), ChatMessage("assistant", "!"))
    snapshot = EnvironmentSnapshot.of(state, messages, episode_id="e", turn=1, parent_id="d:4")

    assert EnvironmentSnapshot.from_json(snapshot.to_json()) == snapshot
    ludic = json.loads(json.dumps(snapshot.to_ludic()))
    assert set(ludic) == {"env_kind", "version", "episode_id", "obs", "world", "created_ns"}
    assert EnvironmentSnapshot.from_ludic(ludic) == snapshot


def test_a_snapshot_of_ludic_itself_is_read() -> None:
    data = {
        "env_kind": "tic_tac_toe",
        "version": "0.1",
        "episode_id": "x",
        "obs": "X..",
        "world": {"board": [1, 0, 0]},
        "created_ns": 5,
    }
    snapshot = EnvironmentSnapshot.from_ludic(data)

    assert snapshot.state["world"] == {"board": [1, 0, 0]}
    assert (snapshot.env_kind, snapshot.created_ns) == ("tic_tac_toe", 5)


@pytest.mark.parametrize(
    "state",
    [
        "text",
        {"env_kind": "maze"},
        {"env_kind": "maze", "version": 1},
        {"env_kind": "maze", "version": "1", "live": object()},
        {"env_kind": "maze", "version": "1", "pair": (1, 2)},
    ],
)
def test_state_that_json_would_change_is_refused(state: Any) -> None:
    with pytest.raises(SerializationError):
        EnvironmentSnapshot.of(state)


def test_another_process_restores_a_snapshot() -> None:
    snapshot = run(snapshots="turn").snapshot_at(2)
    code = """
import asyncio, sys
from weakincentives.rollouts import CalculatorEnvironment, EnvironmentSnapshot, restore_environment
snapshot = EnvironmentSnapshot.from_json(sys.stdin.read())
env = asyncio.run(restore_environment(snapshot, CalculatorEnvironment))
print([each.result for each in env.history], len(snapshot.messages))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=snapshot.to_json(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )

    assert done.stdout == "['2', '3'] 5\n", done.stderr


class Touched:
    """An environment that must not be asked to restore foreign state."""

    ENV_KIND, VERSION = "maze", "3.0.0"
    MIGRATIONS: ClassVar = {
        1: lambda state: {**state, "version": "2.0.0", "steps": state["moves"]},
        2: lambda state: {**state, "version": "3.0.0", "steps": [*state["steps"], "end"]},
    }

    def __init__(self, steps: list[str]) -> None:
        self.steps = steps

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> Touched:
        return Touched(data["steps"])


def restore(**state: Any) -> Touched:
    snapshot = EnvironmentSnapshot.of(state)
    env: Touched = anyio.run(restore_environment, snapshot, Touched)
    return env


@pytest.mark.parametrize(
    ("kind", "version"), [("chess", "3.0.0"), ("maze", "4.0.0"), ("maze", "0.9"), ("maze", "x")]
)
def test_a_wrong_kind_or_version_is_refused_before_state_is_read(kind: str, version: str) -> None:
    with pytest.raises(EnvelopeError):
        restore(env_kind=kind, version=version)  # the state has no `steps` to read


def test_older_versions_are_migrated_step_by_step() -> None:
    assert restore(env_kind="maze", version="1.4", moves=["left"]).steps == ["left", "end"]
    assert restore(env_kind="maze", version="2.0", steps=[]).steps == ["end"]
    assert restore(env_kind="maze", version="3.1", steps=["up"]).steps == ["up"]


def test_a_snapshot_that_contradicts_its_state_is_refused() -> None:
    forged = EnvironmentSnapshot("maze", "3.0.0", {"env_kind": "chess", "version": "3.0.0"})

    with pytest.raises(EnvelopeError, match="as the snapshot says"):
        anyio.run(restore_environment, forged, Touched)


# ── going on ────────────────────────────────────────────────────────────────────────────────────


def add_up_after_two(messages: list[ChatMessage]) -> ChatMessage:
    """Continue like `add_up`, but only a conversation that has two results."""
    assert sum(message.role == "tool" for message in messages) >= 2
    return add_up(messages)


def test_an_unfinished_episode_is_resumed(tmp_path: Path) -> None:
    def fails(messages: list[ChatMessage]) -> ChatMessage:
        if len(messages) == 5:
            raise ConnectionError("lost")
        return add_up(messages)

    async def main() -> tuple[Any, Any]:
        with open_store(tmp_path / "runs.db") as store:
            config = EvalConfig(1, endpoint=fails)
            first = await evaluate(
                [SAMPLE],
                config,
                exact_match,
                environment_factory=make,
                snapshots="failure",
                store=store,
            )
            agent = endpoint_agent(add_up_after_two, environment_factory=make)
            again = await branch_sample(
                store, first.run_id, "one", agent, criterion(exact_match), n=1
            )
            return first, store.report(again.run_id)

    opened.clear()
    closed.clear()
    first, again = anyio.run(main)

    assert (first.errors, again.passed) == (1, 1)
    (result,) = again.results
    assert result.output == "4"
    assert result.trajectory.metadata["branched_from"].endswith(":2")
    assert len(opened[-1].history) == 3  # two of the stored state, and one more
    assert opened == closed


def test_branches_of_one_turn_are_epochs_and_know_their_parent(tmp_path: Path) -> None:
    async def main() -> Any:
        with open_store(tmp_path / "runs.db") as store:
            first = await evaluate(
                [SAMPLE],
                EvalConfig(1, endpoint=add_up),
                exact_match,
                environment_factory=make,
                snapshots="turn",
                store=store,
            )
            agent = endpoint_agent(add_up_after_two, environment_factory=make, snapshots="turn")
            snapshot = find_snapshot(store, first.run_id, "one", at=2)[1]
            report = await branch_sample(
                store, first.run_id, "one", agent, criterion(exact_match), at=2, n=4
            )
            return snapshot, report, store.run(report.run_id).manifest.tags

    snapshot, report, tags = anyio.run(main)

    assert [result.epoch for result in report.results] == [1, 2, 3, 4]
    assert report.passed == 4
    assert tags["branched_from"].endswith("/one@2")
    for result in report.results:
        assert [each.turn for each in result.trajectory.snapshots] == [2, 3]
        assert {each.parent_id for each in result.trajectory.snapshots} == {snapshot.id}


def test_branches_are_groups_for_grpo() -> None:
    trajectory = run(snapshots="turn")
    pairs = [(SAMPLE, trajectory.snapshot_at(turn)) for turn in (1, 2)]

    async def main() -> Any:
        return await branch_rollouts(pairs, add_up, make, n=3, score_fn=exact_match)

    rollouts = anyio.run(main)
    assert [(group.id, group.rewards) for group in rollouts.groups] == [
        ("one@1", [1.0] * 3),
        ("one@2", [1.0] * 3),
    ]


def untyped(sample: Sample[Any, Any]):  # type: ignore[no-untyped-def]
    return CalculatorEnvironment()


@pytest.mark.parametrize(
    ("agent", "problem"),
    [
        (endpoint_agent(add_up), "an agent with an environment"),
        (endpoint_agent(add_up, environment_factory=untyped), "whose environment type is known"),
        (lambda sample: None, "an agent with an environment"),
    ],
)
def test_an_agent_that_cannot_be_branched_is_refused(agent: Any, problem: str) -> None:
    snapshot = anyio.run(take_snapshot, CalculatorEnvironment(), [ChatMessage("user", "?")])

    with pytest.raises(UsageError, match=problem):
        branch_agent(agent, snapshot)


def test_invalid_snapshot_options_are_refused() -> None:
    with pytest.raises(UsageError, match="an `environment_factory` with `snapshots`"):
        endpoint_agent(add_up, snapshots="turn")
    with pytest.raises(UsageError, match='"turn", "failure" or None'):
        endpoint_agent(add_up, environment_factory=make, snapshots="always")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="an environment with `serialize`"):
        anyio.run(take_snapshot, Tool)
