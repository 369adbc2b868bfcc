"""Two experiments of one report, compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

from ...internal.frozen import frozen_generic
from ...internal.typevars import OutputT
from .result import EvalResult, headline, strict_rate


@frozen_generic
@dataclass(frozen=True, slots=True)
class ExperimentComparison(Generic[OutputT]):
    """Two experiments compared by their pass rates."""

    baseline_name: str
    treatment_name: str
    baseline_results: tuple[EvalResult[OutputT], ...]
    treatment_results: tuple[EvalResult[OutputT], ...]

    def __str__(self) -> str:
        return (
            f"{self.baseline_name}: {_headline(self.baseline_results)}\n"
            f"{self.treatment_name}: {_headline(self.treatment_results)}\n"
            f"pass rate {self.pass_rate_delta:+.1%}"
        )

    @property
    def baseline_pass_rate(self) -> float:
        """The baseline's `pass_rate`."""
        return _pass_rate(self.baseline_results)

    @property
    def treatment_pass_rate(self) -> float:
        """The treatment's `pass_rate`."""
        return _pass_rate(self.treatment_results)

    @property
    def pass_rate_delta(self) -> float:
        """Treatment minus baseline; above 0 the treatment did better."""
        return self.treatment_pass_rate - self.baseline_pass_rate

    @property
    def relative_improvement(self) -> float | None:
        """The delta as a fraction of the baseline; None if the baseline is 0."""
        baseline = self.baseline_pass_rate
        return self.pass_rate_delta / baseline if baseline else None


def _pass_rate(results: Sequence[EvalResult[Any]]) -> float:
    successful = sum(result.success for result in results)
    return sum(result.passed for result in results) / successful if successful else 0.0


def _headline(results: Sequence[EvalResult[Any]]) -> str:
    passed = sum(result.passed for result in results)
    errors = sum(not result.success for result in results)
    return headline(strict_rate(results), passed, errors)
