"""How often `wink eval trend` raises a false alarm, and how often it sees a true change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weakincentives.evals.comparison.trend import MIN_RUNS, adjusted_steps
from weakincentives.evals.stats import change_point, linear_trend, mcnemar

from .coverage import chances_of
from .tables import Table, percent

__all__ = ["tables"]

LAST = 10  # the runs that `trend` shows
SERIES = 20  # runs of which each is looked at
CHANGES = {
    "-1 point a run": [-0.01 * run for run in range(LAST)],
    "-2 points a run": [-0.02 * run for run in range(LAST)],
    "-10 points after 5 runs": [-0.1 * (run >= 5) for run in range(LAST)],
}


def tables(runs: int) -> list[Table]:
    """Return false alarms in one look and in a series of looks, and the power of one look."""
    runs = max(50, runs // 4)  # each is a series of looks
    return [_false_alarms(runs), *(_power(runs, looks) for looks in (1, SERIES))]


def _false_alarms(runs: int) -> Table:
    rng = np.random.default_rng(15)
    rows = []
    for n in (50, 100):
        for shape in ("differ little", "differ"):
            found = [_series(_passes(rng, n, shape, [0.0] * SERIES)) for _ in range(runs)]
            rows.append(
                (f"n = {n}, samples {shape}", [percent(each) for each in zip(*found, strict=True)])
            )
    columns = ["85%, equal runs", "one look", f"{SERIES} looks", "20 looks, --looks 1"]
    return Table(
        "series with a false alarm of any kind, %", columns, rows, at_most=8, reference=columns[3:]
    )


def _power(runs: int, looks: int) -> Table:
    rng = np.random.default_rng(16)
    rows = []
    for name, changes in CHANGES.items():
        for n in (100, 200):
            found = []
            for _ in range(runs):
                passes = _passes(rng, n, "differ little", changes)
                line, step = _history(passes, looks)
                found.append((line, step, line or step, _steps(passes, looks)))
            rows.append((f"{name}, n = {n}", [percent(each) for each in zip(*found, strict=True)]))
    columns = ["85% at first", "line", "step", "either", "run to run"]
    return Table(f"changes seen in {LAST} runs, %, --looks {looks}", columns, rows)


def _passes(rng: np.random.Generator, n: int, shape: str, changes: Sequence[float]) -> np.ndarray:
    """Draw passes of n samples at 85 %, with a change of the rate for each run."""
    chances = np.clip(chances_of(rng, 0.85, shape, n)[:, None] + np.array(changes), 0, 1)
    return (rng.random(chances.shape) < chances).astype(float)


def _series(passes: np.ndarray) -> tuple[bool, bool, bool]:
    """Return whether the last look alarms, whether any does, and any without adjusting for it."""
    once, often = [], []
    for end in range(MIN_RUNS, SERIES + 1):
        shown = passes[:, max(0, end - LAST) : end]
        once.append(any((*_history(shown, 1), _steps(shown, 1))))
        # More looks only make p-values larger.
        often.append(once[-1] and any((*_history(shown, SERIES), _steps(shown, SERIES))))
    return once[-1], any(often), any(once)


def _history(passes: np.ndarray, looks: int) -> tuple[bool, bool]:
    """Return whether a line and a step are shown; both share half of the false alarms."""
    samples = passes.tolist()
    line, step = (test(samples, looks=looks).p_value for test in (linear_trend, change_point))
    return line is not None and 2 * line <= 0.05, step is not None and 2 * step <= 0.05


def _steps(passes: np.ndarray, looks: int) -> bool:
    """Return whether a change from one run to the next is shown."""
    changes = np.diff(passes, axis=1)
    fixed, broken = (changes > 0).sum(axis=0), (changes < 0).sum(axis=0)
    p_values = [mcnemar(int(a), int(b)) for a, b in zip(fixed, broken, strict=True)]
    return min(adjusted_steps(p_values, looks)) <= 0.05
