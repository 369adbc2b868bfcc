"""What came of it: one sample's result, and the report of a run.

A report holds results and nothing else that could disagree with them; every number is computed.
On disk it is a folder (see `_report_files.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, get_args

from .._frozen import truly_frozen
from .._typevars import OutputT
from ..errors import ReportError, UsageError, shown
from ..experiment import BASELINE, Experiment
from ..rollouts import Trajectory
from . import _report_files
from ._config import EvalConfig, config_of, stops_early
from ._score import Score, finite, is_part
from ._types import Sample
from .statistics import mean, std

__all__ = ["ErrorSource", "EvalReport", "EvalResult", "ExperimentComparison", "headline"]

ErrorSource = Literal["agent", "evaluator", "infrastructure"]
_SOURCES = (None, *get_args(ErrorSource))

if TYPE_CHECKING:
    from ._intervals import Interval

    Config = EvalConfig | Mapping[str, Any]
else:
    Config = Any  # a decoder cannot tell the two apart; `EvalReport` can


@truly_frozen
@dataclass(frozen=True, slots=True)
class EvalResult(Generic[OutputT]):
    """One sample's outcome: a score, or an error and where it arose.

    A result with an error carries a score of 0.0 that counts nowhere; where the evaluator failed,
    the trajectory is kept, so that it can be scored again.
    """

    sample_id: str
    score: Score
    latency_ms: int = 0
    error: str | None = None
    sample: Sample[Any, Any] | None = None
    trajectory: Trajectory[OutputT] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    experiment_name: str = BASELINE.name
    epoch: int = 1
    run_id: str = ""
    attempt: int = 1
    error_source: ErrorSource | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sample_id, str) or not isinstance(self.score, Score):
            raise UsageError(
                "expected a `str` and a `Score` for `sample_id` and `score`, got "
                f"{shown(self.sample_id)} and {shown(self.score)}"
            )
        if self.latency_ms.__class__ is not int:
            object.__setattr__(self, "latency_ms", round(finite(self.latency_ms, "latency_ms")))
        if self.error_source not in _SOURCES:
            raise UsageError(
                f"expected one of {_SOURCES} for `error_source`, got {shown(self.error_source)}"
            )

    @property
    def success(self) -> bool:
        """True where no error occurred, whether the sample passed or not."""
        return self.error is None

    @property
    def passed(self) -> bool:
        """True where no error occurred and the score passes."""
        return self.error is None and self.score.passed

    @property
    def output(self) -> OutputT | None:
        """What the agent answered."""
        return self.trajectory.output if self.trajectory else None

    @property
    def tokens_used(self) -> int:
        """Input and output tokens of the attempt; 0 where nobody counted."""
        usage = self.trajectory.usage if self.trajectory else None
        return usage.total_tokens if usage else 0

    @property
    def scores(self) -> tuple[Score, ...]:
        """The score of each criterion, or the one score there is; none after an error."""
        return () if self.error is not None else self.score.parts or (self.score,)

    @property
    def aggregate_score(self) -> float:
        """The value of the score; 0.0 after an error."""
        return self.score.value if self.success else 0.0


def headline(rate: Interval, passed: int, errors: int) -> str:
    """The verdict on a run in a line: counts first, then the rate with its interval and its n."""
    from ._rate import rate_words

    return (
        f"{passed}/{rate.n} passed, {errors} {'error' if errors == 1 else 'errors'} "
        f"({rate.estimate:.1%}, {rate_words(rate)})"
    )


@truly_frozen
@dataclass(frozen=True, slots=True, init=False, repr=False)
class EvalReport(Generic[OutputT]):
    """The outcomes of a run. `stopped` says why it ended before its last sample, if it did.

    `missing` names what was submitted and never answered: experiment, sample id, epoch.

    >>> print(EvalReport([EvalResult("1", Score(1.0)), EvalResult("2", Score(0.0))]))
    1/2 passed, 0 errors (50.0%, 95% interval 9.5% to 90.5%, n = 2)
    """

    results: tuple[EvalResult[OutputT], ...]
    run_id: str = ""
    dataset_name: str = ""
    config: Config = field(default_factory=EvalConfig)
    stopped: str = ""
    missing: tuple[tuple[str, str, int], ...] = ()

    def __init__(
        self,
        results: Iterable[EvalResult[OutputT]],
        run_id: str = "",
        dataset_name: str = "",
        config: Config | None = None,
        stopped: str = "",
        missing: Iterable[tuple[str, str, int]] = (),
    ) -> None:
        object.__setattr__(self, "results", tuple(results))
        object.__setattr__(self, "run_id", run_id)
        object.__setattr__(self, "dataset_name", dataset_name)
        object.__setattr__(self, "config", EvalConfig() if config is None else config)
        object.__setattr__(self, "stopped", stopped)
        object.__setattr__(self, "missing", tuple(missing))
        self.__post_init__()

    def __post_init__(self) -> None:
        for index, result in enumerate(self.results):
            if not isinstance(result, EvalResult):
                raise UsageError(
                    f"expected an `EvalResult`, got {shown(result)} - at `results[{index}]`"
                )
        if not isinstance(self.run_id, str) or not isinstance(self.dataset_name, str):
            raise UsageError("expected a `str` for `run_id` and for `dataset_name`")
        if not isinstance(self.config, EvalConfig):
            object.__setattr__(self, "config", config_of(self.config))

    def __str__(self) -> str:
        line = headline(self.rate, self.passed, self.errors)
        return f"{line} - {self.stopped}" if self.stopped else line

    def __repr__(self) -> str:
        return f"<EvalReport {self.run_id or self.dataset_name or 'unnamed'}: {self}>"

    # ── how many ────────────────────────────────────────────────────────────────────────────────

    @property
    def total(self) -> int:
        """How many results there are."""
        return len(self.results)

    @property
    def successful(self) -> int:
        """How many ended without an error."""
        return sum(1 for result in self.results if result.error is None)

    @property
    def errors(self) -> int:
        """How many ended in an error."""
        return self.total - self.successful

    @property
    def passed(self) -> int:
        """How many passed."""
        return sum(1 for result in self.results if result.passed)

    @property
    def total_samples(self) -> int:
        """`total`, by its other name."""
        return self.total

    @property
    def successful_samples(self) -> int:
        """`successful`, by its other name."""
        return self.successful

    # ── how good ────────────────────────────────────────────────────────────────────────────────

    @property
    def pass_rate(self) -> float:
        """Passed of those without an error; 0.0 where there are none. See `strict_pass_rate`."""
        return _ratio(self.passed, self.successful)

    @property
    def strict_pass_rate(self) -> float:
        """Passed of all: an error is not a pass. Gates and exit codes go by this one."""
        return _ratio(self.passed, self.total)

    @property
    def rate(self) -> Interval:
        """`strict_pass_rate` with its 95 % interval; attempts at one sample are a cluster."""
        from ._rate import pass_rate

        attempts = ((result.sample_id, result.passed) for result in self.results)
        return pass_rate(attempts, anytime=stops_early(self.config))

    @property
    def mean_score(self) -> float:
        """The mean value of those without an error."""
        return mean([result.score.value for result in self.results if result.error is None])

    @property
    def scores_by_criterion(self) -> dict[str, float]:
        """The mean value of each criterion, over those without an error."""
        values: dict[str, list[float]] = {}
        for result in self.results:
            if result.error is None:
                score = result.score
                parts = [(metric.name, metric.value) for metric in score.metrics if is_part(metric)]
                for name, value in parts or [(score.criterion or "score", score.value)]:
                    values.setdefault(name, []).append(value)
        return {name: mean(found) for name, found in values.items()}

    @property
    def metric_means(self) -> dict[str, float]:
        """The mean of every metric by name, tracked ones included, without those of errors."""
        values: dict[str, list[float]] = {}
        for result in self.results:
            if result.error is None:
                for metric in result.score.metrics:
                    values.setdefault(metric.name, []).append(metric.value)
        return {name: mean(found) for name, found in values.items()}

    @property
    def summary(self) -> dict[str, float]:
        """`mean`, `std` (n - 1), `min`, `max` of the values; `n` scored, `errors`, `total`."""
        values = [result.score.value for result in self.results if result.error is None]
        return {
            "mean": mean(values),
            "std": std(values),
            "min": min(values, default=0.0),
            "max": max(values, default=0.0),
            "n": len(values),
            "errors": self.total - len(values),
            "total": self.total,
        }

    # ── what it took ────────────────────────────────────────────────────────────────────────────

    @property
    def mean_latency_ms(self) -> float:
        """The agent's mean time, errors included."""
        return mean([result.latency_ms for result in self.results])

    @property
    def total_tokens(self) -> int:
        """Input and output tokens of all attempts, errors included."""
        return sum(result.tokens_used for result in self.results)

    # ── which ───────────────────────────────────────────────────────────────────────────────────

    def failed_samples(self) -> tuple[EvalResult[OutputT], ...]:
        """Results that were scored and did not pass."""
        return tuple(r for r in self.results if r.error is None and not r.score.passed)

    def errored_samples(self) -> tuple[EvalResult[OutputT], ...]:
        """Results that ended in an error."""
        return tuple(result for result in self.results if result.error is not None)

    # ── experiments ─────────────────────────────────────────────────────────────────────────────

    def by_experiment(self) -> dict[str, tuple[EvalResult[OutputT], ...]]:
        """The results of each experiment, in the order in which they first appear."""
        found: dict[str, list[EvalResult[OutputT]]] = {}
        for result in self.results:
            found.setdefault(result.experiment_name, []).append(result)
        return {name: tuple(results) for name, results in found.items()}

    def pass_rate_by_experiment(self) -> dict[str, float]:
        """The `pass_rate` of each experiment."""
        return self._each(lambda report: report.pass_rate)

    def mean_score_by_experiment(self) -> dict[str, float]:
        """The `mean_score` of each experiment."""
        return self._each(lambda report: report.mean_score)

    def _each(self, number: Callable[[EvalReport[OutputT]], float]) -> dict[str, float]:
        return {name: number(EvalReport(found)) for name, found in self.by_experiment().items()}

    def compare_experiments(
        self, baseline: str | Experiment, treatment: str | Experiment
    ) -> ExperimentComparison[OutputT]:
        """Two experiments of this report beside each other, by name."""
        found = self.by_experiment()
        a, b = (x.name if isinstance(x, Experiment) else x for x in (baseline, treatment))
        for name in (a, b):
            if name not in found:
                known = ", ".join(found) or "none"
                raise UsageError(f"expected an experiment of this report ({known}), got {name!r}")
        return ExperimentComparison(a, b, found[a], found[b])

    # ── on disk ─────────────────────────────────────────────────────────────────────────────────

    def save(self, path: Path | str) -> None:
        """Write a folder of `config.json`, `results.jsonl` and `summary.json`."""
        header = {
            "run_id": self.run_id,
            "dataset_name": self.dataset_name,
            "config": self.config,
            "stopped": self.stopped,
            "missing": self.missing,
        }
        _report_files.save(Path(path), header=header, results=self.results, summary=self.summary)

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        input_type: Any = Any,
        output_type: Any = Any,
        expected_type: Any = Any,
    ) -> EvalReport[Any]:
        """Read what `save` wrote; without types, inputs and outputs come back as plain data.

        A torn last line, as a killed writer leaves it, is left out with a `ReportWarning`.
        """
        path = Path(path)
        head, results = _report_files.load(path, EvalResult[output_type], input_type, expected_type)
        try:
            return EvalReport(
                results,
                head.get("run_id", ""),
                head.get("dataset_name", ""),
                head.get("config"),
                head.get("stopped", ""),
                [tuple(key) for key in head.get("missing", ())],
            )
        except UsageError as error:
            raise ReportError(str(error), file=path / "config.json") from None


