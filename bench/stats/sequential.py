"""Stopping early: how many samples it takes, how often it is right, and what its interval holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from weakincentives.evals import EvalConfig
from weakincentives.evals.engine.early_stopping import PairedRule, RateStoppingRule
from weakincentives.evals.stats.basic import wilson_interval

from .tables import Table, percent

__all__ = ["PARTS", "SAMPLES", "samples_until_compared", "samples_until_decided"]

SAMPLES = 500


# ── a width ─────────────────────────────────────────────────────────────────────────────────────


def _width(runs: int) -> Iterator[Table]:
    """All ways that a run can go are counted, so these figures are exact."""
    rates = (0.5, 0.7, 0.85, 0.9, 0.95, 0.98)
    rows, coverage = [], []
    for width in (0.1, 0.15, 0.2):
        figures = [_stopped_at_width(width, rate) for rate in rates]
        rows.append((f"{width * 100:g} points", [samples for samples, _ in figures]))
        coverage.append((f"{width * 100:g} points", [100 * held for _, held in figures]))
    columns = ["--stop-at-width", *(f"{rate * 100:g}%" for rate in rates)]
    yield Table("Mean samples until the interval is narrow, by pass rate", columns, rows, digits=0)
    yield Table("Its coverage, in percent", columns, coverage, at_least=94.9)
    usual, extreme = np.arange(0.5, 0.981, 0.01), np.arange(0.981, 0.9995, 0.001)
    lowest = [
        (f"{width * 100:g} points", [_least_coverage(width, each) for each in (usual, extreme)])
        for width in (0.1, 0.15, 0.2, 0.25, 0.4)
    ]
    columns = ["--stop-at-width", "50 to 98%", "beyond 98%"]
    yield Table("Its least coverage for any rate, in percent", columns, lowest, at_least=85)


def _least_coverage(width: float, rates: np.ndarray) -> float:
    return 100 * min(_stopped_at_width(width, float(rate))[1] for rate in rates)


def _stopped_at_width(width: float, rate: float) -> tuple[float, float]:
    """Return the mean number of samples, and the share of intervals that hold the rate."""
    undecided, n, samples, held = np.array([1.0]), 0, 0.0, 0.0
    while undecided.sum() > 1e-9:
        n += 1
        chances = np.zeros(n + 1)
        chances[:-1] += undecided * (1 - rate)
        chances[1:] += undecided * rate
        if n >= 20:
            low, high = _wilson_ends(n)
            stops = high - low <= width
            covers = (low <= rate) & (rate <= high)
            samples += n * float(chances[stops].sum())
            held += float(chances[stops & covers].sum())
            chances[stops] = 0.0
        undecided = chances
    return samples, held


@cache
def _wilson_ends(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the intervals of all numbers of passes."""
    ends = np.array([wilson_interval(k, n, z=2.1) for k in range(n + 1)])
    return ends[:, 0], ends[:, 1]


# ── decided ─────────────────────────────────────────────────────────────────────────────────────


def _decided(runs: int) -> Iterator[Table]:
    rates = (0.8, 0.88, 0.9, 0.92, 0.95)
    kinds = {
        "this dataset": ("dataset", 1),
        "this dataset, 5 epochs": ("dataset", 5),
        "all samples like it": ("population", 1),
        "all samples like it, 5 epochs": ("population", 5),
    }
    samples, shares, wrong = [], [], []
    for name, (decide_for, epochs) in kinds.items():
        figures = [samples_until_decided(decide_for, epochs, rate, runs) for rate in rates]
        samples.append((name, [each[0] for each in figures]))
        shares.append((name, [each[1] for each in figures]))
        wrong.append((name, [each[2] for each in figures]))
    columns = ["decided for", *(f"{rate * 100:g}%" for rate in rates)]
    title = f"--fail-under 85% --stop-against 85%, {SAMPLES} samples, a tenth of the runs"
    yield Table(f"{title}: mean samples, by pass rate", columns, samples, digits=0)
    yield Table(f"{title}: decided, in percent", columns, shares, digits=0)
    yield Table(f"{title}: intervals without the true rate, in percent", columns, wrong, at_most=5)


def samples_until_decided(
    decide_for: str, epochs: int, rate: float, runs: int
) -> tuple[float, float, float]:
    """Return the mean number of samples, how often it was decided, and how often wrongly, in %."""
    rng = np.random.default_rng(7)
    config = EvalConfig(stop_against=0.85, epochs=epochs, decide_for=decide_for)  # type: ignore[arg-type]
    samples, decided, missed = [], [], []
    for _ in range(max(4, runs // 10)):
        passes = rng.binomial(epochs, rng.beta(2 * rate, 2 * (1 - rate), SAMPLES))
        rule = RateStoppingRule(config, SAMPLES)
        samples.append(next((n for n, k in enumerate(passes, 1) if rule.add(n, int(k))), SAMPLES))
        decision = rule.decision
        truth = passes.sum() / epochs / SAMPLES if decide_for == "dataset" else rate
        decided.append(decision is not None)
        missed.append(decision is not None and not decision.low <= truth <= decision.high)
    return float(np.mean(samples)), percent(decided), percent(missed)


# ── compared while it runs ──────────────────────────────────────────────────────────────────────


def _paired(runs: int) -> Iterator[Table]:
    columns = ["samples, flips", "equal: claims", "samples", "10 points: shown", "samples ",
               "20 points: shown", "samples  "]  # fmt: skip
    rows = []
    for n, flips in ((100, 0.2), (172, 0.2), (172, 0.3), (400, 0.2)):
        figures = []
        for effect in (0.0, 0.1, 0.2):
            detected, samples = samples_until_compared(
                n, max(flips, effect), effect, max(4, runs // 2)
            )
            figures += [detected, samples]
        rows.append((f"{n}, {flips * 100:g}%", figures))
    yield Table(
        "--against RUN, half of the runs: percent, and mean samples",
        columns,
        rows,
    )
    settings = ((50, 0.2), (100, 0.1), (172, 0.2), (172, 0.3))
    sizes = [_claims(n, flips, 2 * runs) for n, flips in settings]  # to tell 5.5 from 5
    yield Table(
        "Two equal runs: better or worse is claimed, in percent",
        ["", "50 samples, 20% flips", "100, 10%", "172, 20%", "172, 30%"],
        [("claims", sizes)],
        at_most=5.5,
    )


def samples_until_compared(n: int, flips: float, effect: float, runs: int) -> tuple[float, float]:
    """Return how often a difference is shown, in %, and the mean number of samples."""
    rng = np.random.default_rng(11)
    detected, samples = [], []
    for _ in range(runs):
        before, after = _pair(rng, n, flips, effect)
        rule = PairedRule("A", {at: (int(old), 1) for at, old in enumerate(before)})
        samples.append(next((at + 1 for at in range(n) if rule.add(at, int(after[at]))), n))
        detected.append(rule.decision is not None and rule.decision.outcome != "none")
    return percent(detected), float(np.mean(samples))


def _claims(n: int, flips: float, runs: int) -> float:
    return samples_until_compared(n, flips, 0.0, runs)[0]


def _pair(
    rng: np.random.Generator, n: int, flips: float, effect: float
) -> tuple[np.ndarray, np.ndarray]:
    fixed, broken = (flips + effect) / 2, (flips - effect) / 2
    change = rng.choice([1, -1, 0], n, p=[fixed, broken, 1 - flips])
    before = np.where(change == 0, rng.random(n) < 0.8, change < 0)
    return before, before + change


PARTS = (_width, _decided, _paired)
