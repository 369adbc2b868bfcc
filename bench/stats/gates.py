"""How often gates are wrong, and how often they decide: the figures of docs/ci.md.

The agent passes 85 % of the samples. Its samples differ as those of `coverage` do. A gate is
one-sided with a confidence of 95 %, so it may be wrong in 5 % of cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache
from itertools import product

import numpy as np
from scipy.stats import multinomial

from weakincentives.evals.comparison.gates import (
    BaselineRule,
    check_rate,
    rule_outcome,
    two_sided_confidence,
)
from weakincentives.evals.comparison.run_comparison import Measure
from weakincentives.evals.stats import paired_difference
from weakincentives.evals.stats.differences import Difference
from weakincentives.evals.stats.pass_rate import counted_rate
from weakincentives.evals.stats.power import samples_needed_margin

from .coverage import chances_of
from .tables import NEGLIGIBLE, Table, percent

__all__ = ["PARTS", "outcome"]

RATE = 0.85
CONFIDENCE = two_sided_confidence(0.95)
SHAPES = ("differ little", "differ much")
SAMPLES = (50, 100, 200)
EPOCHS = (1, 3, 5)


def outcome(
    before: np.ndarray,
    after: np.ndarray,
    rule: BaselineRule,
    margin: float = 0.0,
    clusters: Sequence[Hashable] | None = None,
) -> str:
    """Return what a gate says of passes by sample and epoch, as `compare_runs` pairs them."""
    if before.shape[1] == after.shape[1]:
        old, new = before.ravel(), after.ravel()
    else:  # each epoch of one run with each of the other
        old = np.repeat(before, after.shape[1], axis=1).ravel()
        new = np.tile(after, before.shape[1]).ravel()
    pairs = len(old) // len(before)
    if clusters is None and pairs == 1:
        fixed, broken = int(np.sum(new > old)), int(np.sum(new < old))
        return _by_counts(fixed, broken, len(old), rule, margin)
    names = np.repeat(range(len(before)) if clusters is None else clusters, pairs)
    difference = paired_difference(
        old.astype(float),
        new.astype(float),
        clusters=names.tolist(),
        binary=True,
        confidence=CONFIDENCE,
    )
    measure = Measure(name="passed", before=old.mean(), after=new.mean(), difference=difference)
    return rule_outcome(measure, rule, margin)


@cache
def _by_counts(fixed: int, broken: int, n: int, rule: BaselineRule, margin: float) -> str:
    difference = _difference(fixed, broken, n)
    return rule_outcome(
        Measure(name="passed", before=0, after=0, difference=difference), rule, margin
    )


@cache
def _difference(fixed: int, broken: int, n: int) -> Difference:
    old = [0.0] * fixed + [1.0] * broken + [1.0] * (n - fixed - broken)
    new = [1.0] * fixed + [0.0] * broken + [1.0] * (n - fixed - broken)
    return paired_difference(old, new, binary=True, confidence=CONFIDENCE)


def _drawn(rng: np.random.Generator, chances: np.ndarray, epochs: int) -> np.ndarray:
    return rng.random((len(chances), epochs)) < chances[:, None]


def _worse(rng: np.random.Generator, chances: np.ndarray, points: float, how: str) -> np.ndarray:
    """Return chances whose expected mean is lower: a few samples break, or all are harder."""
    share = points / 100 / RATE
    if how == "some samples break":
        return np.where(rng.random(len(chances)) < share, 0.0, chances)
    return chances * (1 - share)


def _equal_runs(runs: int) -> Table:
    rng, rows = np.random.default_rng(11), []
    for shape in SHAPES:
        for epochs in EPOCHS:
            figures = []
            for n in SAMPLES:
                hits = []
                for _ in range(runs):
                    chances = chances_of(rng, RATE, shape, n)
                    a, b = _drawn(rng, chances, epochs), _drawn(rng, chances, epochs)
                    hits.append(outcome(a, b, "no-regression") == "failed")
                figures.append(percent(hits))
            rows.append((f"samples {shape}, epochs {epochs}", figures))
    title = "% of equal runs that no-regression fails"
    return Table(title, ["", *(f"n = {n}" for n in SAMPLES)], rows, at_most=5.5)


def _at_the_margin(runs: int) -> Table:
    rng, rows, margin = np.random.default_rng(12), [], 5.0
    for how in ("some samples break", "all are harder"):
        for shape in SHAPES:
            for epochs in EPOCHS:
                figures = []
                for n in SAMPLES:
                    hits = []
                    for _ in range(runs):
                        chances = chances_of(rng, RATE, shape, n)
                        later = _worse(rng, chances, margin, how)
                        a, b = _drawn(rng, chances, epochs), _drawn(rng, later, epochs)
                        hits.append(outcome(a, b, "non-inferior", margin) == "passed")
                    figures.append(percent(hits))
                rows.append((f"{how}, samples {shape}, epochs {epochs}", figures))
    title = "% of runs that are worse by the margin and that --margin 5 passes"
    return Table(title, ["", *(f"n = {n}" for n in SAMPLES)], rows, at_most=6)


def _margin_exactly(runs: int) -> Table:
    """All outcomes of one epoch are counted, whatever the number of runs."""
    rows = []
    for n in SAMPLES:
        counts = np.array([(f, b) for f in range(n + 1) for b in range(n + 1 - f)])
        table = np.column_stack([counts, n - counts.sum(axis=1)])
        for margin in (5.0, 10.0):
            rates = [(fixed, fixed + margin / 100) for fixed in (0.01, 0.05, 0.1)]
            chances = [multinomial.pmf(table, n, [f, b, 1 - f - b]) for f, b in rates]
            # The others would take long, and change the last digit of no figure.
            likely = np.max(chances, axis=0) > NEGLIGIBLE
            passing = np.zeros(len(counts), dtype=bool)
            passing[likely] = [
                _by_counts(f, b, n, "non-inferior", margin) == "passed"
                for f, b in counts[likely].tolist()
            ]
            figures = [100 * float(each[passing].sum()) for each in chances]
            rows.append((f"n = {n}, --margin {margin:g}", figures))
    columns = ["one epoch", "1% fixed", "5% fixed", "10% fixed"]
    title = "% of runs that are worse by the margin and that pass, exactly computed"
    return Table(title, columns, rows, at_most=5.2, exact=True)


def _equal_runs_pass(runs: int) -> Table:
    rng, rows, sizes = np.random.default_rng(13), [], (100, 200, 400)
    for flips in (0.05, 0.1, 0.2):
        for margin in (2.0, 5.0, 10.0):
            needed = samples_needed_margin(margin / 100, flips)
            figures = []
            for n in (*sizes, needed):
                changed = rng.binomial(n, flips, runs)
                fixed = rng.binomial(changed, 0.5)
                tables_of = zip(fixed.tolist(), (changed - fixed).tolist(), strict=True)
                hits = [
                    _by_counts(f, b, n, "non-inferior", margin) == "passed" for f, b in tables_of
                ]
                figures.append(percent(hits))
            rows.append((f"{flips:.0%} flips, --margin {margin:g}", [*figures, needed]))
    columns = ["", *(f"n = {n}" for n in sizes), "n as needed", "needed"]
    reference = [column for column in columns if column != "n as needed"]
    title = "% of equal runs that --margin passes, and the samples for 80 %"
    return Table(title, columns, rows, at_least=75, at_most=90, digits=0, reference=reference)


def _baselines(runs: int) -> Table:
    rng, rows, n, shape = np.random.default_rng(14), [], 200, "differ"
    for pooled in (1, 3, 5):
        alarms, lucky, detected = [], [], []
        for _ in range(runs):
            chances = chances_of(rng, RATE, shape, n)
            base = _drawn(rng, chances, pooled)
            luck = base.mean() - chances.mean()
            spread = float(np.sqrt(np.mean(chances * (1 - chances)) / n / pooled))
            alarm = outcome(base, _drawn(rng, chances, 1), "no-regression") == "failed"
            alarms.append(alarm)
            if luck > 1.5 * spread:
                lucky.append(alarm)
            later = _worse(rng, chances, 5, "all are harder")
            detected.append(outcome(base, _drawn(rng, later, 1), "no-regression") == "failed")
        rows.append((f"{pooled}", [percent(alarms), percent(lucky or [0.0]), percent(detected)]))
    columns = ["runs in the baseline", "equal", "equal, baseline was lucky", "5 points worse"]
    title = "% of runs that no-regression fails, 200 samples, baseline of several runs"
    return Table(title, columns, rows, at_most=5.5, reference=columns[2:])


def _creep(runs: int) -> Table:
    rng, rows, shape = np.random.default_rng(15), [], "differ"
    for n in (100, 200, 500):
        alarms, first = [], []
        for _ in range(max(1, runs // 10)):
            chances = chances_of(rng, RATE, shape, n)
            base, step = _drawn(rng, chances, 1), 0
            for step in range(1, 21):
                later = chances * (1 - 0.01 * step / RATE)
                if outcome(base, _drawn(rng, later, 1), "no-regression") == "failed":
                    break
            alarms.append(step < 20)
            first.append(step)
        rows.append((f"n = {n}", [percent(alarms), float(np.median(first))]))
    columns = ["", "% noticed", "at change"]
    title = "20 changes of -1 point each, against a baseline that stays"
    return Table(title, columns, rows, at_least=99, reference=["at change"])


def _outages(runs: int) -> Table:
    rng, rows = np.random.default_rng(16), []
    for errors in (0.05, 0.1):
        figures = []
        for counted in (False, True):
            for n in (200, 500):
                hits = []
                for _ in range(5 * runs):  # which are fast, since counts repeat
                    chances = chances_of(rng, RATE, "differ", n)
                    a, b = _drawn(rng, chances, 1), _drawn(rng, chances, 1)
                    down = rng.random(n) < errors
                    if counted:
                        b[down] = False
                    else:
                        a, b = a[~down], b[~down]
                    hits.append(outcome(a, b, "no-regression") == "failed")
                figures.append(percent(hits))
        rows.append((f"{errors:.0%} of the calls fail", figures))
    reference = ["as failures, n = 200", "as failures, n = 500"]
    columns = ["", "left out, n = 200", "left out, n = 500", *reference]
    title = "% of equal runs that no-regression fails although the provider failed"
    return Table(title, columns, rows, at_most=5.5, reference=reference)


def _documents(runs: int) -> Table:
    """An edit of the agent moves each document by itself, by 1 or 2 logits, to and fro."""
    rng, rows = np.random.default_rng(17), []
    for size in (10, 20):
        for move in (1.0, 2.0):
            n = 20 * size
            document = np.repeat(np.arange(20), size)
            by_document, by_sample = [], []
            for _ in range(runs):
                centre = np.log(RATE / (1 - RATE)) + rng.normal(0, 1, n)
                sides = [
                    1 / (1 + np.exp(-centre - move * rng.normal(0, 1, 20)[document]))
                    for _ in range(2)
                ]
                a, b = (_drawn(rng, side, 1) for side in sides)
                by_document.append(
                    outcome(a, b, "no-regression", clusters=document.tolist()) == "failed"
                )
                by_sample.append(outcome(a, b, "no-regression") == "failed")
            row = [percent(by_document), percent(by_sample)]
            rows.append((f"20 documents of {size}, moved by {move:g} logits", row))
    columns = ["", "--cluster-by", "without"]
    title = "% of equal runs that no-regression fails, questions about documents"
    return Table(title, columns, rows, at_most=5.8, reference=["without"])


def _fail_under(runs: int) -> Table:
    rng, rows = np.random.default_rng(18), []
    cases = product((0.8, 0.9, 0.95), ("differ", "few never pass"))
    for rate, shape in cases:
        for epochs in EPOCHS:
            figures = []
            for n in SAMPLES:
                hits = []
                for _ in range(runs):
                    chances = chances_of(rng, rate, shape, n)
                    passed = Counter(rng.binomial(epochs, chances).tolist())
                    counts = {(epochs, k): times for k, times in passed.items()}
                    measured_rate = counted_rate(counts, confidence=CONFIDENCE)
                    # A gate that does not pass says how many samples would, which takes long.
                    may_pass = measured_rate.low >= rate
                    hits.append(
                        may_pass
                        and check_rate(measured_rate, rate, confidence=0.95).outcome == "passed"
                    )
                figures.append(percent(hits))
            rows.append((f"rate {rate:.0%}, samples {shape}, epochs {epochs}", figures))
    title = "% of runs whose rate is exactly --fail-under and that --confidence 95 % passes"
    return Table(title, ["", *(f"n = {n}" for n in SAMPLES)], rows, at_most=7)


PARTS = (
    _equal_runs_pass,
    _outages,
    _creep,
    _documents,
    _baselines,
    _equal_runs,
    _at_the_margin,
    _margin_exactly,
    _fail_under,
)
