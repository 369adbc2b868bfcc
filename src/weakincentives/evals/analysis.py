"""Results in slices, by anything in their metadata; and their errors in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, short_repr
from ..internal.typevars import OutputT
from .model.error_groups import ErrorGroup, HasError, error_groups as _error_groups
from .model.explain import type_mismatch
from .model.grouping import group_values
from .model.result import EvalResult
from .runs.report import EvalReport

if TYPE_CHECKING:
    from .runs.figures import Figures
    from .stats.intervals import Interval

__all__ = [
    "ErrorGroup",
    "Slice",
    "error_groups",
    "flaky",
    "group_by",
    "slices",
    "summarize",
    "type_mismatch",
]


def error_groups(results: EvalReport[Any] | Iterable[HasError]) -> tuple[ErrorGroup, ...]:
    """Return the errors of a report, or of results, by source, type and place; most frequent first.

    Of a report, those of samples in quarantine do not count.

    >>> from weakincentives.evals import Score
    >>> from weakincentives.evals.model import ErrorDetails
    >>> details = ErrorDetails("ConnectionError", "rag.py:41 in retrieve")
    >>> refused = EvalResult("1", Score(0.0), error="refused", error_details=details)
    >>> print(*error_groups([refused, refused]))
    2 x ConnectionError at rag.py:41 in retrieve: refused
    """
    return _error_groups(results.counted if isinstance(results, EvalReport) else results)


def group_by(
    results: Iterable[EvalResult[OutputT]], key: Callable[[EvalResult[OutputT]], Any] | str
) -> dict[Any, tuple[EvalResult[OutputT], ...]]:
    """Return the results of each group, in the order in which the groups first appear.

    `key` is a function of a result, or a name in its metadata.

    >>> from weakincentives.evals import Score
    >>> hard = EvalResult("1", Score(0.5), metadata={"level": 5})
    >>> easy = EvalResult("2", Score(1.0), metadata={"level": 1})
    >>> {level: len(group) for level, group in group_by([hard, easy], "level").items()}
    {5: 1, 1: 1}
    """
    results = list(results)
    keys = [key(result) if callable(key) else _metadata(result, key) for result in results]
    for result, group in zip(results, keys, strict=True):
        try:
            hash(group)
        except TypeError:
            raise UsageError(
                "expected a text, a number or a tuple of them to group by, got "
                f"{short_repr(group)} - sample {result.sample_id!r}"
            ) from None
    return group_values(results, keys)


def _metadata(result: EvalResult[Any], name: str) -> Any:
    if name not in result.metadata:
        known = ", ".join(map(str, result.metadata)) or "none"
        raise UsageError(
            f"expected {name!r} in the metadata of every result, got {known} - sample "
            f"{result.sample_id!r}; a function can choose a default: "
            f"key=lambda result: result.metadata.get({name!r})"
        )
    return result.metadata[name]


def summarize(results: Iterable[EvalResult[Any]]) -> dict[str, float]:
    """Return `mean`, `std`, `min` and `max` of the values; `n` scored, `errors` and `total`.

    `slices` returns such numbers with intervals.

    >>> from weakincentives.evals import Score
    >>> summarize([EvalResult("1", Score(0.5)), EvalResult("2", Score(1.0))])["mean"]
    0.75
    """
    return EvalReport(results).summary


def flaky(report: EvalReport[Any] | Iterable[EvalResult[Any]]) -> dict[str, Interval]:
    """Return the samples that both passed and failed, with their rates; closest to 0.5 first.

    >>> from weakincentives.evals import Score
    >>> results = [EvalResult("1", Score(float(n != 2)), epoch=n) for n in (1, 2, 3)]
    >>> {name: rate.estimate for name, rate in flaky(EvalReport(results)).items()}
    {'1': 0.6666666666666666}
    """
    from .stats.intervals import rate_interval

    report = report if isinstance(report, EvalReport) else EvalReport(report)
    found = {} if report.epoch_stats is None else report.epoch_stats.flaky
    rates = {name: rate_interval(passed, n) for name, (passed, n) in found.items()}
    return dict(sorted(rates.items(), key=lambda item: abs(item[1].estimate - 0.5)))


@dataclass(frozen=True, slots=True)
class Slice:
    """The figures of a group; `str(...)` is one line, with a warning if the group is small.

    `score` is the mean value of results without an error; attempts at one sample are a cluster.
    """

    value: Any
    figures: Figures
    score: Interval

    @property
    def passed(self) -> int:
        """The number of results that passed."""
        return self.figures.passed

    @property
    def errors(self) -> int:
        """The number of results with an error."""
        return self.figures.error_count

    @property
    def rate(self) -> Interval:
        """The share that passed; an error is not a pass."""
        return self.figures.rate

    @property
    def few(self) -> bool:
        """Whether there are too few samples to say much."""
        return self.figures.few

    def __str__(self) -> str:
        from .stats.pass_rate import FEW

        return f"{self.value}: {self.figures}" + (f" - {FEW}" if self.few else "")


def slices(
    report: EvalReport[Any] | Iterable[EvalResult[Any]],
    key: Callable[[EvalResult[Any]], Any] | str,
    *,
    confidence: float = 0.95,
) -> tuple[Slice, ...]:
    """Return the groups of `group_by`, each with its pass rate, mean value and their intervals.

    Of a report, only the results that count are grouped, and its clusters are known.

    >>> from weakincentives.evals import Score
    >>> hard = EvalResult("1", Score(0.5), metadata={"level": 5})
    >>> print(*slices([hard], "level"))
    5: 1/1 passed, 0 errors (100.0%, 95% interval 20.7% to 100.0%, n = 1) - few: fewer than 20 \
samples, too few to say much
    """
    from .runs.figures import run_figures
    from .runs.table import RunTable, row_of
    from .stats.intervals import mean_interval

    report = report if isinstance(report, EvalReport) else EvalReport(report)
    scope = report.scope(confidence=confidence).of_part
    groups = []
    for value, group in group_by(report.counted, key).items():
        table = RunTable((row_of(result, scope.keys) for result in group), scope.keys)
        scored = [at for at in range(len(table)) if not table.errors[at]]
        clusters = [*scope.clusters(table)]
        own = [clusters[at] for at in scored]
        score = mean_interval(
            [table.values[at] for at in scored],
            clusters=own if len(set(own)) < len(own) else None,
            confidence=confidence,
        )
        groups.append(Slice(value, run_figures(table, scope), score))
    return tuple(groups)
