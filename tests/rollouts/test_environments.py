"""Environments to start from: a text game, Python code, a simulated user. And their scores."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from weakincentives.adapters import ScriptedAdapter
from weakincentives.chat import ChatMessage, ToolCall
from weakincentives.errors import SerializationError, UsageError
from weakincentives.evals import EvalConfig, EvalResult, Sample, evaluate
from weakincentives.evals.evaluators import environment_score
from weakincentives.rollouts import (
    Endpoint,
    EnvironmentSnapshot,
    PythonEnvironment,
    Room,
    SimulatedUserEnvironment,
    TextGameEnvironment,
    restore_environment,
    take_snapshot,
)
from weakincentives.testing import Fault, ModelServer, Reply

MOVES = [
    ("go", {"direction": "north"}),
    ("take", {"thing": "lamp"}),
    ("go", {"direction": "south"}),
    ("go", {"direction": "east"}),
    ("go", {"direction": "down"}),
    ("take", {"thing": "map"}),
    ("go", {"direction": "up"}),
    ("go", {"direction": "west"}),
    ("drop", {"thing": "map"}),
]


def player(moves: list[tuple[str, dict[str, str]]]) -> Callable[[list[ChatMessage]], ChatMessage]:
    """Return a model that makes these moves, whatever its messages."""

    def model(messages: list[ChatMessage]) -> ChatMessage:
        count = sum(message.role == "assistant" for message in messages)
        if count == len(moves):
            return ChatMessage("assistant", "Done.")
        name, arguments = moves[count]
        return ChatMessage("assistant", tool_calls=(ToolCall(f"c{count}", name, arguments),))

    return model


def evaluate_one(
    endpoint: Any, factory: Callable[[Any], Any], score: Any = environment_score, **options: Any
) -> EvalResult[Any]:
    async def main() -> Any:
        sample = Sample("s", "Bring the map to the hall.", "yes")
        return await evaluate(
            [sample],
            EvalConfig(1, endpoint=endpoint),
            score,
            environment_factory=factory,
            **options,
        )

    (result,) = anyio.run(main).results
    return result


def tool(env: Any, name: str, **arguments: Any) -> str:
    """Call a tool and return what the model reads."""
    (chosen,) = [each for each in env.tools if each.name == name]
    return str(anyio.run(chosen.call, arguments).text)


def restore_from_json(env: Any) -> Any:
    """Take a snapshot, send it through JSON, and restore it."""

    async def main() -> Any:
        text = (await take_snapshot(env)).to_json()
        return await restore_environment(EnvironmentSnapshot.from_json(text), type(env))

    return anyio.run(main)


class Closing:
    """Counts how often an environment is closed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.times = make, 0

    def __call__(self, sample: Any) -> Any:
        env = self.make()
        close = env.close

        async def closed() -> None:
            self.times += 1
            await close()

        env.close = closed
        return env


# ── text game ───────────────────────────────────────────────────────────────────────────────────


def test_a_game_is_won_and_scores_itself() -> None:
    factory = Closing(TextGameEnvironment)
    result = evaluate_one(player(MOVES), factory)

    assert (result.score.value, result.passed, factory.times) == (1.0, True, 1)


def test_an_unfinished_game_scores_partially() -> None:
    assert evaluate_one(player(MOVES[:1]), lambda sample: TextGameEnvironment()).score.value == 0.25


def test_wrong_moves_return_a_reason() -> None:
    game = TextGameEnvironment()

    assert tool(game, "go", direction="west") == "there is no exit 'west'"
    assert tool(game, "go", direction="east").startswith("library: ")
    assert tool(game, "go", direction="down").endswith("You see: map.")
    assert tool(game, "take", thing="map") == "you need something to take the map"
    assert tool(game, "drop", thing="map") == "you do not carry 'map'"
    assert tool(game, "take", thing="gold") == "there is no 'gold' here"


def test_a_restored_game_continues() -> None:
    game = TextGameEnvironment()
    for name, arguments in MOVES[:6]:
        tool(game, name, **arguments)
    other = restore_from_json(game)
    for name, arguments in MOVES[6:]:
        tool(other, name, **arguments)

    assert (game.reached, other.reached, other.moves) == (False, True, 9)
    assert tool(other, "look").startswith("hall: ")
    anyio.run(other.close)
    assert tool(other, "look") == "the game is over"


