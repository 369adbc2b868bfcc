"""Metrics and rewards, samples with metadata, reports that are saved and sliced."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from weakincentives import Tool, ToolCall
from weakincentives.chat import ChatMessage
from weakincentives.evals import (
    EvalConfig,
    EvalReport,
    EvalResult,
    Metric,
    Sample,
    Score,
    Trajectory,
    criterion,
    evaluate,
)
from weakincentives.evals.loaders import load_jsonl
from weakincentives.rollouts import CalculatorEnvironment, EnvelopeError, Environment
from weakincentives.rollouts.calculator import Expression

base_config = EvalConfig()
config = replace(
    base_config,
    max_samples=100,
    max_concurrent=10,
    experiment_name="math_500_baseline",
)


def score_fn(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
    """Extract answer, check correctness."""
    response = trajectory.messages[-1].content
    correct = response.endswith(sample.ground_truth)

    return Score(
        metrics=(
            # Reward (weight > 0)
            Metric("correct", 1.0 if correct else 0.0, weight=1.0),
            # Tracking only (weight = 0)
            Metric("num_turns", len(trajectory.messages), weight=0),
        )
    )


def load_dataset(path: Path) -> list[Sample[dict[str, Any], str]]:
    return [
        Sample(
            id=str(i),
            input=row,
            ground_truth=row["answer"],
            metadata={"difficulty": row["level"]},
        )
        for i, row in enumerate(load_jsonl(path))
    ]


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample[dict[str, Any], str]]:
    path = tmp_path / "math_500.jsonl"
    path.write_text(
        '{"problem": "1+1", "answer": "2", "level": 1}\n'
        '{"problem": "6*7", "answer": "42", "level": 3}\n'
    )
    return load_dataset(path)


def answered(text: str) -> Trajectory[str]:
    return Trajectory(messages=(ChatMessage("user", "?"), ChatMessage("assistant", text)))


def test_rows_become_samples(samples: list[Sample[dict[str, Any], str]]) -> None:
    assert [sample.id for sample in samples] == ["0", "1"]
    assert samples[1].input["problem"] == "6*7"
    assert samples[1].ground_truth == "42"
    assert samples[1].metadata == {"difficulty": 3}


def test_the_reward_is_the_weighted_mean_of_the_metrics() -> None:
    score = Score(
        metrics=(
            Metric("correct", 1.0, weight=3.0),
            Metric("format", 0.0, weight=1.0),
            Metric("num_turns", 12),
        )
    )

    assert score.reward == 0.75
    assert Score(metrics=()).reward == 0.0
    assert Score(metrics=(Metric("num_turns", 12),)).reward == 0.0
    assert Metric("m", 1.0).metadata == {}


def test_a_score_function_is_an_evaluator(samples: list[Sample[dict[str, Any], str]]) -> None:
    judge = criterion(score_fn)

    right, wrong = judge(answered("so it is 2"), samples[0]), judge(answered("9"), samples[1])

    assert (right.reward, right.passed, right.criterion) == (1.0, True, "score_fn")
    assert (wrong.reward, wrong.passed) == (0.0, False)
    assert [(m.name, m.value, m.weight) for m in wrong.metrics] == [
        ("correct", 0.0, 1.0),
        ("num_turns", 2.0, 0.0),
    ]


def test_results_are_saved_loaded_and_sliced(
    samples: list[Sample[dict[str, Any], str]], tmp_path: Path
) -> None:
    trajectories = [answered("2"), answered("41")]
    report = EvalReport(
        results=tuple(
            EvalResult(
                sample_id=sample.id,
                sample=sample,
                trajectory=trajectory,
                score=score_fn(trajectory, sample),
                metadata=sample.metadata,
            )
            for sample, trajectory in zip(samples, trajectories, strict=True)
        ),
        config=config,
    )
    report.save(tmp_path / f"outputs/evals/{config.experiment_name}")

    runs = [EvalReport.load(p) for p in (tmp_path / "outputs/evals").glob("math_500_*")]

    (run,) = runs
    assert run == report
    assert run.config["experiment_name"] == "math_500_baseline"
    assert f"Score: {run.summary['mean']:.2%}" == "Score: 50.00%"
    assert {r.metadata["difficulty"]: r.score.reward for r in run.results} == {1: 1.0, 3: 0.0}
    failures = [r for r in run.results if r.score.reward < 0.5]
    assert [r.sample_id for r in failures] == ["1"]
    lines = [
        f"{m.name}: {m.value}" + (f" (w={m.weight})" if m.weight > 0 else "")
        for m in failures[0].score.metrics
    ]
    assert lines == ["correct: 0.0 (w=1.0)", "num_turns: 2.0"]


class CounterEnvironment:
    """Follow the pattern of the specification, including its assertions."""

    ENV_KIND = "counter"
    VERSION = "1.0.0"

    def __init__(self) -> None:
        self._history: list[str] = []
        self.tools = (Tool[Expression, str]("note", "Notes an expression.", self.note),)

    async def note(self, params: Expression) -> str:
        self._history.append(params.expression)
        return f"{len(self._history)} noted"

    async def serialize(self) -> dict[str, Any]:
        return {
            "env_kind": self.ENV_KIND,
            "version": self.VERSION,
            "history": self._history,
        }

    @staticmethod
    async def deserialize(data: dict[str, Any]) -> CounterEnvironment:
        assert data["env_kind"] == CounterEnvironment.ENV_KIND
        assert data["version"].startswith("1.")  # compatible versions
        env = CounterEnvironment()
        env._history = data["history"]
        return env


def note_and_report(messages: list[ChatMessage]) -> ChatMessage:
    """Answer as a model that calls `note` with the question, and then reports the result."""
    if messages[-1].role == "tool":
        return ChatMessage("assistant", messages[-1].content)
    call = ToolCall("c", "note", {"expression": messages[-1].content})
    return ChatMessage("assistant", "", tool_calls=(call,))


def test_the_flow_from_a_sample_to_a_report(samples: list[Sample[dict[str, Any], str]]) -> None:
    made: list[CounterEnvironment] = []

    def prepare_messages(sample: Sample[Any, Any]) -> list[ChatMessage]:
        return [ChatMessage("user", f"Solve {sample.input['problem']}")]

    def environment_factory(sample: Sample[Any, Any]) -> CounterEnvironment:
        made.append(CounterEnvironment())
        return made[-1]

    async def verify(trajectory: Trajectory[Any], sample: Sample[Any, Any]) -> Score:
        await trio.lowlevel.checkpoint()  # like a function that calls an external verifier
        return Score(metrics=(Metric("noted", 7.5, weight=1.0), Metric("turns", 1)))

    report = trio.run(
        evaluate,
        samples,
        replace(config, endpoint=note_and_report),
        verify,
        prepare_messages,
        environment_factory,
    )

    assert [r.trajectory.messages[-1].content for r in report.results] == ["1 noted"] * 2
    assert [r.score.reward for r in report.results] == [7.5, 7.5]
    assert [r.metadata["difficulty"] for r in report.results] == [1, 3]
    assert report.config["experiment_name"] == "math_500_baseline"
    states = [trio.run(environment.serialize) for environment in made]
    assert sorted(state["history"][0] for state in states) == ["Solve 1+1", "Solve 6*7"]


@pytest.mark.parametrize("kind", [CounterEnvironment, CalculatorEnvironment])
def test_an_environment_is_restored_only_from_matching_data(kind: Any) -> None:
    environment = kind()
    assert isinstance(environment, Environment)
    state = json.loads(json.dumps(trio.run(environment.serialize)))
    assert {"env_kind", "version"} <= set(state)

    again = trio.run(kind.deserialize, state)
    assert trio.run(again.serialize) == state
    for wrong in ({**state, "env_kind": "code_exec"}, {**state, "version": "2.0.0"}):
        with pytest.raises((AssertionError, EnvelopeError)):
            trio.run(kind.deserialize, wrong)
