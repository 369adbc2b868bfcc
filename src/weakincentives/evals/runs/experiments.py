"""Two experiments of one report, compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from ...internal.frozen import frozen_generic
from ...internal.typevars import OutputT
from ..model.result import EvalResult

if TYPE_CHECKING:
    from .figures import Figures
else:
    Figures = Any


@frozen_generic
@dataclass(frozen=True, slots=True)
class ExperimentComparison(Generic[OutputT]):
    """Two experiments compared by their pass rates."""

    baseline_name: str
    treatment_name: str
    baseline_results: tuple[EvalResult[OutputT], ...]
    treatment_results: tuple[EvalResult[OutputT], ...]
    baseline: Figures = field(repr=False)
    treatment: Figures = field(repr=False)

    def __str__(self) -> str:
        return (
            f"{self.baseline_name}: {self.baseline}\n"
            f"{self.treatment_name}: {self.treatment}\n"
            f"pass rate {self.pass_rate_delta:+.1%}"
        )

    @property
    def baseline_pass_rate(self) -> float:
        """The baseline's `pass_rate`."""
        return self.baseline.pass_rate_without_errors

    @property
    def treatment_pass_rate(self) -> float:
        """The treatment's `pass_rate`."""
        return self.treatment.pass_rate_without_errors

    @property
    def pass_rate_delta(self) -> float:
        """Treatment minus baseline; above 0 the treatment did better."""
        return self.treatment_pass_rate - self.baseline_pass_rate

    @property
    def relative_improvement(self) -> float | None:
        """The delta as a fraction of the baseline; None if the baseline is 0."""
        baseline = self.baseline_pass_rate
        return self.pass_rate_delta / baseline if baseline else None
