"""`EvalReport`: the results of a run. Its numbers are those of `runs/figures.py`.

On disk a report is a folder (see `runs/report_files.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, overload

from ... import serde
from ...errors import ReportError, SerializationError, UsageError, short_repr
from ...experiment import Experiment
from ...internal.frozen import frozen_generic
from ...internal.typevars import OutputT
from .._types import EvalConfig, Score, config_of
from ..model.corrections import Correction
from ..model.grouping import group_values
from ..model.quarantine import quarantine_line
from ..model.redacted_ids import redact_id
from ..model.result import EvalResult
from ..stats.basic import means_by_name, std
from . import report_files as _report_files
from .experiments import ExperimentComparison

if TYPE_CHECKING:
    from ..model.decision import Decision
    from ..model.selection import Selection
    from ..stats.intervals import Interval
    from ..stats.repeats import EpochStats
    from .figures import Figures
    from .scope import Scope
    from .table import RunTable

    Config = EvalConfig | Mapping[str, Any]
else:
    Config = Any  # a decoder cannot tell the two apart; `EvalReport` can
    Decision = Selection = Figures = Any  # imported when they are needed


@frozen_generic
@dataclass(frozen=True, slots=True, init=False, repr=False)
class EvalReport(Generic[OutputT]):
    """The results of a run. `stopped` is the reason if it ended before its last sample.

    `missing` has the keys that were submitted and never answered: experiment, sample id, epoch;
    `("", "", 0)` for each that is unknown, if the results were collected by their number.
    `corrections` has the pass rates that people would give, of judges that were calibrated by their
    labels when the report was made.
    `quarantined` are the ids of samples that do not count: they are in `results` and in usage, and
    in no other number.
    `decision` is what the rule that stopped it early had found, `selection` which samples of the
    dataset it has, if they were drawn by strata. `mixed` says which versions of agent and
    evaluators it has, if there are several.

    >>> print(EvalReport([EvalResult("1", Score(1.0)), EvalResult("2", Score(0.0))]))
    1/2 passed, 0 errors (50.0%, 95% interval 9.5% to 90.5%, n = 2)
    """

    results: tuple[EvalResult[OutputT], ...]
    run_id: str = ""
    dataset_name: str = ""
    config: Config = field(default_factory=EvalConfig)
    stopped: str = ""
    missing: tuple[tuple[str, str, int], ...] = ()
    corrections: tuple[Correction, ...] = ()
    quarantined: tuple[str, ...] = ()
    decision: Decision | None = None
    selection: Selection | None = None
    mixed: str = ""
    _figures: Figures | None = field(default=None, init=False, repr=False, compare=False)

    def __init__(
        self,
        results: Iterable[EvalResult[OutputT]],
        run_id: str = "",
        dataset_name: str = "",
        config: Config | None = None,
        stopped: str = "",
        missing: Iterable[tuple[str, str, int]] = (),
        corrections: Iterable[Correction] = (),
        quarantined: Iterable[str] = (),
        decision: Decision | None = None,
        selection: Selection | None = None,
        mixed: str = "",
    ) -> None:
        object.__setattr__(self, "results", tuple(results))
        object.__setattr__(self, "run_id", run_id)
        object.__setattr__(self, "dataset_name", dataset_name)
        object.__setattr__(self, "config", EvalConfig() if config is None else config)
        object.__setattr__(self, "stopped", stopped)
        object.__setattr__(self, "missing", tuple(missing))
        object.__setattr__(self, "corrections", tuple(corrections))
        object.__setattr__(self, "quarantined", tuple(quarantined))
        object.__setattr__(self, "decision", decision)
        object.__setattr__(self, "selection", selection)
        object.__setattr__(self, "mixed", mixed)
        object.__setattr__(self, "_figures", None)
        self.__post_init__()

    def __post_init__(self) -> None:
        for index, result in enumerate(self.results):
            if not isinstance(result, EvalResult):
                raise UsageError(
                    f"expected an `EvalResult`, got {short_repr(result)} - at `results[{index}]`"
                )
        if not isinstance(self.run_id, str) or not isinstance(self.dataset_name, str):
            raise UsageError("expected a `str` for `run_id` and for `dataset_name`")
        if not isinstance(self.config, EvalConfig):
            object.__setattr__(self, "config", config_of(self.config))
        if isinstance(self.decision, Mapping):
            from ..model.decision import Decision

            object.__setattr__(self, "decision", _converted(self.decision, Decision))
        if isinstance(self.selection, Mapping):
            from ..model.selection import Selection

            object.__setattr__(self, "selection", _converted(self.selection, Selection))

    def __str__(self) -> str:
        verdict = "" if self.decision is None else self.decision.verdict
        notes = (*map(str, self.corrections), verdict, self.stopped, self.mixed)
        outside = quarantine_line(self.figures.quarantined)
        return " - ".join(filter(None, (str(self.figures), *notes, outside)))

    def __repr__(self) -> str:
        return f"<EvalReport {self.run_id or self.dataset_name or 'unnamed'}: {self}>"

    # ── a sequence of results ───────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self.results)

    def __bool__(self) -> bool:
        return True  # also without results

    def __iter__(self) -> Iterator[EvalResult[OutputT]]:
        return iter(self.results)

    @overload
    def __getitem__(self, at: int) -> EvalResult[OutputT]: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[EvalResult[OutputT], ...]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self.results[at]

    # ── figures ─────────────────────────────────────────────────────────────────────────────────

    @property
    def figures(self) -> Figures:
        """The figures of the report, with 95% intervals."""
        if self._figures is None:
            object.__setattr__(self, "_figures", self.figures_at(0.95))
        assert self._figures is not None
        return self._figures

    def figures_at(self, confidence: float) -> Figures:
        """Return the figures of the report, with intervals of this confidence."""
        from .figures import run_figures

        scope = self.scope(confidence=confidence)
        return run_figures(self.table(scope.keys), scope)

    def scope(self, *, confidence: float = 0.95, cluster_by: str | None = None) -> Scope:
        """Return which results count, and how the interval of the pass rate is computed."""
        from .scope import Scope

        complete = not self.stopped
        return Scope.of(self, complete=complete, confidence=confidence, cluster_by=cluster_by)

    def table(self, keys: Iterable[str] = ()) -> RunTable:
        """Return the results by column, with these keys of their metadata."""
        from .table import RunTable, row_of

        keys = tuple(keys)
        return RunTable((row_of(result, keys) for result in self.results), keys)

    # ── counts ──────────────────────────────────────────────────────────────────────────────────

    @property
    def counted(self) -> tuple[EvalResult[OutputT], ...]:
        """The results of samples that are not in quarantine."""
        if (scope := self.scope()).counts_every_row:
            return self.results
        return tuple(self.results[at] for at in scope.counted(self.table(scope.keys)))

    @property
    def total(self) -> int:
        """The number of results that count."""
        return self.figures.total

    @property
    def successful(self) -> int:
        """The number of results without an error."""
        return self.figures.scored

    @property
    def errors(self) -> int:
        """The number of results with an error."""
        return self.figures.error_count

    @property
    def passed(self) -> int:
        """The number of results that passed."""
        return self.figures.passed

    total_samples = total
    successful_samples = successful

    # ── scores ──────────────────────────────────────────────────────────────────────────────────

    @property
    def pass_rate(self) -> float:
        """The share of results without an error that passed; 0.0 if there are none."""
        return self.figures.pass_rate_without_errors

    @property
    def strict_pass_rate(self) -> float:
        """The share that passed: an error is not a pass. Gates use this one.

        Of samples that were drawn by strata (`selection`), it is that of the whole dataset.
        """
        return self.figures.rate.estimate

    @property
    def rate(self) -> Interval:
        """`strict_pass_rate` with its 95% interval; attempts at one sample are a cluster."""
        return self.figures.rate

    @property
    def mean_score(self) -> float:
        """The mean value of the results without an error; 0.0 if there are none."""
        return self.figures.mean_score or 0.0

    @property
    def scores_by_criterion(self) -> dict[str, float]:
        """The mean value of each criterion, over results without an error."""
        return dict(self.figures.criteria)

    @property
    def metric_means(self) -> dict[str, float]:
        """The mean of every metric by name, including those with weight 0; without errors."""
        return means_by_name((m.name, m.value) for score in self._scores() for m in score.metrics)

    def _scores(self) -> list[Score]:
        return [result.score for result in self.counted if result.error is None]

    @property
    def epoch_stats(self) -> EpochStats | None:
        """pass@k, pass^k and the flaky samples of a run with epochs; None without epochs."""
        return self.figures.epochs

    @property
    def summary(self) -> dict[str, float]:
        """`mean`, `std` (n - 1), `min`, `max` of the values; `n` scored, `errors`, `total`.

        With epochs also `pass_at_k`, `pass_hat_k` and the number of `flaky` samples.
        """
        values = [score.value for score in self._scores()]
        numbers = {
            "mean": self.mean_score,
            "std": std(values),
            "min": min(values, default=0.0),
            "max": max(values, default=0.0),
            "n": len(values),
            "errors": self.errors,
            "total": self.total,
        }
        if (repeated := self.epoch_stats) is not None:
            numbers["pass_at_k"] = repeated.pass_at_k
            numbers["pass_hat_k"] = repeated.pass_hat_k
            numbers["flaky"] = len(repeated.flaky)
        return numbers

    # ── usage ───────────────────────────────────────────────────────────────────────────────────

    @property
    def mean_latency_ms(self) -> float:
        """The mean latency of the agent, errors included; 0.0 if none is known."""
        return 0.0 if self.figures.latency is None else self.figures.latency.mean

    @property
    def total_tokens(self) -> int | None:
        """Input and output tokens of agent and judges; None if the agent's are unknown."""
        return self.figures.tokens

    @property
    def agent_tokens(self) -> int | None:
        """Input and output tokens of the agent, errors included; None if they are unknown."""
        return self.figures.agent_tokens

    @property
    def judge_tokens(self) -> int:
        """Input and output tokens of the judges, errors included."""
        return self.figures.judge_tokens

    @property
    def cost(self) -> float | None:
        """Cost of agent and judges in US dollars; None if either is unknown."""
        return self.figures.cost

    @property
    def agent_cost(self) -> float | None:
        """Cost of the agent in US dollars; None if no price is known."""
        return self.figures.agent_cost

    @property
    def judge_cost(self) -> float | None:
        """Cost of the judges in US dollars; None if no price is known."""
        return self.figures.judge_cost

    # ── subsets ─────────────────────────────────────────────────────────────────────────────────

    def failed_samples(self) -> tuple[EvalResult[OutputT], ...]:
        """Return the results that were scored and did not pass."""
        return tuple(r for r in self.counted if r.error is None and not r.score.passed)

    def errored_samples(self) -> tuple[EvalResult[OutputT], ...]:
        """Return the results with an error."""
        return tuple(result for result in self.counted if result.error is not None)

    # ── experiments ─────────────────────────────────────────────────────────────────────────────

    def by_experiment(self) -> dict[str, tuple[EvalResult[OutputT], ...]]:
        """Return the results of each experiment, in the order of their first appearance."""
        return group_values(self.counted, (result.experiment_name for result in self.counted))

    def pass_rate_by_experiment(self) -> dict[str, float]:
        """Return the `pass_rate` of each experiment."""
        each = self._by_experiment()
        return {name: figures.pass_rate_without_errors for name, figures in each.items()}

    def mean_score_by_experiment(self) -> dict[str, float]:
        """Return the `mean_score` of each experiment."""
        return {name: each.mean_score or 0.0 for name, each in self._by_experiment().items()}

    def _by_experiment(self) -> dict[str, Figures]:
        from .figures import experiment_figures

        scope = self.scope()
        return experiment_figures(self.table(scope.keys), scope)

    def compare_experiments(
        self, baseline: str | Experiment, treatment: str | Experiment
    ) -> ExperimentComparison[OutputT]:
        """Compare two experiments of this report, by name."""
        groups = self.by_experiment()
        a, b = (x.name if isinstance(x, Experiment) else x for x in (baseline, treatment))
        for name in (a, b):
            if name not in groups:
                known = ", ".join(groups) or "none"
                raise UsageError(f"expected an experiment of this report ({known}), got {name!r}")
        figures = self._by_experiment()
        return ExperimentComparison(a, b, groups[a], groups[b], figures[a], figures[b])

    # ── on disk ─────────────────────────────────────────────────────────────────────────────────

    def save(self, path: Path | str) -> None:
        """Write a folder of `config.json`, `results.jsonl` and `summary.json`."""
        header = {
            "run_id": self.run_id,
            "dataset_name": self.dataset_name,
            "config": self.config,
            "stopped": self.stopped,
            "quarantined": [redact_id(sample) for sample in self.quarantined],
            "decision": self.decision,
            "selection": self.selection,
            "missing": [(redact_id(name), redact_id(id), n) for name, id, n in self.missing],
            **({"corrections": self.corrections} if self.corrections else {}),
            **({"mixed": self.mixed} if self.mixed else {}),
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
        """Read a saved report; without types, inputs and outputs come back as plain data.

        An incomplete last line, left by a killed writer, is skipped with a `ReportWarning`.
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
                serde.decode(serde.encode(head.get("corrections", ())), tuple[Correction, ...]),
                head.get("quarantined", ()),
                head.get("decision"),
                head.get("selection"),
                head.get("mixed", ""),
            )
        except UsageError as error:
            raise ReportError(str(error), file=path / "config.json") from None


def _converted(data: Mapping[str, Any], kind: type[Any]) -> Any:
    try:
        return serde.convert(data, kind)
    except SerializationError as error:
        raise UsageError(f"expected a usable `{kind.__name__}`: {error}") from None