@pytest.mark.parametrize(
    "options",
    [
        {"rooms": {"a": Room("A.", {"up": "b"})}, "start": "a", "goal": ("x", "a")},
        {"start": "attic"},
        {"goal": ("gold", "hall")},
        {"needs": {"map": "torch"}},
    ],
)
def test_a_game_that_cannot_be_won_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        TextGameEnvironment(**options)


# ── Python code ─────────────────────────────────────────────────────────────────────────────────


def test_the_files_of_code_are_kept_and_restored() -> None:
    env = PythonEnvironment({"data/in.txt": "2 3"})
    code = "print(sum(map(int, open('data/in.txt').read().split()))); open('out', 'w').write('5')"

    assert tool(env, "run_python", code=code) == "5\n"
    other = restore_from_json(env)
    assert other.folder != env.folder
    assert tool(other, "run_python", code="print(open('out').read())") == "5\n"
    assert other.calls == 2
    for each in (env, other):
        anyio.run(each.close)
        assert not each.folder.exists()
    assert tool(env, "run_python", code="print(1)") == "the environment is closed"


def test_failing_code_returns_its_error() -> None:
    env = PythonEnvironment(timeout=0.5)

    assert "ZeroDivisionError" in tool(env, "run_python", code="1 / 0")
    assert "timed out after 0.5 s" in tool(env, "run_python", code="while True: pass")
    assert tool(env, "run_python", code="x = 1") == "(no output)"
    anyio.run(env.close)


def test_a_link_that_code_made_is_not_followed_into_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not for a snapshot")
    env = PythonEnvironment()
    (env.folder / "link").symlink_to(tmp_path / "secret")
    (env.folder / "folder").symlink_to(tmp_path)
    os.mkfifo(env.folder / "pipe")

    assert anyio.run(env.serialize)["files"] == {}
    anyio.run(env.close)


def test_a_folder_that_is_too_large_has_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weakincentives.rollouts.python_code.MAX_SNAPSHOT_BYTES", 10)
    env = PythonEnvironment({"a": "x" * 11})

    with pytest.raises(SerializationError, match="at most 10 bytes"):
        anyio.run(env.serialize)
    anyio.run(env.close)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", ""])
def test_a_path_out_of_the_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="a path inside the folder"):
        PythonEnvironment({name: "x"})


def test_the_code_environment_is_closed_once_even_after_a_failure() -> None:
    def fails(messages: list[ChatMessage]) -> str:
        raise ConnectionError("lost")

    factory = Closing(PythonEnvironment)
    result = evaluate_one(fails, factory)

    assert (result.error_source, factory.times) == ("agent", 1)


# ── a simulated user ────────────────────────────────────────────────────────────────────────────


def user(*says: str, **options: Any) -> Callable[[Any], SimulatedUserEnvironment]:
    return lambda sample: SimulatedUserEnvironment(
        ScriptedAdapter(list(says)), "an impatient traveller", "a seat by the window", **options
    )


