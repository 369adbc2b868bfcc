"""Do the runs of an agent get better or worse? A line and a step through several runs.

Rules of this file:
1. Only runs that were measured in the same way make one history: a change of evaluators, or of
   agents, is reported.
2. Only samples that all of its runs have, with the same content, are compared; each is compared
   with itself, by the share of its attempts that passed. Errors of evaluators and infrastructure
   are left out, with their number; an error of the agent is a failure.
3. The false alarms that the confidence allows are divided among the line, which sees most changes,
   the step, and the changes from run to run (`adjusted_steps`). All hold for all `looks` together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...errors import UsageError
from ...internal.formatting import pluralize
from ..runs.report import EvalReport
from ..stats.basic import mean, p_text
from ..stats.intervals import Interval
from ..stats.multiplicity import holm
from ..stats.trends import ChangePoint, Trend, change_point, linear_trend
from ..store.run_store import RunStore
from ..store.run_titles import agent_label
from .outcomes import (
    LEFT_OUT,
    RunOutcomes,
    measured_differently,
    outcomes_of,
    sample_clusters,
)

DEFAULT_LOOKS = 20
MIN_RUNS = 3  # with two, a trend is their difference

LINE_SHARE, STEP_SHARE, RUN_TO_RUN_SHARE = 0.7, 0.3, 0.2
"""The shares of the false alarms. They may sum to more than 1, since the line and the step mostly
alarm together: by `python -m bench stats trends`, equal runs have an alarm of any kind in about 5%.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrend:
    """The history of an agent: its runs, oldest first, the line and the clearest step.

    `line` and `step` are None if fewer than three runs can be compared. Their intervals and
    p-values hold for `looks` looks, for both together. `str(...)` says what they show, in a
    sentence each.
    """

    runs: tuple[RunOutcomes, ...] = field(repr=False)
    line: Trend | None = None
    step: ChangePoint | None = None
    looks: int = DEFAULT_LOOKS
    warnings: tuple[str, ...] = ()

    @property
    def outcome(self) -> Literal["rises", "falls", "none"]:
        """What the line shows."""
        if self.line is None or not _is_significant(self.line.slope, self.line.p_value):
            return "none"
        return "rises" if self.line.slope.estimate > 0 else "falls"

    @property
    def stepped(self) -> bool:
        """Whether a step is shown."""
        return self.step is not None and _is_significant(self.step.difference, self.step.p_value)

    def sentences(self) -> tuple[str, ...]:
        """Return what the line shows, and then the step, if there is one."""
        if self.line is None or self.step is None:
            return ()
        slope, p_value = self.line.slope, self.line.p_value
        low, high = slope.low, slope.high
        if self.outcome == "falls":
            low, high = -high, -low
        size = abs(slope.estimate) if self.outcome != "none" else slope.estimate
        what = f"{self.outcome} by" if self.outcome != "none" else "no trend shown:"
        clusters = "" if slope.clusters is None else f" in {slope.clusters:,} clusters"
        evidence = "no test" if p_value is None else p_text(p_value)
        line = (
            f"{what} {_points(size, self.outcome == 'none')} points a run, "
            f"{_ends(slope, low, high)}, {evidence} "
            f"({self.line.runs} runs, n = {slope.n:,}{clusters})"
        )
        if not self.stepped:
            return (line,)
        step, change = self.step, self.step.difference
        before, after = self.runs[step.run - 1], self.runs[step.run]
        return (
            line,
            f"changed between {before.name} and {after.name}: {_points(change.estimate, True)} "
            f"points, {_ends(change, change.low, change.high)}, {p_text(step.p_value)}",
        )

    def __str__(self) -> str:
        return "\n".join(self.sentences()) or f"no trend: {'; '.join(self.warnings)}"


