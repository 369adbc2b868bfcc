"""Calibrate a judge: its agreement with people, and how far that is beyond chance.

Agreement alone misleads: if 95% of the answers are good, a judge that always says "good" agrees
with 95 %. So it is never reported without Cohen's kappa, the base rate and the number of verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ...errors import EvaluatorError, UsageError, short_repr
from ...internal.concurrency import for_each
from ...internal.event_loop import run_sync
from ...rollouts import Trajectory
from .._judge import RATINGS, Scale
from .._types import EvalContext, Sample
from ..evaluators.criteria import Criterion, EvaluatorFunction, criterion
from ..stats.basic import wilson_interval
from ..stats.intervals import ends_text

Label = bool | str
Labelled = tuple[Sample[Any, Any], Any, Label]
"""A sample, an output for it, and the verdict of a person: pass or fail, or a label."""

_MAX_LISTED = 10  # disagreements and errors in a summary
_RESAMPLES = 4_000  # draws of the confusion matrix, for the interval of kappa


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An output on which the judge and a person disagree, with the judge's reason."""

    sample_id: str
    human: Label
    judge: Label
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge compared with people, by the confusion matrix: `confusion[human, judge]` counts.

    >>> table = {(True, True): 20, (True, False): 5, (False, True): 10, (False, False): 15}
    >>> round(Calibration("polite", table).kappa, 2)
    0.4

    `errors` has sample ids for which the judge gave no verdict, and why; they are not counted.
    """

    name: str
    confusion: Mapping[tuple[Label, Label], int] = field(hash=False)
    disagreements: tuple[Disagreement, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not sum(self.confusion.values()):
            raise UsageError("expected at least one verdict to calibrate by, got none")

    @property
    def n(self) -> int:
        """Return the number of verdicts compared."""
        return sum(self.confusion.values())

    @property
    def agreed(self) -> int:
        """Return how many of them are equal."""
        return sum(count for (human, judge), count in self.confusion.items() if human == judge)

    @property
    def agreement(self) -> float:
        """Return the share that is equal."""
        return self.agreed / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95% Wilson interval of the agreement."""
        return wilson_interval(self.agreed, self.n)

    @property
    def base_rate(self) -> float:
        """Return the share of the most frequent human verdict: that of a constant judge."""
        return max(_marginal(self.confusion, 0).values()) / self.n

    @property
    def kappa(self) -> float:
        """Return Cohen's kappa: the agreement beyond chance, divided by its maximum.

        If person and judge gave one and the same verdict throughout, chance explains all of it and
        kappa is 0 / 0. Here it is 0.0: such data are not evidence that the judge can discriminate.
        (J. Cohen, Educational and Psychological Measurement 20, 1960.)
        """
        return _kappa(self.confusion)

    @property
    def kappa_interval(self) -> tuple[float, float]:
        """Return the 95% interval of kappa, by a seeded Bayesian bootstrap of the samples.

        Each cell of the table has a random weight around its count, and half a sample more, so that
        a verdict that has not occurred is possible. (D. B. Rubin, Annals of Statistics 9, 1981.)
        """
        random = Random(0)
        labels = {label for pair in self.confusion for label in pair}
        cells = {
            (human, judge): self.confusion.get((human, judge), 0) + 0.5
            for human in labels
            for judge in labels
        }
        kappas = sorted(
            _kappa({pair: random.gammavariate(count, 1.0) for pair, count in cells.items()})
            for _ in range(_RESAMPLES)
        )
        tail = round(0.025 * _RESAMPLES)
        return kappas[tail], kappas[-1 - tail]

    def __str__(self) -> str:
        agreed_low, agreed_high = self.interval
        low, high = ends_text(agreed_low * 100, agreed_high * 100)
        kappas = ends_text(*self.kappa_interval, 2)
        lines = [
            f"{self.name}: agrees with people on {self.agreed} of {self.n}, {self.agreement:.1%} "
            f"(95% interval {low}% to {high}%)",
            f"Cohen's kappa {self.kappa:.2f} (95% interval {' to '.join(kappas)}), "
            f"base rate {self.base_rate:.1%}, n = {self.n}",
            *self._table(),
        ]
        differ = [
            f"{short_repr(case.sample_id)}: human {_text(case.human)}, judge {_text(case.judge)}"
            + (f", because {short_repr(case.reason, 200)}" if case.reason else "")
            for case in self.disagreements
        ]
        failed = [
            f"{short_repr(sample_id)}: {short_repr(why, 200)}" for sample_id, why in self.errors
        ]
        return "\n".join(lines + _listed("Disagreements", differ) + _listed("No verdict", failed))

    def _table(self) -> list[str]:
        labels = list(dict.fromkeys(label for pair in self.confusion for label in pair))
        rows = [["human \\ judge", *map(_text, labels)]]
        for human in labels:
            counts = (self.confusion.get((human, judge), 0) for judge in labels)
            rows.append([_text(human), *map(str, counts)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        cells = ([c.rjust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
        return ["  ".join(row) for row in cells]


def _kappa(confusion: Mapping[tuple[Label, Label], float]) -> float:
    human, judge = _marginal(confusion, 0), _marginal(confusion, 1)
    n = sum(confusion.values())
    agreed = sum(count for pair, count in confusion.items() if pair[0] == pair[1])
    chance = sum(human[label] * judge.get(label, 0) for label in human)  # times n squared: exact
    return (n * agreed - chance) / (n * n - chance) if n * n != chance else 0.0


def _marginal(confusion: Mapping[tuple[Label, Label], float], side: int) -> dict[Label, float]:
    """Return how often each verdict was given, by people (0) or by the judge (1)."""
    counts: dict[Label, float] = {}
    for pair, count in confusion.items():
        counts[pair[side]] = counts.get(pair[side], 0) + count
    return counts


def _text(label: Label) -> str:
    return label if isinstance(label, str) else "pass" if label else "fail"


def _listed(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  and {len(lines) - _MAX_LISTED} more"] if len(lines) > _MAX_LISTED else []
    return [f"{title}: {len(lines)}", *(f"  {line}" for line in lines[:_MAX_LISTED]), *more]


async def calibrate_async(
    judge: EvaluatorFunction,
    labelled: Iterable[Labelled],
    *,
    scale: Scale = RATINGS,
    max_concurrent: int = 10,
) -> Calibration:
    """Have the judge score outputs that people have judged, and compare.

    `labelled` has (sample, output, human verdict). A verdict is a bool, compared with whether the
    judge's score passes; or, for all of them, a label of `scale`, compared with the label whose
    value the judge's score has. An output on which the judge fails is one of `errors`; if it fails
    on all, an `EvaluatorError` is raised.
    """
    judge_criterion = criterion(judge)
    cases = _checked(labelled, scale)
    if type(max_concurrent) is not int or max_concurrent < 1:
        raise UsageError(f"expected a `max_concurrent` >= 1, got {short_repr(max_concurrent)}")
    labels = None if isinstance(cases[0][2], bool) else _by_value(scale)
    verdicts: dict[int, Disagreement] = {}
    failed: dict[int, tuple[str, str]] = {}

    async def ask(index: int) -> None:
        sample, output, human = cases[index]
        try:
            label, reason = await _verdict(judge_criterion, sample, output, labels)
        except Exception as error:
            failed[index] = (sample.id, str(error) or type(error).__name__)
        else:
            verdicts[index] = Disagreement(sample.id, human, label, reason)

    await for_each(ask, range(len(cases)), max_concurrent)
    errors = tuple(failed[index] for index in sorted(failed))
    if not verdicts:
        raise EvaluatorError(
            f"expected verdicts from the judge `{judge_criterion.name}`, got none on {len(cases)} "
            f"outputs - the first error: {errors[0][1]}"
        )
    compared = [verdicts[index] for index in sorted(verdicts)]
    confusion = Counter((case.human, case.judge) for case in compared)
    differ = tuple(case for case in compared if case.human != case.judge)
    return Calibration(judge_criterion.name, dict(confusion), differ, errors)


def calibrate(
    judge: EvaluatorFunction,
    labelled: Iterable[Labelled],
    *,
    scale: Scale = RATINGS,
    max_concurrent: int = 10,
) -> Calibration:
    """Run `calibrate_async` from synchronous code: `print(calibrate(judge, labelled))`."""
    return run_sync(
        lambda: calibrate_async(judge, labelled, scale=scale, max_concurrent=max_concurrent)
    )


def _checked(labelled: Iterable[Labelled], scale: Scale) -> list[Labelled]:
    cases = list(labelled)
    if not cases:
        raise UsageError("expected (sample, output, human verdict) to calibrate by, got none")
    for index, case in enumerate(cases):
        where = f"at `labelled[{index}]`"
        if not isinstance(case, tuple) or len(case) != 3 or not isinstance(case[0], Sample):
            raise UsageError(
                f"expected (sample, output, human verdict), got {short_repr(case)} {where}"
            )
        human = case[2]
        if not isinstance(human, bool) and human not in scale.labels:
            raise UsageError(
                f"expected a bool or one of {', '.join(scale.labels)}, got "
                f"{short_repr(human)} - {where}"
            )
        if isinstance(human, bool) is not isinstance(cases[0][2], bool):
            raise UsageError(
                f"expected bools or labels throughout, got {short_repr(human)} after "
                f"{short_repr(cases[0][2])} - {where}"
            )
    return cases


def _by_value(scale: Scale) -> dict[float, str]:
    labels = {float(value): label for label, value in scale.values.items()}
    if len(labels) < len(scale.labels):
        raise UsageError(
            "expected a scale whose labels differ in value, got two with the same - a score "
            "could mean either, so give the human verdicts as bools"
        )
    return labels


async def _verdict(
    judge: Criterion, sample: Sample[Any, Any], output: Any, labels: dict[float, str] | None
) -> tuple[Label, str]:
    """Return the judge's verdict in the form of the human ones, and its reason."""
    score = await judge.score(EvalContext(sample=sample, trajectory=Trajectory(output=output)))
    if labels is None:
        return score.passed, score.reason
    if score.value not in labels:
        raise EvaluatorError(
            f"expected a value of the scale, got {score.value:g} - give the human verdicts as "
            "bools, or the judge's scale as `scale`"
        )
    return labels[score.value], score.reason
