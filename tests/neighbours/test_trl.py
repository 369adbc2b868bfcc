"""TRL, with the real package: a training on the CPU whose reward rises (`make neighbours`)."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("trl", reason="make neighbours installs it")
import torch

from examples.trl_sums import evaluate_model, make_model, train
from weakincentives.evals import exact_match

# Warnings of transformers and torch.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_training_with_our_evaluator_raises_its_reward_and_the_score_of_an_eval(
    tmp_path: Path,
) -> None:
    model = make_model(0)
    before = evaluate_model(model).pass_rate
    rewards = train(exact_match, steps=60, folder=str(tmp_path), model=model)

    assert len(rewards) == 60
    assert mean(rewards[:10]) < 0.3 < 0.55 < mean(rewards[-10:])
    assert evaluate_model(model).pass_rate > before + 0.2


def test_completions_that_cannot_be_scored_are_left_out_of_the_mean(tmp_path: Path) -> None:
    failures: list[str] = []

    def only_numbers(output: str, expected: str) -> float:
        if not output.isdigit():
            raise LookupError("no number")
        return 1.0

    rewards = train(
        only_numbers,
        steps=2,
        folder=str(tmp_path),
        on_failure=lambda id, error: failures.append(id),
    )

    # 64 completions a step: those that are numbers have 1, the others None and not 0.
    assert 0 < len(failures) < 128
    assert all(math.isclose(reward, 1.0, abs_tol=1e-6) for reward in rewards)


def test_columns_of_the_dataset_reach_the_evaluator(tmp_path: Path) -> None:
    samples: set[Any] = set()

    def record(trajectory: Any, sample: Any) -> float:
        samples.add((sample.id, sample.input, sample.expected))
        return 0.5

    train(record, steps=1, folder=str(tmp_path))
    assert samples
    assert all(input == id.replace("+", " plus ") + " is" for id, input, _ in samples)
