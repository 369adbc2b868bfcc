"""The power that `compare` and `wink eval power` state, against the power that a claim has."""

from __future__ import annotations

import numpy as np

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
        seen = minimum_detectable_flips(n, flips)
        needed = samples_needed_flips(effect, max(flips, effect))
        rows.append(
            (
                f"{flips:.0%} flip",
                [
                    _power(rng, runs, n, seen, max(flips, seen)),
                    _power(rng, runs, needed, effect, max(flips, effect)),
                    100 * flip_power(needed, effect, max(flips, effect)),
                ],
            )
        )
    columns = ["", "could have seen", "samples needed", "stated for these"]
    return Table("power in %, where at least 80 are stated", columns, rows, at_least=78, at_most=86)


def _power(rng: np.random.Generator, runs: int, n: int, effect: float, flips: float) -> float:
    """Simulate how often a true effect is claimed, in its direction."""
    shown = []
    for fixed, broken, _ in rng.multinomial(
        n, [(flips + effect) / 2, max(0.0, (flips - effect) / 2), 1 - flips], runs
    ):
        before, after = np.zeros((n, 1)), np.zeros((n, 1))
        after[:fixed] = 1.0
        before[n - broken :] = 1.0
        found = compared(before, after)
        shown.append(claimed(found) and found.delta.estimate > 0)
    return percent(shown)


PARTS = (_stated,)
