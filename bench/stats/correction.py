"""Pass rates of a judge, corrected by the labels of people: is the truth in the interval?

The judges are those of the audit: 500 outputs are judged, 50 of them labelled by people. `drawn` is
how: any 50 of all, or as `wink judge sample` draws them, within each verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from weakincentives.evals.judges.calibration import Calibration
from weakincentives.evals.review.sampling import draw_rows
from weakincentives.evals.stats import corrected_difference, corrected_rate, ppi_rate
from weakincentives.evals.stats.basic import wilson_interval
from weakincentives.evals.stats.correction import (
    corrected_kappa,
    corrected_rate_by,
    labels_by_verdict,
)

from .tables import Table, percent

__all__ = ["JUDGES", "PARTS", "RATES", "coverage_of"]

JUDGES = {
    "sens .98, spec .95": (0.98, 0.95),
    "sens .95, spec .90": (0.95, 0.90),
    "sens .90, spec .80": (0.90, 0.80),
    "sens .95, spec .70": (0.95, 0.70),
}
RATES = (0.5, 0.7, 0.9)
JUDGED, LABELS, EPOCHS = 500, 50, 5

Row = tuple[str, str, int]
Verdicts = dict[Row, bool]


def judged_by(rng: np.random.Generator, truth: np.ndarray, judge: str) -> Verdicts:
    """Return the verdicts of a judge on outputs, of which people would pass some."""
    sensitivity, specificity = JUDGES[judge]
    right = rng.random(truth.shape) < np.where(truth, sensitivity, specificity)
    verdicts = np.where(right, truth, ~truth).reshape(len(truth), -1).tolist()
    return {
        ("", str(sample), epoch): verdict
        for sample, epochs in enumerate(verdicts)
        for epoch, verdict in enumerate(epochs, start=1)
    }


def people(truth: np.ndarray, rows: Mapping[Row, object] | list[Row]) -> Verdicts:
    """Return the labels of people."""
    table = truth.reshape(len(truth), -1)
    return {row: bool(table[int(row[1]), row[2] - 1]) for row in rows}


def by_verdict(rng: np.random.Generator, judged: Verdicts) -> dict[Row, float]:
    """Draw as `wink judge sample` does; return the probabilities."""
    return draw_rows(judged, LABELS, int(rng.integers(2**31)))


def at_random(rng: np.random.Generator, judged: Verdicts) -> dict[Row, float]:
    """Draw any of all."""
    rows = [*judged]
    chosen = rng.choice(len(rows), LABELS, replace=False)
    return {rows[at]: LABELS / len(rows) for at in chosen}


DRAWS: dict[str, Callable[[np.random.Generator, Verdicts], dict[Row, float]]] = {
    "any": at_random,
    "by verdict": by_verdict,
}


def coverage_of(rate: float, judge: str, draw: str, runs: int) -> tuple[float, float, float]:
    """Return the coverage, the mean error in points, and the width against people alone."""
    rng = np.random.default_rng(17)
    covered, errors, widths = [], [], []
    for _ in range(runs):
        truth = rng.random(JUDGED) < rate
        judged = judged_by(rng, truth, judge)
        labels = people(truth, DRAWS[draw](rng, judged))
        estimate = corrected_rate(judged, labels).corrected
        covered.append(rate in estimate)
        errors.append(estimate.estimate - rate)
        low, high = wilson_interval(rate * LABELS, LABELS)
        widths.append((estimate.high - estimate.low) / (high - low))
    return percent(covered), 100 * float(np.mean(errors)), float(np.mean(widths))


def _rates(runs: int) -> list[Table]:
    columns = ["judge", *(f"{rate:.0%}, {draw}" for rate in RATES for draw in DRAWS)]
    cells = {
        judge: [coverage_of(rate, judge, draw, runs) for rate in RATES for draw in DRAWS]
        for judge in JUDGES
    }

    def rows(at: int) -> list[tuple[str, list[float]]]:
        return [(judge, [cell[at] for cell in row]) for judge, row in cells.items()]

    what = f"corrected rate, {LABELS} labels of {JUDGED}"
    return [
        Table(f"coverage of the {what}", columns, rows(0), at_least=94),
        Table(f"mean error of the {what}, points", columns, rows(1), -0.6, 0.6, digits=2),
        Table(f"width of the {what}, people alone = 1", columns, rows(2), at_most=1.1, digits=2),
    ]


def _without_correction(runs: int) -> Table:
    """Compare with the judge alone and with PPI++."""
    rows = []
    for judge in JUDGES:
        rng = np.random.default_rng(18)
        figures = []
        for rate in RATES:
            alone, ppi = [], []
            for _ in range(runs):
                truth = rng.random(JUDGED) < rate
                judged = judged_by(rng, truth, judge)
                labels = people(truth, at_random(rng, judged))
                alone.append(rate in corrected_rate(judged, labels).judged)
                ppi.append(rate in ppi_rate(judged, labels))
            figures += [percent(alone), percent(ppi)]
        rows.append((judge, figures))
    columns = ["judge", *(f"{rate:.0%}, {what}" for rate in RATES for what in ("alone", "PPI++"))]
    title = "coverage of the judge alone, and of PPI++"
    return Table(title, columns, rows, reference=columns[1:])


def _special_cases(runs: int) -> Table:
    """Return the coverage with epochs, with errors, with another judge's draw, and in a new run."""
    cases = {
        f"{EPOCHS} epochs": _with_epochs,
        "10 % errors": _with_errors,
        "drawn by another judge": _other_judge,
        "labels of another run": _other_run,
    }
    rows = []
    for judge in JUDGES:
        figures = []
        for case in cases.values():
            rng = np.random.default_rng(19)
            figures.append(percent([case(rng, rate, judge) for rate in RATES for _ in range(runs)]))
        rows.append((judge, figures))
    title = "coverage of the corrected rate, special cases"
    return Table(title, ["judge", *cases], rows, at_least=94)


