"""Baseline eval on 40 problems of five levels, single-turn.

Runs as it is, with the rules of solver.py; with a model, here or on a machine with a GPU:

    python examples/math/baseline.py
    python examples/math/baseline.py --model openai/gpt-4o
    python examples/math/baseline.py --remote --gpu-id 0     # on $WINK_REMOTE_HOST
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio
from config import config as base_config, prepare_messages

from weakincentives.contrib.remote import run_remote
from weakincentives.errors import WinkError
from weakincentives.evals import Metric, Sample, Score, Trajectory, evaluate
from weakincentives.evals.evaluators.math import extract_boxed_answer, normalized_equal
from weakincentives.evals.loaders import load_jsonl
from weakincentives.rollouts import Endpoint

# ── Config ──────────────────────────────────────────────────────────────────────────────────────
config = replace(
    base_config,
    max_samples=100,
    max_concurrent=10,
    experiment_name="math_baseline",
)

# ── Dataset ─────────────────────────────────────────────────────────────────────────────────────
PROBLEMS = Path(__file__).parent / "data" / "problems.jsonl"


def load_dataset() -> list[Sample[dict[str, Any], str]]:
    return [
        Sample(
            id=str(i),
            input=row,
            ground_truth=row["answer"],
            metadata={"difficulty": row["level"]},
        )
        for i, row in enumerate(load_jsonl(PROBLEMS))
    ]


# ── Scorer ──────────────────────────────────────────────────────────────────────────────────────
def score_fn(trajectory: Trajectory[Any], sample: Sample[Any, str]) -> Score:
    """Extract answer, check correctness."""
    response = trajectory.messages[-1].content
    extracted = extract_boxed_answer(response)
    correct = normalized_equal(extracted, sample.ground_truth)

    return Score(
        metrics=(
            # Reward (weight > 0)
            Metric("correct", 1.0 if correct else 0.0, weight=1.0),
            # Tracking only (weight = 0)
            Metric("num_turns", len(trajectory.messages), weight=0),
        )
    )


# ── Entry point ─────────────────────────────────────────────────────────────────────────────────
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="a model to ask instead of solver.py: openai/gpt-4o")
    parser.add_argument("--base-url", help="where the model is served, if not by its provider")
    parser.add_argument("--remote", action="store_true", help="run on $WINK_REMOTE_HOST")
    parser.add_argument("--gpu-id", help="and on this GPU of it")
    args = parser.parse_args()

    if args.remote or args.gpu_id:
        run_remote(__file__, gpu_id=args.gpu_id)
    else:
        run_config = config
        if args.model:
            run_config = replace(config, endpoint=Endpoint(args.model, base_url=args.base_url))

        report = trio.run(
            evaluate,
            load_dataset(),
            run_config,
            score_fn,
            prepare_messages,
        )

        report.save(f"outputs/evals/{config.experiment_name}")

        print(f"Score: {report.summary['mean']:.2%}")
        assert report.summary["mean"] > 0.5, f"Baseline should be >50%, got {report}"


if __name__ == "__main__":
    try:
        main()
    except WinkError as error:  # a missing package, or an unavailable server
        raise SystemExit(str(error)) from None
