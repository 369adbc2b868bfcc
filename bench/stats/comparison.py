"""Comparisons of two runs: false alarms, the size of a gate with a margin, and what mid-p saves."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import optimize, stats

from weakincentives.evals.comparison.compare import adjust_secondary
from weakincentives.evals.stats import mcnemar, paired_difference, unpaired_difference
from weakincentives.evals.stats.differences import Difference

from .coverage import SHAPES, chances_of
from .tables import NEGLIGIBLE, Table, percent

__all__ = ["PARTS", "claimed", "compared", "exact_factor"]

_ALARMS = 5.5  # 5 % of runs, and a standard error of as many simulated runs as usual


def claimed(difference: Difference, p_value: float | None = None) -> bool:
    """Return whether `compare` claims a difference."""
    p = difference.p_value if p_value is None else p_value
    return p is not None and p <= 0.05 and not difference.delta.low <= 0 <= difference.delta.high


def compared(before: np.ndarray, after: np.ndarray) -> Difference:
    """Compare passes, by sample and epoch."""
    samples, epochs = before.shape
    names = None if epochs == 1 else np.repeat(np.arange(samples), epochs).tolist()
    return paired_difference(before.ravel().tolist(), after.ravel().tolist(), clusters=names)


def _same_agent(runs: int) -> list[Table]:
    rng = np.random.default_rng(11)
    rows = []
    for epochs in (1, 3, 5):
        for n in (50, 100, 200):
            figures = []
            for shape in SHAPES:
                alarms = []
                for _ in range(runs):
                    own = chances_of(rng, 0.8, shape, (n, 1))
                    sides = (rng.random((2, n, epochs)) < own).astype(float)
                    alarms.append(claimed(compared(*sides)))
                figures.append(percent(alarms))
            rows.append((f"{n} samples x {epochs}", figures))
    title = "two runs of one agent that passes 80%: % in which a difference is claimed"
    columns = ["samples x epochs", *SHAPES]
    several = [(name, figures[:3]) for name, figures in rows]
    enough = [row for row in several if not row[0].startswith("50 ")]
    small = [row for row in several if row[0].startswith("50 ")]
    few = [(name, figures[3:]) for name, figures in rows]
    return [
        Table(title, columns[:4], enough, at_least=3, at_most=_ALARMS),
        Table(f"{title}, small runs", columns[:4], small, at_least=2.5, at_most=_ALARMS),
        Table(f"{title}, hardly any flips", [columns[0], columns[4]], few, at_most=_ALARMS),
    ]


def _repeats(runs: int) -> Table:
    """Repeat a deterministic agent whose samples flip at random from one run to the next."""
    rng = np.random.default_rng(12)
    rows = []
    for n, flips in ((50, 0.1), (100, 0.05), (100, 0.2)):
        figures = []
        for epochs in (1, 3, 5):
            alarms = []
            for _ in range(runs):
                before = rng.random((n, 1)) < 0.8
                after = before ^ _flipping(rng, before, flips / 2, flips / 2)
                sides = (np.repeat(side, epochs, axis=1).astype(float) for side in (before, after))
                alarms.append(claimed(compared(*sides)))
            figures.append(percent(alarms))
        rows.append((f"{n} samples, {flips:.0%} flip", figures))
    title = "whole samples flip, as often up as down: % in which a difference is claimed"
    return Table(title, ["", "1 epoch", "3 epochs", "5 epochs"], rows, at_most=_ALARMS)


def _flipping(
    rng: np.random.Generator, before: np.ndarray, fixed: float, broken: float
) -> np.ndarray:
    """Return which samples flip, so that these shares of all are fixed and broken."""
    return rng.random(before.shape) < np.where(before, broken / 0.8, fixed / 0.2)


def _whole_tables(runs: int) -> Table:
    """Passes, scores, time, tokens and cost of two equal runs, and whether any row claims."""
    rng = np.random.default_rng(13)
    rows = []
    for n in (50, 100, 300):
        metric, anything, raw = [], [], []
        for _ in range(5 * runs):  # to tell 5.5 from 5
            own = rng.beta(1.6, 0.4, n)
            base = rng.lognormal(0, 0.5, n)
            passed = (rng.random((2, n)) < own).astype(float)
            scores = np.where(passed == 1, 1.0, rng.random((2, n)))
            tokens = base * rng.lognormal(0, 0.3, (2, n))
            time = tokens * rng.lognormal(0, 0.3, (2, n))
            differences = [
                paired_difference(*(side.tolist() for side in sides))
                for sides in (passed, scores, time, tokens, tokens / 1000)
            ]
            metric.append(claimed(differences[0]))
            raw.append(any(map(claimed, differences)))
            p_values = [each.p_value or 0.0 for each in differences[1:]]
            adjusted = adjust_secondary(p_values, [metric[-1]] * len(p_values))
            anything.append(metric[-1] or any(map(claimed, differences[1:], adjusted)))
        rows.append((f"{n} samples", [percent(each) for each in (metric, anything, raw)]))
    columns = ["", "the metric", "any row", "any row, not adjusted"]
    title = (
        "two runs of one agent, 5 times the runs: % of tables in which a row claims a difference"
    )
    return Table(title, columns, rows, at_least=3, at_most=5.5, reference=["any row, not adjusted"])


def _non_inferior(runs: int) -> list[Table]:
    """Runs that are worse by exactly the margin, of which a one-sided rule at 2.5% passes few."""
    rng = np.random.default_rng(14)
    rows, covering = [], []
    for n, margin in ((50, 0.1), (100, 0.05), (200, 0.05)):
        figures, covered = [], []
        for epochs in (1, 3, 5):
            passing, holding = [], []
            for _ in range(runs):
                before = rng.random((n, 1)) < 0.8
                after = before ^ _flipping(rng, before, 0.02, 0.02 + margin)
                sides = (np.repeat(side, epochs, axis=1).astype(float) for side in (before, after))
                delta = compared(*sides).delta
                passing.append(delta.low > -margin)
                holding.append(-margin in delta)
            figures.append(percent(passing))
            covered.append(percent(holding))
        rows.append((f"{n} samples, margin {100 * margin:g} points", figures))
        covering.append((f"{n} samples, {100 * margin:g} points worse", covered))
    columns = ["", "1 epoch", "3 epochs", "5 epochs"]
    return [
        Table("worse by exactly the margin: % above it at 97.5%", columns, rows, at_most=3),
        Table("coverage of the difference", columns, covering, at_least=93),
    ]


@cache
def _shows(n: int, *, exact: bool) -> np.ndarray:
    """Return a matrix of which numbers of fixed and broken show a difference."""
    table = np.zeros((n + 1, n + 1), dtype=bool)
    enough = 0  # the least number of broken with which as many fixed show nothing
    for fixed in range(n + 1):
        # The p-value rises with what is broken, and falls with what is fixed.
        while enough < fixed and mcnemar(fixed, enough, exact=exact) <= 0.05:
            enough += 1
        table[fixed, :enough] = table[:enough, fixed] = True
    return table


def _chance(n: int, fixing: float, breaking: float, shows: np.ndarray) -> float:
    """Return the exact chance that a comparison shows a difference."""
    flips = fixing + breaking
    total = 0.0
    for count, chance in enumerate(stats.binom.pmf(range(n + 1), n, flips)):
        if chance > 1e-12:
            fixed = np.arange(count + 1)
            split = stats.binom.pmf(fixed, count, fixing / flips)
            total += chance * float(split @ shows[fixed, count - fixed])
    return total


def _mid_p_size(runs: int) -> Table:
    """Compute it exactly, whatever the number of runs."""
    rows = []
    for n in (10, 30, 50, 100, 200):
        sizes = []
        for exact in (False, True):
            shows = _shows(n, exact=exact)
            sizes.append(100 * max(_chance(n, q / 2, q / 2, shows) for q in (0.05, 0.2, 0.4, 0.7)))
        rows.append((f"{n} samples", sizes))
    title = "largest size of McNemar's test for 5 to 70% of flips, exactly computed, in %"
    return Table(title, ["", "mid-p", "exact"], rows, at_most=5.0, digits=2, exact=True)


def exact_factor(n: int, flips: float) -> float:
    """Return how many times as many samples the exact test needs for the power of mid-p with `n`.

    The effect is one that mid-p shows in 80% of cases, or the largest that these flips allow.
    """

    def power(effect: float, samples: int, shows: np.ndarray) -> float:
        return _chance(samples, (flips + effect) / 2, (flips - effect) / 2, shows)

    mid_p, effect = _shows(n, exact=False), flips - 1e-6
    if power(effect, n, mid_p) > 0.8:
        effect = optimize.brentq(lambda e: power(e, n, mid_p) - 0.8, 0.01, effect, xtol=1e-4)
    aim, more = power(effect, n, mid_p) - 1e-4, n
    while power(effect, more, _shows(more, exact=True)) < aim:
        more += max(1, n // 50)
    return more / n


def _savings(runs: int) -> Table:
    """Compute it exactly, whatever the number of runs."""
    shares = (0.1, 0.2, 0.3)
    rows = [
        (f"{n} samples", [100 * (exact_factor(n, flips) - 1) for flips in shares])
        for n in (50, 100, 200)
    ]
    title = "samples that the exact test needs in addition, for the power of mid-p, in %"
    columns = ["", *(f"{flips:.0%} flip" for flips in shares)]
    return Table(title, columns, rows, at_least=8, at_most=24, digits=0)


def _unpaired(runs: int) -> Table:
    """Two runs of different samples: all outcomes are counted, whatever the number of runs."""
    rows, rates = [], (0.5, 0.7, 0.9)
    for n, m in ((10, 100), (20, 100), (50, 50), (100, 100)):
        claims = np.zeros((n + 1, m + 1), dtype=bool)
        likely = np.max([_outcomes(n, m, rate) for rate in rates], axis=0) > NEGLIGIBLE
        for a, b in np.argwhere(likely).tolist():
            sides = [1.0] * a + [0.0] * (n - a), [1.0] * b + [0.0] * (m - b)
            claims[a, b] = claimed(unpaired_difference(*sides))
        figures = [_size(n, m, rate, claims) for rate in rates]
        every = np.arange(0.02, 0.99, 0.02)
        chi_squared = max(_size(n, m, rate, _chi_squared(n, m)) for rate in every)
        rows.append((f"{n} against {m} samples", [*figures, chi_squared]))
    title = "unpaired runs of one agent: % in which a difference is claimed, exactly computed"
    columns = ["", *(f"{rate:.0%}" for rate in rates), "chi-squared, at most"]
    return Table(title, columns, rows, at_most=5.8, reference=columns[4:], exact=True)


def _size(n: int, m: int, rate: float, claims: np.ndarray) -> float:
    return 100 * float(_outcomes(n, m, rate)[claims].sum())


def _outcomes(n: int, m: int, rate: float) -> np.ndarray:
    """Return a matrix of how likely the two runs have these numbers of passes."""
    chances = (stats.binom.pmf(range(size + 1), size, rate) for size in (n, m))
    return np.outer(*chances)


def _chi_squared(n: int, m: int) -> np.ndarray:
    """Return a matrix of which numbers of passes differ by the chi-squared test, with N - 1."""
    a, b = np.arange(n + 1)[:, None], np.arange(m + 1)[None, :]
    passed, total = a + b, n + m
    spread = np.where((passed > 0) & (passed < total), passed * (total - passed), 1)
    statistic = (a * (m - b) - b * (n - a)) ** 2 * (total - 1) / (n * m * spread)
    return np.asarray(statistic >= stats.chi2.ppf(0.95, 1))


PARTS = (
    _same_agent,
    _repeats,
    _whole_tables,
    _non_inferior,
    _mid_p_size,
    _savings,
    _unpaired,
)