def _with_epochs(rng: np.random.Generator, rate: float, judge: str) -> bool:
    chances = rng.beta(2 * rate, 2 * (1 - rate), JUDGED // EPOCHS)
    truth = rng.random((len(chances), EPOCHS)) < chances[:, None]
    judged = judged_by(rng, truth, judge)
    drawn = by_verdict(rng, judged)
    strata = labels_by_verdict(judged, people(truth, drawn), drawn)
    return rate in corrected_rate_by(judged, strata, cluster=lambda row: row[1]).corrected


def _with_errors(rng: np.random.Generator, rate: float, judge: str) -> bool:
    truth = rng.random(JUDGED) < rate
    judged = judged_by(rng, truth, judge)
    drawn = by_verdict(rng, judged)
    failed = {row: None for row in judged if rng.random() < 0.1}
    labels = people(truth, [row for row in drawn if row not in failed])
    return 0.9 * rate in corrected_rate({**judged, **failed}, labels).corrected


def _other_judge(rng: np.random.Generator, rate: float, judge: str) -> bool:
    truth = rng.random(JUDGED) < rate
    drawn = by_verdict(rng, judged_by(rng, truth, "sens .95, spec .70"))
    judged = judged_by(rng, truth, judge)
    estimate = corrected_rate(judged, people(truth, drawn), probabilities=drawn)
    return rate in estimate.corrected


def _other_run(rng: np.random.Generator, rate: float, judge: str) -> bool:
    truth, other = (rng.random(JUDGED) < rate for _ in range(2))
    judged = judged_by(rng, other, judge)
    strata = labels_by_verdict(judged, people(other, by_verdict(rng, judged)))
    return rate in corrected_rate_by(judged_by(rng, truth, judge), strata).corrected


def _differences(runs: int) -> Table:
    rows = []
    for judge in JUDGES:
        figures = []
        for before, after in ((0.7, 0.7), (0.7, 0.8), (0.9, 0.85)):
            rng = np.random.default_rng(20)
            covered = []
            for _ in range(runs):
                chance = rng.random(JUDGED)  # hard samples are hard for both agents
                sides = []
                for rate in (before, after):
                    truth = chance < rate
                    judged = judged_by(rng, truth, judge)
                    sides.append((judged, people(truth, by_verdict(rng, judged))))
                covered.append(after - before in corrected_difference(sides[0], sides[1]))
            figures.append(percent(covered))
        rows.append((judge, figures))
    columns = ["judge", "70 to 70 %", "70 to 80 %", "90 to 85 %"]
    return Table("coverage of the corrected difference", columns, rows, at_least=94)


def _kappas(runs: int) -> Table:
    rows = []
    for judge, (sensitivity, specificity) in JUDGES.items():
        figures = []
        for rate in RATES:
            rng = np.random.default_rng(21)
            passing = rate * sensitivity + (1 - rate) * (1 - specificity)
            agreement = rate * sensitivity + (1 - rate) * specificity
            chance = rate * passing + (1 - rate) * (1 - passing)
            kappa = (agreement - chance) / (1 - chance)
            covered = []
            for _ in range(runs):
                truth = rng.random(JUDGED) < rate
                judged = judged_by(rng, truth, judge)
                strata = labels_by_verdict(judged, people(truth, by_verdict(rng, judged)))
                covered.append(kappa in corrected_kappa(judged, strata))
            figures.append(percent(covered))
        rows.append((judge, figures))
    columns = ["judge", *(f"{rate:.0%}" for rate in RATES)]
    return Table("coverage of kappa", columns, rows, at_least=92)


def _kappas_of_files(runs: int) -> Table:
    """Kappa of `wink judge calibrate labels.jsonl`: any outputs, which people have labelled."""
    runs = max(4, runs // 4)  # each is a whole bootstrap
    rows = []
    for judge in JUDGES:
        rng = np.random.default_rng(22)
        figures = []
        for rate in RATES:
            cells = _table_of(judge, rate)
            agreed = cells[0] + cells[3]
            chance = (cells[0] + cells[1]) * (cells[0] + cells[2])
            chance += (cells[2] + cells[3]) * (cells[1] + cells[3])
            kappa = (agreed - chance) / (1 - chance)
            ends = [_kappa_ends(*table) for table in rng.multinomial(LABELS, cells, runs).tolist()]
            figures.append(percent([low <= kappa <= high for low, high in ends]))
        rows.append((judge, figures))
    columns = ["judge", *(f"{rate:.0%}" for rate in RATES)]
    title = f"coverage of kappa, {LABELS} labels from a file, a quarter of the runs"
    return Table(title, columns, rows, at_least=91)


def _table_of(judge: str, rate: float) -> list[float]:
    """Return how likely people and judge pass, people alone, the judge alone, and neither."""
    sensitivity, specificity = JUDGES[judge]
    return [
        rate * sensitivity,
        rate * (1 - sensitivity),
        (1 - rate) * (1 - specificity),
        (1 - rate) * specificity,
    ]


@cache
def _kappa_ends(both: int, people_only: int, judge_only: int, neither: int) -> tuple[float, float]:
    counts = {
        (True, True): both,
        (True, False): people_only,
        (False, True): judge_only,
        (False, False): neither,
    }
    observed = {pair: count for pair, count in counts.items() if count}
    return Calibration("judge", observed, (), ()).kappa_interval


PARTS = (
    _rates,
    _without_correction,
    _special_cases,
    _differences,
    _kappas,
    _kappas_of_files,
)
