"""Seed 004: metrics and rewards, samples with metadata, reports that are saved and sliced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
)
from weakincentives.evals.loaders import load_jsonl

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


def test_the_reward_is_the_weighted_mean_of_what_counts() -> None:
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
    shown = [
        f"{m.name}: {m.value}" + (f" (w={m.weight})" if m.weight > 0 else "")
        for m in failures[0].score.metrics
    ]
    assert shown == ["correct: 0.0 (w=1.0)", "num_turns: 2.0"]
