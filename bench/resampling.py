"""Comparison of two runs with a bootstrap, beside NumPy's own time to resample.

The floor draws and averages, a resample at a time, and does nothing else. Values with many and
with few levels are apart: few levels need no draw for each sample.
"""

from __future__ import annotations

import numpy as np

from weakincentives.evals.statistics import (
    bootstrap_interval,
    mean_interval,
    paired_difference,
    permutation_test,
)

from .core import Figure, best

__all__ = ["measure", "run"]


def compared(before: list[float], after: list[float], resamples: int) -> None:
    """All that a comparison with resampling computes."""
    mean_interval(before)
    mean_interval(after)
    paired_difference(before, after)
    changes = [new - old for old, new in zip(before, after, strict=True)]
    bootstrap_interval(changes, resamples=resamples)


def measure(count: int) -> list[Figure]:
    """The figures at `count` samples; fewer than 10,000 resamples where samples are few."""
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
    bare = best(floor, rounds)
    return [
        Figure(
            "compare scores / bare resampling",
            best(lambda: compared(*scores, resamples), rounds),
            bare,
            "x",
            3.0,
            count,
        ),
        Figure(
            "compare passes / bare resampling",
            best(lambda: compared(*passes, resamples), rounds),
            bare,
            "x",
            3.0,
            count,
        ),
        Figure(
            "permutation test / bare sign flips",
            best(lambda: permutation_test(changes, resamples=resamples), rounds),
            best(flips, rounds),
            "x",
            3.0,
            count,
        ),
    ]


def run(count: int, slack: float = 1.0) -> int:
    """Print the figures; the number of bars that were missed, each times `slack`."""
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
