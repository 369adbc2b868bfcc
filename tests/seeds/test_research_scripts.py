"""The researcher's scripts, as files that a real Python runs against a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weakincentives.testing import ModelServer, Reply, ServedRequest

BASE_CONFIG = """
import os
from weakincentives.evals import EvalConfig
from weakincentives.rollouts import Endpoint

config = EvalConfig(endpoint=Endpoint(os.environ["MODEL"], base_url=os.environ["SERVER"]))
"""

ANSWERS = """
import re

def extract_boxed_answer(response):
    found = re.findall(r"boxed{(.*?)}", response)
    return found[-1] if found else ""

def normalized_equal(answer, expected):
    return answer.strip().lower() == expected.strip().lower()
"""

BASELINE = '''
"""Baseline eval on MATH-500. 100 samples, single-turn."""

from dataclasses import replace
from weakincentives.evals import EvalConfig, Sample, Score, Metric, Trajectory, evaluate
from weakincentives.evals.loaders import load_jsonl

from answers import extract_boxed_answer, normalized_equal

# ── Config ──────────────────────────────────────────────────────────
from configs.evals.math_base import config as base_config

config = replace(
    base_config,
    max_samples=100,
    max_concurrent=10,
    experiment_name="math_500_baseline",
)

# ── Dataset ─────────────────────────────────────────────────────────
def load_dataset() -> list[Sample]:
    return [
        Sample(
            id=str(i),
            input=row,
            ground_truth=row["answer"],
            metadata={"difficulty": row["level"]},
        )
        for i, row in enumerate(load_jsonl("data/math_500.jsonl"))
    ]

# ── Scorer ──────────────────────────────────────────────────────────
def score_fn(trajectory: Trajectory, sample: Sample) -> Score:
    """Extract answer, check correctness."""
    response = trajectory.messages[-1].content
    extracted = extract_boxed_answer(response)
    correct = normalized_equal(extracted, sample.ground_truth)

    return Score(metrics=(
        # Reward (weight > 0)
        Metric("correct", 1.0 if correct else 0.0, weight=1.0),
        # Tracking only (weight = 0)
        Metric("num_turns", len(trajectory.messages), weight=0),
    ))

# ── Entry Point ─────────────────────────────────────────────────────
if __name__ == "__main__":
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--remote", action="store_true")
    parser.add_argument("--gpu-id", type=str)
    args = parser.parse_args()

    if args.remote or args.gpu_id:
        run_remote(__file__, gpu_id=args.gpu_id)
    else:
        import trio

        report = trio.run(
            evaluate,
            load_dataset(),
            config,
            score_fn,
        )

        report.save(f"outputs/evals/{config.experiment_name}")

        print(f"Score: {report.summary['mean']:.2%}")
        assert report.summary["mean"] > 0.5, "Baseline should be >50%"
'''

ANALYSIS = '''
"""Slice and dice evaluation results post-hoc."""

from weakincentives.evals import EvalReport
from weakincentives.evals.analysis import group_by, summarize
from pathlib import Path

# ── Load Results ────────────────────────────────────────────────────
runs = [EvalReport.load(p) for p in Path("outputs/evals").glob("math_500_*")]

# ── Slice by Difficulty ─────────────────────────────────────────────
for run in runs:
    print(f"\\n=== {run.config['experiment_name']} ===")
    print(f"Overall: {run.summary['mean']:.2%}")

    by_difficulty = group_by(run.results, key=lambda r: r.metadata["difficulty"])
    for level, results in sorted(by_difficulty.items()):
        stats = summarize(results)
        print(f"  Level {level}: {stats['mean']:.2%} (n={stats['n']})")

# ── Inspect Failures ────────────────────────────────────────────────
latest = runs[-1]
failures = [r for r in latest.results if r.score.reward < 0.5]
print(f"\\n=== Failed Samples ({len(failures)}) ===")
for r in failures[:5]:
    print(f"  {r.sample_id}: reward={r.score.reward:.2f}")
    for m in r.score.metrics:
        print(f"    {m.name}: {m.value}" + (f" (w={m.weight})" if m.weight > 0 else ""))
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write 120 problems into a project folder with the layout of the specification."""
    files = {
        "configs/evals/math_base.py": BASE_CONFIG,
        "answers.py": ANSWERS,
        "experiments/evals/math_500/baseline_01_01.py": BASELINE,
        "scripts/analyze_math_evals.py": ANALYSIS,
        "data/math_500.jsonl": "".join(
            f'{{"problem": "{n} + {n}", "answer": "{2 * n}", "level": {n % 5 + 1}}}\n'
            for n in range(120)
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


Run = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["openai/gpt-4o", "llama-3"])  # with the SDK, and without
def run(request: pytest.FixtureRequest, project: Path) -> Iterator[Run]:
    """Return a function that runs a file of the project; the model fails every tenth problem."""

    def solve(http_request: ServedRequest) -> Reply:
        left, right = map(int, re.findall(r"\d+", http_request.body["messages"][-1]["content"]))
        mistake = 1 if left % 10 == 4 else 0
        return Reply(rf"So it is \boxed{{{left + right + mistake}}}.")

    with ModelServer(solve) as server:
        settings = {
            "PATH": "",
            "PYTHONPATH": ":".join([str(project), *sys.path]),
            "MODEL": request.param,
            "SERVER": server.openai_base_url,
        }
        yield lambda file: subprocess.run(
            [sys.executable, file], cwd=project, env=settings, capture_output=True, text=True
        )


def test_a_researcher_runs_an_experiment_and_slices_it(run: Run, project: Path) -> None:
    done = run("experiments/evals/math_500/baseline_01_01.py")

    assert (done.stdout, done.stderr, done.returncode) == ("Score: 90.00%\n", "", 0)
    assert (project / "outputs/evals/math_500_baseline/results.jsonl").exists()

    sliced = run("scripts/analyze_math_evals.py")

    assert (sliced.stderr, sliced.returncode) == ("", 0)
    assert sliced.stdout.splitlines() == [
        "",
        "=== math_500_baseline ===",
        "Overall: 90.00%",
        "  Level 1: 100.00% (n=20)",
        "  Level 2: 100.00% (n=20)",
        "  Level 3: 100.00% (n=20)",
        "  Level 4: 100.00% (n=20)",
        "  Level 5: 50.00% (n=20)",
        "",
        "=== Failed Samples (10) ===",
        *(
            line
            for id in ("4", "14", "24", "34", "44")
            for line in (
                f"  {id}: reward=0.00",
                "    correct: 0.0 (w=1.0)",
                "    num_turns: 2.0",
            )
        ),
    ]
