"""Some simulations of `python -m bench stats` with few runs: their figures stay within limits.

`tests/test_bench_command.py` runs all of them with even fewer runs, which finds gross errors only;
figures that are exact, whatever the number of runs, are checked there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.stats import FULL, Table, choosing, correction, gates, power, trends

# The other tests cover the same code, and measuring it here would double the time.
pytestmark = pytest.mark.no_cover


@pytest.mark.slow
@pytest.mark.parametrize(
    ("simulate", "runs"),
    [
        (choosing._best_of_eight, 100),
        (correction._kappas_of_files, 40),
        (gates._fail_under, 10),
        (power._with_epochs, 40),
        (trends._one_look, 15),
    ],
)
def test_simulated_figures_stay_within_their_limits(
    simulate: Callable[[int], Table], runs: int
) -> None:
    assert simulate(runs).missed(runs) == []


def test_few_runs_may_be_off_but_exact_figures_may_not() -> None:
    table = Table("", ["", "rate"], [("a", [6.0])], at_most=5)

    assert table.missed(10) == []
    assert table.missed(FULL) == ["a, rate: 6.0"]
    assert replace(table, exact=True).missed(10) == ["a, rate: 6.0"]
