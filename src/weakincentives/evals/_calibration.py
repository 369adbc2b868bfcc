"""How far a judge agrees with people, and how far that is more than chance.

Agreement alone misleads: where 95 % of the answers are good, a judge that says "good" to all agrees
with 95 %. So it is never shown without Cohen's kappa, the base rate and the number of verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from ..errors import EvaluatorError, UsageError, shown
from ..rollouts import Trajectory
from ._criterion import Criterion, criterion
from ._judge import RATINGS, Scale
from ._judge_call import run_here
from ._types import EvalContext, Sample
from .statistics import wilson_interval

__all__ = ["Calibration", "Disagreement", "Labelled", "calibrate", "calibrate_async"]

Label = bool | str
Labelled = tuple[Sample[Any, Any], Any, Label]
"""A sample, an output for it, and what a person says of it: pass or fail, or a label."""

_SHOWN = 10  # disagreements and errors in a summary


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One output on which the judge and a person differ, with the judge's reason."""

    sample_id: str
    human: Label
    judge: Label
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge beside people: `confusion[human, judge]` counts, and what follows from the counts.

    >>> table = {(True, True): 20, (True, False): 5, (False, True): 10, (False, False): 15}
    >>> round(Calibration("polite", table).kappa, 2)
    0.4

    `errors` are sample ids with why the judge gave no verdict: they are in no count.
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
        """The number of verdicts compared."""
        return sum(self.confusion.values())

    @property
    def agreed(self) -> int:
        """How many of them are the same."""
        return sum(count for (human, judge), count in self.confusion.items() if human == judge)

    @property
    def agreement(self) -> float:
        """The share that is the same."""
        return self.agreed / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the agreement."""
        return wilson_interval(self.agreed, self.n)

    @property
    def base_rate(self) -> float:
        """The share of the commonest human verdict: what a judge that only says it agrees with."""
        return max(self._said(0).values()) / self.n

    @property
    def kappa(self) -> float:
        """Cohen's kappa: the agreement beyond chance, of what there could be beyond chance.

        Where person and judge gave one and the same verdict throughout, chance explains all of it
        and kappa is 0 / 0. Here it is 0.0: such data are no evidence that the judge can tell.
        (J. Cohen, Educational and Psychological Measurement 20, 1960.)
        """
        human, judge, n = self._said(0), self._said(1), self.n
        chance = sum(human[label] * judge[label] for label in human)  # times n squared: exact
        return (n * self.agreed - chance) / (n * n - chance) if n * n != chance else 0.0

    def _said(self, side: int) -> Counter[Label]:
        """How often each verdict was given, by people (0) or by the judge (1)."""
        counts: Counter[Label] = Counter()
        for pair, count in self.confusion.items():
            counts[pair[side]] += count
        return counts

    def __str__(self) -> str:
        low, high = self.interval
        lines = [
            f"{self.name}: agrees with people on {self.agreed} of {self.n}, {self.agreement:.1%} "
            f"(95% interval {low:.1%} to {high:.1%})",
            f"Cohen's kappa {self.kappa:.2f}, base rate {self.base_rate:.1%}, n = {self.n}",
            *self._table(),
        ]
        differ = [
            f"{shown(each.sample_id)}: human {_text(each.human)}, judge {_text(each.judge)}"
            + (f", because {shown(each.reason, 200)}" if each.reason else "")
            for each in self.disagreements
        ]
        failed = [f"{shown(sample_id)}: {shown(why, 200)}" for sample_id, why in self.errors]
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


def _text(label: Label) -> str:
    return label if isinstance(label, str) else "pass" if label else "fail"


def _listed(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [f"{title}: {len(lines)}", *(f"  {line}" for line in lines[:_SHOWN]), *more]


async def calibrate_async(
    judge: Callable[..., Any],
    labelled: Iterable[Labelled],
    *,
    scale: Scale = RATINGS,
    max_concurrent: int = 10,
) -> Calibration:
    """Ask the judge about outputs that people have judged, and compare.

    `labelled` holds (sample, output, human verdict). A verdict is a bool, compared with whether the
    judge's score passes; or, for all of them, a label of `scale`, compared with the label whose
    value the judge's score has. An output on which the judge fails is one of `errors`; if it fails
    on all, there is nothing to compare, and an `EvaluatorError`.
    """
    asked = criterion(judge)
    cases = _checked(labelled, scale)
    if type(max_concurrent) is not int or max_concurrent < 1:
        raise UsageError(f"expected a `max_concurrent` >= 1, got {shown(max_concurrent)}")
    labels = None if isinstance(cases[0][2], bool) else _by_value(scale)
    found: dict[int, Disagreement] = {}
    failed: dict[int, tuple[str, str]] = {}
    limit = anyio.CapacityLimiter(max_concurrent)

    async def ask(index: int) -> None:
        sample, output, human = cases[index]
        async with limit:
            try:
                said, reason = await _said_by(asked, sample, output, labels)
            except Exception as error:
                failed[index] = (sample.id, str(error) or type(error).__name__)
            else:
                found[index] = Disagreement(sample.id, human, said, reason)

    async with anyio.create_task_group() as group:
        for index in range(len(cases)):
            group.start_soon(ask, index)
    errors = tuple(failed[index] for index in sorted(failed))
    if not found:
        raise EvaluatorError(
            f"expected verdicts of the judge `{asked.name}`, got none on {len(cases)} outputs - "
            f"the first failed so: {errors[0][1]}"
        )
    compared = [found[index] for index in sorted(found)]
    confusion = Counter((each.human, each.judge) for each in compared)
    differ = tuple(each for each in compared if each.human != each.judge)
    return Calibration(asked.name, dict(confusion), differ, errors)


def calibrate(
    judge: Callable[..., Any],
    labelled: Iterable[Labelled],
    *,
    scale: Scale = RATINGS,
    max_concurrent: int = 10,
) -> Calibration:
    """`calibrate_async` from synchronous code: `print(calibrate(judge, labelled))`."""
    call = partial(calibrate_async, judge, labelled, scale=scale, max_concurrent=max_concurrent)
    return run_here(call, "await calibrate_async(judge, labelled)")


def _checked(labelled: Iterable[Labelled], scale: Scale) -> list[Labelled]:
    cases = list(labelled)
    if not cases:
        raise UsageError("expected (sample, output, human verdict) to calibrate by, got none")
    for index, case in enumerate(cases):
        place = f"at `labelled[{index}]`"
        if not isinstance(case, tuple) or len(case) != 3 or not isinstance(case[0], Sample):
            raise UsageError(f"expected (sample, output, human verdict), got {shown(case)} {place}")
        human = case[2]
        if not isinstance(human, bool) and human not in scale.labels:
            raise UsageError(
                f"expected a bool or one of {', '.join(scale.labels)}, got {shown(human)} - {place}"
            )
        if isinstance(human, bool) is not isinstance(cases[0][2], bool):
            raise UsageError(
                f"expected bools or labels throughout, got {shown(human)} after "
                f"{shown(cases[0][2])} - {place}"
            )
    return cases


def _by_value(scale: Scale) -> dict[float, str]:
    labels = {float(value): label for label, value in scale.values.items()}
    if len(labels) < len(scale.labels):
        raise UsageError(
            "expected a scale whose labels differ in value, got two alike - a score tells them "
            "apart by value alone, so give the human verdicts as bools"
        )
    return labels


async def _said_by(
    judge: Criterion, sample: Sample[Any, Any], output: Any, labels: dict[float, str] | None
) -> tuple[Label, str]:
    """The judge's verdict in the form of the human ones, and its reason."""
    score = await judge.ask(EvalContext(sample=sample, trajectory=Trajectory(output=output)))
    if labels is None:
        return score.passed, score.reason
    if score.value not in labels:
        raise EvaluatorError(
            f"expected a value of the scale, got {score.value:g} - give the human verdicts as "
            "bools, or the judge's scale as `scale`"
        )
    return labels[score.value], score.reason