def run_trend(
    runs: Sequence[EvalReport[Any] | RunOutcomes | str],
    *,
    cluster_by: str | None = None,
    looks: int = DEFAULT_LOOKS,
    confidence: float = 0.95,
    store: RunStore | None = None,
) -> RunTrend:
    """Return the trend of the pass rate over runs, oldest first: reports, or ids in a store.

    `looks` is how often you look at this history, as after every run; 1 for a single look.
    `cluster_by` is a key of the metadata that samples of one cluster share, such as a document.

    >>> from weakincentives.evals import EvalResult, Score
    >>> def report(passing):
    ...     return EvalReport([EvalResult(str(n), Score(float(n < passing))) for n in range(40)])
    >>> run_trend([report(30), report(25), report(20)], looks=1).outcome
    'falls'
    """
    if not 0 < confidence < 1:
        raise UsageError(f"expected a `confidence` between 0 and 1, got {confidence}")
    outcomes = [outcomes_of(run, store, cluster_by=cluster_by) for run in runs]
    history, warnings = _measured_alike(outcomes)
    samples, unlike = _common_samples(history)
    warnings += _warnings(history, len(samples), unlike)
    if len(history) < MIN_RUNS or not samples:
        if len(history) < MIN_RUNS:
            warnings.append(f"expected {MIN_RUNS} runs or more to compare, got {len(history)}")
        return RunTrend(runs=tuple(history), looks=looks, warnings=tuple(warnings))
    clusters = None
    cluster_by = cluster_by or history[-1].cluster_by
    if cluster_by is not None:
        names = sample_clusters(cluster_by, *reversed(history))
        clusters = [names[sample] for sample in samples]
    values = [*samples.values()]
    line = linear_trend(
        values,
        clusters=clusters,
        looks=looks,
        confidence=1 - LINE_SHARE * (1 - confidence),
    )
    step = change_point(
        values,
        clusters=clusters,
        looks=looks,
        confidence=1 - STEP_SHARE * (1 - confidence),
    )
    return RunTrend(
        runs=tuple(history),
        line=replace(
            line,
            slope=replace(line.slope, confidence=confidence),
            p_value=None if line.p_value is None else min(1.0, line.p_value / LINE_SHARE),
        ),
        step=replace(
            step,
            difference=replace(step.difference, confidence=confidence),
            p_value=min(1.0, step.p_value / STEP_SHARE),
        ),
        looks=looks,
        warnings=tuple(warnings),
    )


def adjusted_steps(p_values: Sequence[float | None], looks: int) -> list[float]:
    """Adjust the p-values of the steps from run to run together, after Holm, for all looks.

    Each look adds a step, so there are, or will be, at least as many steps as looks.
    """
    known = [1.0 if p is None else p for p in p_values]
    unseen = [1.0] * max(0, looks - 1 - len(known))
    return [min(1.0, p / RUN_TO_RUN_SHARE) for p in holm([*known, *unseen])[: len(known)]]


def _measured_alike(runs: Sequence[RunOutcomes]) -> tuple[list[RunOutcomes], list[str]]:
    """Return the latest runs that were measured the same way, and why earlier ones are left out."""
    for at in range(len(runs) - 1, 0, -1):
        problems = measured_differently(runs[at - 1], runs[at])
        if problems:
            why = f"{'; '.join(problems)}, from {runs[at - 1].name} to {runs[at].name}"
            return [*runs[at:]], [f"{pluralize(at, 'earlier run')} left out of the trend: {why}"]
    return [*runs], []


def _common_samples(runs: Sequence[RunOutcomes]) -> tuple[dict[str, list[float]], int]:
    """Return the shares that passed of each sample that is the same in all runs, run by run.

    The second value is the number of samples that are not the same, or not in all runs.
    """
    shares: list[dict[str, float]] = []
    digests: dict[str, set[str]] = {}
    for rows in (run.rows for run in runs):
        attempts: dict[str, list[int]] = {}
        for at, sample in enumerate(rows.samples):
            if rows.error_source(at) not in LEFT_OUT:
                attempts.setdefault(sample, []).append(rows.passed[at])
            if digest := rows.digest(at):
                digests.setdefault(sample, set()).add(digest)
        shares.append({sample: mean(passed) for sample, passed in attempts.items()})
    every = dict.fromkeys(sample for run in runs for sample in run.rows.samples)
    common = {
        sample: [share[sample] for share in shares]
        for sample in every
        if all(sample in share for share in shares) and len(digests.get(sample, ())) < 2
    }
    return common, len(every) - len(common)


def _warnings(history: Sequence[RunOutcomes], common: int, unlike: int) -> Iterator[str]:
    agents = dict.fromkeys(agent_label(run.agent, run.model) for run in history)
    if len(agents) > 1:
        yield f"the runs are of different agents: {', '.join(name or '-' for name in agents)}"
    left_out = sum((run.left_out for run in history), Counter[str]())
    if left_out:
        numbers = " and ".join(f"{count:,} of {source}" for source, count in left_out.items())
        yield f"{pluralize(left_out.total(), 'error')} left out of the trend: {numbers}"
    if unlike:
        fewest = min(history, key=lambda run: len({*run.rows.samples}))
        yield (
            f"only {common:,} of {common + unlike:,} samples count for the trend: the others are "
            f"not in all runs, or changed ({fewest.name} has the fewest: "
            f"{len({*fewest.rows.samples}):,})"
        )


def _is_significant(change: Interval, p_value: float | None) -> bool:
    return p_value is not None and p_value <= 1 - change.confidence and 0 not in change


def _points(share: float, sign: bool) -> str:
    text = f"{100 * share:{'+' if sign else ''}.1f}"
    return text.lstrip("+-") if float(text) == 0 else text


def _ends(interval: Interval, low: float, high: float) -> str:
    if not interval.known:
        return "interval unknown"
    ends = f"{_points(low, False)} to {_points(high, False)}"
    return f"{interval.confidence * 100:g}% interval {ends}"
