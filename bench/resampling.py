"""Benchmark comparisons of two runs with a bootstrap, against resampling with NumPy alone.

The floor draws and averages one resample at a time. Values with many and with few levels are
measured separately: with few levels, no draw per sample is needed.
"""

from __future__ import annotations

import numpy as np

from weakincentives.evals.stats import (
    bootstrap_interval,
    mean_interval,
    paired_difference,
    permutation_test,
)

from .core import Figure, best_time

__all__ = ["measure", "run"]


def compare_with_bootstrap(before: list[float], after: list[float], resamples: int) -> None:
    """Compute what a comparison with resampling computes."""
    mean_interval(before)
    mean_interval(after)
    paired_difference(before, after)
    changes = [new - old for old, new in zip(before, after, strict=True)]
    bootstrap_interval(changes, resamples=resamples)


def measure(count: int) -> list[Figure]:
    """Return the figures for `count` samples, with at most 10,000 and at most `count` resamples."""
    resamples = min(10_000, count)
    rng = np.random.default_rng(0)
    scores = rng.random((2, count)).tolist()
    passes = rng.integers(2, size=(2, count)).astype(float).tolist()
    changes = np.subtract(scores[1], scores[0])

    def floor() -> None:
        draw = np.random.default_rng(0)
        for _ in range(resamples):
            changes[draw.integers(count, size=count)].mean()

    def flips() -> None:
        draw = np.random.default_rng(0)
        for _ in range(resamples):
            (changes * (2.0 * draw.integers(2, size=count) - 1)).mean()

    rounds = 1 if count > 20_000 else 3
    bare = best_time(floor, rounds)
    return [
        Figure(
            "compare scores / bare resampling",
            best_time(lambda: compare_with_bootstrap(*scores, resamples), rounds),
            bare,
            "x",
            3.0,
            count,
        ),
        Figure(
            "compare passes / bare resampling",
            best_time(lambda: compare_with_bootstrap(*passes, resamples), rounds),
            bare,
            "x",
            3.0,
            count,
        ),
        Figure(
            "permutation test / bare sign flips",
            best_time(lambda: permutation_test(changes, resamples=resamples), rounds),
            best_time(flips, rounds),
            "x",
            3.0,
            count,
        ),
    ]


def run(count: int, slack: float = 1.0) -> int:
    """Print the figures; return how many bars were missed. `slack` is a factor on each bar."""
    resamples = min(10_000, count)
    print(f"{count:,} samples, {resamples:,} resamples, NumPy {np.__version__}\n")
    print(f"{'':<42}{'ours':>9}{'floor':>9}{'figure':>11}{'bar':>9}")
    missed = 0
    for f in measure(count):
        mark = "" if f.value <= f.bar * slack else "  missed"
        missed += bool(mark)
        print(
            f"{f.name:<42}{f.ours:>8.3f}s{f.floor:>8.3f}s"
            f"{f.value:>9.2f} {f.unit:<2}{f.bar:>6.1f} {f.unit:<2}{mark}"
        )
    print()
    return missed