@truly_frozen
@dataclass(frozen=True, slots=True)
class ExperimentComparison(Generic[OutputT]):
    """Two experiments beside each other, by their pass rates."""

    baseline_name: str
    treatment_name: str
    baseline_results: tuple[EvalResult[OutputT], ...]
    treatment_results: tuple[EvalResult[OutputT], ...]

    def __str__(self) -> str:
        return (
            f"{self.baseline_name}: {EvalReport(self.baseline_results)}\n"
            f"{self.treatment_name}: {EvalReport(self.treatment_results)}\n"
            f"pass rate {self.pass_rate_delta:+.1%}"
        )

    @property
    def baseline_pass_rate(self) -> float:
        """The baseline's `pass_rate`."""
        return EvalReport(self.baseline_results).pass_rate

    @property
    def treatment_pass_rate(self) -> float:
        """The treatment's `pass_rate`."""
        return EvalReport(self.treatment_results).pass_rate

    @property
    def pass_rate_delta(self) -> float:
        """Treatment minus baseline: above 0 the treatment did better."""
        return self.treatment_pass_rate - self.baseline_pass_rate

    @property
    def relative_improvement(self) -> float | None:
        """The delta as a fraction of the baseline; None where the baseline is 0."""
        baseline = self.baseline_pass_rate
        return self.pass_rate_delta / baseline if baseline else None


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
