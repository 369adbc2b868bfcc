"""The power that `compare` and `wink eval power` state, against the power that a claim has."""

from __future__ import annotations

import math

import numpy as np

from weakincentives.evals.comparison.measures import Flips
from weakincentives.evals.stats import (
    flip_power,
    minimum_detectable_flips,
    samples_needed_flips,
)

from .comparison import claimed, compared
from .tables import Table, percent

__all__ = ["PARTS"]


def _stated(runs: int) -> Table:
    rng = np.random.default_rng(21)
    rows = []
    for flips, effect in ((0.01, 0.1), (0.1, 0.08), (0.2, 0.1), (0.3, 0.1)):
        n = 100
        detectable = minimum_detectable_flips(n, flips)
        needed = samples_needed_flips(effect, max(flips, effect))
        rows.append(
            (
                f"{flips:.0%} flip",
                [
                    _power(rng, runs, n, detectable, max(flips, detectable)),
                    _power(rng, runs, needed, effect, max(flips, effect)),
                    100 * flip_power(needed, effect, max(flips, effect)),
                ],
            )
        )
    columns = ["", "could have seen", "samples needed", "stated for these"]
    return Table("power in %, where at least 80 are stated", columns, rows, at_least=78, at_most=86)


def _power(rng: np.random.Generator, runs: int, n: int, effect: float, flips: float) -> float:
    """Simulate how often a true effect is claimed, in its direction."""
    detected = []
    for fixed, broken, _ in rng.multinomial(
        n, [(flips + effect) / 2, max(0.0, (flips - effect) / 2), 1 - flips], runs
    ):
        before, after = np.zeros((n, 1)), np.zeros((n, 1))
        after[:fixed] = 1.0
        before[n - broken :] = 1.0
        difference = compared(before, after)
        detected.append(claimed(difference) and difference.delta.estimate > 0)
    return percent(detected)


def _with_epochs(runs: int) -> Table:
    """Plans of `wink eval power` for runs with epochs, of agents that find the same samples hard.

    Attempts at a sample are then independent, and a sample counts as many pairs as it has epochs.
    """
    rng = np.random.default_rng(22)
    rows = []
    for effect in (0.05, 0.1):
        for rate in (0.5, 0.7):
            figures = []
            for epochs in (1, 3, 5):
                drawn = np.clip(rng.beta(10 * rate, 10 * (1 - rate), 100_000), 0, 1 - effect)
                raised = drawn + effect
                share = float(np.mean(drawn * (1 - raised) + raised * (1 - drawn)))
                flips = Flips(max(share, effect), epochs)
                n = math.ceil(samples_needed_flips(effect, flips.share) / flips.pairs_per_sample)
                detected = []
                for _ in range(runs):
                    chances = rng.choice(drawn, n)[:, None]
                    before = (rng.random((n, epochs)) < chances).astype(float)
                    after = (rng.random((n, epochs)) < chances + effect).astype(float)
                    difference = compared(before, after)
                    detected.append(claimed(difference) and difference.delta.estimate > 0)
                figures.append(percent(detected))
            rows.append((f"{100 * effect:g} points, from {rate:.0%}", figures))
    columns = ["", "1 epoch", "3 epochs", "5 epochs"]
    return Table("power in %, where 80 are planned", columns, rows, at_least=75, at_most=86)


PARTS = (_stated, _with_epochs)