def test_a_simulated_user_talks_until_the_goal_is_reached() -> None:
    agent = ScriptedAdapter(["Which seat?", "You have 12A."])
    result = evaluate_one(agent, user("By the window, please.", "Thanks! [GOAL REACHED]"))
    trajectory = result.trajectory

    assert trajectory is not None
    assert [message.role for message in trajectory.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert (result.passed, result.output) == (True, "You have 12A.")
    assert trajectory.metadata["simulated_user"]["outcome"] == "goal_reached"
    assert trajectory.metadata["simulated_user"]["messages"] == 1


@pytest.mark.parametrize(
    ("says", "options", "outcome"),
    [
        (["[GIVE UP]"], {}, "gave_up"),
        (["No.", "No!"], {"max_messages": 2}, "out_of_messages"),
    ],
)
def test_a_simulated_user_that_gives_up_fails_the_sample(
    says: list[str], options: dict[str, Any], outcome: str
) -> None:
    result = evaluate_one(ScriptedAdapter(["Hm."] * 3), user(*says, **options))

    assert (result.passed, result.success) == (False, True)
    assert result.trajectory is not None
    assert result.trajectory.metadata["simulated_user"]["outcome"] == outcome


def test_an_error_of_the_simulated_user_is_not_a_failure_of_the_agent() -> None:
    def broken(messages: Any) -> str:
        raise ConnectionError("the user's model is unavailable")

    closing = Closing(lambda: SimulatedUserEnvironment(broken, "a traveller", "a seat"))
    result = evaluate_one(ScriptedAdapter(["Which seat?"]), closing)

    assert (result.error_source, closing.times) == ("infrastructure", 1)
    assert result.error_details is not None
    assert result.error_details.type.endswith("SimulatedUserError")


def test_turns_of_all_rounds_count_against_the_limit() -> None:
    agent = ScriptedAdapter(["a", "b", "c", "d"], max_turns=3)
    result = evaluate_one(agent, user(*["more"] * 8))

    assert result.trajectory is not None
    assert result.trajectory.stop_reason == "max_turns"
    assert sum(each.role == "assistant" for each in result.trajectory.messages) == 3


def test_the_simulated_user_does_not_see_tools_or_system_messages_and_can_be_restored() -> None:
    with ModelServer([Reply("By the window."), Reply("[GOAL REACHED]")]) as server:
        endpoint = Endpoint("http/user", base_url=server.openai_base_url)
        first = SimulatedUserEnvironment(endpoint, "a traveller", "a window seat")
        talk = [
            ChatMessage("system", "Secret rules."),
            ChatMessage("assistant", "Which seat?"),
            ChatMessage("tool", "12A is free", tool_call_id="c"),
        ]

        assert anyio.run(first.respond, talk) == "By the window."
        other = restore_from_json(first)
        assert anyio.run(other.respond, talk) is None
        sent = [message["content"] for message in server.requests[0].body["messages"]]

    assert (other.messages, other.outcome, first.outcome) == (1, "goal_reached", "")
    assert other.usage.total_tokens > first.usage.total_tokens  # type: ignore[union-attr]
    assert sent[1:] == ["Which seat?"]
    assert "Secret rules" not in sent[0]


def test_an_empty_message_is_an_error_of_the_simulated_user() -> None:
    with ModelServer([Fault("status", status=400)]) as server:
        endpoint = Endpoint("http/user", base_url=server.openai_base_url, retries=0)
        result = evaluate_one(
            ScriptedAdapter(["Hm."]),
            lambda sample: SimulatedUserEnvironment(endpoint, "a traveller", "a seat"),
        )

    assert result.error_source == "infrastructure"


def test_a_simulated_user_with_a_live_model_is_not_stored() -> None:
    env = user("x")(None)

    with pytest.raises(SerializationError, match="whose model is a name or an `Endpoint`"):
        anyio.run(env.serialize)
    with pytest.raises(UsageError, match="a text for `goal`"):
        SimulatedUserEnvironment("demo/large", "x", "")


# ── environments that score themselves ──────────────────────────────────────────────────────────


class Scored:
    """An environment with nothing but a score."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def score(self, trajectory: Any) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value if trajectory.output else None


@pytest.mark.parametrize(
    ("value", "expected"), [(0.25, 0.25), (True, 1.0), (-2, -2.0), ({"fast": 1, "right": 0}, 0.5)]
)
def test_an_environment_owns_its_score(value: Any, expected: float) -> None:
    result = evaluate_one(ScriptedAdapter(["Hi."]), lambda sample: Scored(value))

    assert (result.error, result.score.value) == (None, expected)


@pytest.mark.parametrize("value", ["good", float("nan"), ValueError("no board")])
def test_an_invalid_score_is_an_evaluator_error(value: Any) -> None:
    result = evaluate_one(ScriptedAdapter(["Hi."]), lambda sample: Scored(value))

    assert result.error_source == "evaluator"
    assert result.output == "Hi."


def test_an_environment_without_a_score_is_an_evaluator_error() -> None:
    result = evaluate_one(ScriptedAdapter(["Hi."]), lambda sample: object())

    assert result.error is not None
    assert "an environment with `score()`" in result.error
