"""How often `wink eval trend` raises a false alarm, and how often it sees a true change."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from weakincentives.evals.comparison.trend import (
    LINE_SHARE,
    MIN_RUNS,
    STEP_SHARE,
    adjusted_steps,
)
from weakincentives.evals.stats import change_point, linear_trend, mcnemar
from weakincentives.evals.stats.trends import over_looks

from .coverage import chances_of
from .tables import Table, percent

__all__ = ["PARTS", "decline_detected"]

RATE = 0.85
LAST = 10  # the runs that `trend` shows
SERIES = 20  # runs of which each is looked at
FOR_GOOD = "change for good"  # a deterministic agent: edits break and fix samples for good
CHANGES = {
    "-1 point a run": [-0.01 * run for run in range(LAST)],
    "-2 points a run": [-0.02 * run for run in range(LAST)],
    "-10 points after 5 runs": [-0.1 * (run >= 5) for run in range(LAST)],
    "-15 points in the last run": [-0.15 * (run == LAST - 1) for run in range(LAST)],
}


def _one_look(runs: int) -> Table:
    rng = np.random.default_rng(15)
    rows = []
    for shape in ("differ little", "differ", "differ much", FOR_GOOD):
        for last in (3, LAST):
            figures = []
            for n in (50, 100, 200):
                alarms = [any(_alarms(_equal(rng, n, shape, last), 1)) for _ in range(runs)]
                figures.append(percent(alarms))
            rows.append((f"samples {shape}, {last} runs", figures))
    columns = ["85%, equal runs", "n = 50", "n = 100", "n = 200"]
    return Table("an alarm of any kind in one look, --looks 1, %", columns, rows, at_most=5.5)


def _many_looks(shape: str, runs: int) -> Table:
    rng, runs = np.random.default_rng(17), max(4, runs // 4)  # each is a series of looks
    rows = []
    for n in (50, 100, 200):
        adjusted, alone = [], []
        for _ in range(runs):
            passes = _equal(rng, n, shape, SERIES)
            looks = [passes[:, max(0, end - LAST) : end] for end in range(MIN_RUNS, SERIES + 1)]
            once = [any(_alarms(look, 1)) for look in looks]
            alone.append(any(once))
            # More looks only make p-values larger.
            adjusted.append(
                any(
                    any(_alarms(look, SERIES))
                    for look, alarm in zip(looks, once, strict=True)
                    if alarm
                )
            )
        rows.append((f"n = {n}, samples {shape}", [percent(adjusted), percent(alone)]))
    columns = ["85%, equal runs", f"--looks {SERIES}", "--looks 1"]
    title = f"an alarm of any kind in {SERIES} looks, a quarter of the runs, %"
    return Table(title, columns, rows, at_most=7, reference=columns[2:])


def _power(looks: int, runs: int) -> Table:
    rng, runs = np.random.default_rng(16), max(4, runs // 4)
    rows = []
    for name, changes in CHANGES.items():
        for n in (100, 200):
            alarms = []
            for _ in range(runs):
                passes = _passes(rng, n, "differ little", changes)
                line, step, neighbours = _alarms(passes, looks)
                contrast = linear_trend(passes.tolist()).p_value
                alone = contrast is not None and contrast <= 0.05
                alarms.append((line, step, neighbours, line or step or neighbours, alone))
            rows.append((f"{name}, n = {n}", [percent(each) for each in zip(*alarms, strict=True)]))
    columns = ["85% at first", "line", "step", "run to run", "any", "a line alone, one look"]
    return Table(f"changes seen in {LAST} runs, %, --looks {looks}", columns, rows)


def decline_detected(n: int, runs: int) -> float:
    """Return how often one look at ten runs that lose a point each sees a line, in percent."""
    rng, detected = np.random.default_rng(18), []
    for _ in range(runs):
        passes = _passes(rng, n, "differ little", CHANGES["-1 point a run"])
        p_value = linear_trend(passes.tolist()).p_value
        detected.append(p_value is not None and p_value <= 0.05)
    return percent(detected)


def _passes(rng: np.random.Generator, n: int, shape: str, changes: Sequence[float]) -> np.ndarray:
    """Draw passes of n samples at 85 %, with a change of the rate for each run."""
    chances = np.clip(chances_of(rng, RATE, shape, n)[:, None] + np.array(changes), 0, 1)
    return (rng.random(chances.shape) < chances).astype(float)


def _equal(rng: np.random.Generator, n: int, shape: str, runs: int) -> np.ndarray:
    """Draw passes of runs whose true rate is the same."""
    if shape != FOR_GOOD:
        return _passes(rng, n, shape, [0.0] * runs)
    history = [rng.random(n) < RATE]
    for _ in range(runs - 1):  # 5 % of the samples change, as many up as down
        turned = rng.random(n) < np.where(history[-1], 0.025 / RATE, 0.025 / (1 - RATE))
        history.append(history[-1] ^ turned)
    return np.array(history, dtype=float).T


def _alarms(passes: np.ndarray, looks: int) -> tuple[bool, bool, bool]:
    """Return whether `wink eval trend` shows a line, a step, and a change from run to run."""
    samples = passes.tolist()
    line, step = linear_trend(samples).p_value, change_point(samples).p_value
    changes = np.diff(passes, axis=1)
    fixed, broken = (changes > 0).sum(axis=0), (changes < 0).sum(axis=0)
    p_values = [mcnemar(int(a), int(b)) for a, b in zip(fixed, broken, strict=True)]
    return (
        line is not None and over_looks(line, looks) <= 0.05 * LINE_SHARE,
        over_looks(step, looks) <= 0.05 * STEP_SHARE,
        min(adjusted_steps(p_values, looks)) <= 0.05,
    )


PARTS = (
    _one_look,
    *(partial(_many_looks, shape) for shape in ("differ little", "differ")),
    *(partial(_power, looks) for looks in (1, SERIES)),
)
