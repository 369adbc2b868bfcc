"""Results in slices: by difficulty, by topic, by whatever they carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._typevars import OutputT
from ..errors import UsageError, shown
from ._report import EvalReport, EvalResult, headline

if TYPE_CHECKING:
    from ._intervals import Interval

__all__ = ["Slice", "group_by", "slices", "summarize"]


def group_by(
    results: Iterable[EvalResult[OutputT]], key: Callable[[EvalResult[OutputT]], Any] | str
) -> dict[Any, tuple[EvalResult[OutputT], ...]]:
    """The results of each group, in the order in which the groups first appear.

    `key` is a function of a result, or a name in its metadata.

    >>> from weakincentives.evals import Score
    >>> hard = EvalResult("1", Score(0.5), metadata={"level": 5})
    >>> easy = EvalResult("2", Score(1.0), metadata={"level": 1})
    >>> {level: len(found) for level, found in group_by([hard, easy], "level").items()}
    {5: 1, 1: 1}
    """
    found: dict[Any, list[EvalResult[OutputT]]] = {}
    for result in results:
        group = key(result) if callable(key) else _metadata(result, key)
        try:
            found.setdefault(group, []).append(result)
        except TypeError:  # nothing that a dictionary could hold it under
            raise UsageError(
                f"expected a text, a number or a tuple of them to group by, got {shown(group)} - "
                f"sample {result.sample_id!r}"
            ) from None
    return {group: tuple(members) for group, members in found.items()}


def _metadata(result: EvalResult[Any], name: str) -> Any:
    if name not in result.metadata:
        known = ", ".join(map(str, result.metadata)) or "none"
        raise UsageError(
            f"expected {name!r} in the metadata of every result, got {known} - sample "
            f"{result.sample_id!r}; a function can say what then: "
            f"key=lambda result: result.metadata.get({name!r})"
        )
    return result.metadata[name]


def summarize(results: Iterable[EvalResult[Any]]) -> dict[str, float]:
    """`mean`, `std`, `min` and `max` of the values; `n` scored, `errors` and `total`.

    `slices` has the intervals of such numbers.

    >>> from weakincentives.evals import Score
    >>> summarize([EvalResult("1", Score(0.5)), EvalResult("2", Score(1.0))])["mean"]
    0.75
    """
    return EvalReport(results).summary


@dataclass(frozen=True, slots=True)
class Slice:
    """What a group came to; `str(...)` says it in a line, and warns where it says little.

    `rate` is the share that passed, an error being none; `score` is the mean value of those
    without an error. Attempts at one sample are a cluster in both.
    """

    value: Any
    passed: int
    errors: int
    rate: Interval
    score: Interval

    @property
    def few(self) -> bool:
        """True where so few samples say little."""
        from ._rate import too_few

        return too_few(self.rate)

    def __str__(self) -> str:
        from ._rate import FEW

        line = headline(self.rate, self.passed, self.errors)
        return f"{self.value}: {line}" + (f" - {FEW}" if self.few else "")


def slices(
    results: Iterable[EvalResult[Any]], key: Callable[[EvalResult[Any]], Any] | str
) -> tuple[Slice, ...]:
    """The groups of `group_by`, each with its pass rate, its mean value and their intervals.

    >>> from weakincentives.evals import Score
    >>> hard = EvalResult("1", Score(0.5), metadata={"level": 5})
    >>> print(*slices([hard], "level"))
    5: 1/1 passed, 0 errors (100.0%, 95% interval 20.7% to 100.0%, n = 1) - few: fewer than 20 \
samples, too few to say much
    """
    from ._intervals import mean_interval

    found = []
    for value, group in group_by(results, key).items():
        report = EvalReport(group)
        scored = [result for result in group if result.error is None]
        samples = [result.sample_id for result in scored]
        score = mean_interval(
            [result.score.value for result in scored],
            clusters=samples if len(set(samples)) < len(samples) else None,
        )
        found.append(Slice(value, report.passed, report.errors, report.rate, score))
    return tuple(found)
