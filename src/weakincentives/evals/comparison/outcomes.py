"""The outcomes of a run, as far as a comparison needs them: keys, verdicts, values, usage.

They come from a report, from a stored run without its long texts, or from a baseline file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ...errors import UsageError
from ...internal.garbage import collector_paused
from .._types import clustered_by, stops_early
from ..model.decision import Decision, rate_rule
from ..model.grouping import ABSENT, cluster_of, group_values, slice_name
from ..model.redacted_ids import redact_id
from ..model.report import EvalReport
from ..model.result import EvalResult, criterion_values
from ..model.selection import Selection, selected_rate
from ..model.versions import CriterionInfo, judge_models
from ..stats.intervals import Interval
from ..stats.pass_rate import FIXED, RateRule, pass_rate
from ..store.queries import OutcomeRow, outcome_rows
from ..store.run_store import RunStore
from .columns import CountedRows
from .corrected import JudgedRun, judged_run

LEFT_OUT = frozenset({"evaluator", "infrastructure"})
"""The sources of errors that say nothing about the agent, and so are in no comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcomes:
    """The counted rows of a run, its names, and the facts that decide which runs are comparable.

    `unfinished` says how far the run got; empty if it is complete. `anytime`: it has a rule to stop
    early, on which the interval of its rate depends (`rule`). `decision` is what that rule found.
    `mixed` says which versions of agent and evaluators it has, if there are several. `runs` has the
    names of the runs that a baseline was made of, and `created_at` is when the oldest one began.
    `cluster_by` is the key of the metadata by which rows have a cluster, if they do. `quarantined`
    are samples that do not count, and are not among the rows.
    """

    name: str
    rows: CountedRows = field(repr=False)
    dataset_name: str = ""
    dataset_digest: str | None = None
    criteria: tuple[CriterionInfo, ...] = ()
    agent: str = ""
    model: str | None = None
    agent_version: str = ""
    suite: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    unfinished: str = ""
    anytime: bool = False
    run_id: str = ""  # in a store
    mixed: str = ""
    agent_parts: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    created_at: datetime | None = None
    runs: tuple[str, ...] = ()
    cluster_by: str | None = None
    # The verdicts of the judge that was calibrated, with its calibration; None if none was.
    judged: JudgedRun | None = field(default=None, repr=False)
    quarantined: tuple[str, ...] = ()
    rule: RateRule = FIXED
    decision: Decision | None = None
    selection: Selection | None = None

    @property
    def title(self) -> str:
        """The name of what was measured: the suite, or else the dataset, or the run."""
        return self.suite or self.dataset_name or self.name

    @property
    def judge_models(self) -> Mapping[str, str]:
        """The model that each judge asked, by the name of its criterion."""
        return judge_models(self.criteria)

    @property
    def epochs(self) -> int:
        """The number of attempts at each sample."""
        return max(self.rows.epochs, default=0)

    @property
    def passed(self) -> int:
        """The number of rows that passed; an error did not."""
        return sum(self.rows.passed)

    @property
    def errors(self) -> int:
        """The number of rows with an error."""
        return sum(self.rows.errors)

    @property
    def left_out(self) -> Counter[str]:
        """The errors that no comparison counts, by source: those of evaluators and infrastructure.

        An error of the agent is not among them: it is a failure of the agent.
        """
        if not self.errors:
            return Counter()
        sources = map(self.rows.error_source, range(len(self.rows)))
        return Counter(source for source in sources if source in LEFT_OUT)

    @property
    def rate(self) -> Interval:
        """The share that passed, with a 95% interval; epochs of one sample are a cluster."""
        if self.selection is not None:
            attempts = zip(self.rows.samples, map(bool, self.rows.passed), strict=True)
            if (estimated := selected_rate(self.selection, attempts)) is not None:
                return estimated
        return self._rate(range(len(self.rows)), self.rule)

    def _rate(self, places: Iterable[int], rule: RateRule) -> Interval:
        rows, passed = self.rows, self.rows.passed
        attempts = (
            (cluster_of(rows.samples[at], rows.clusters[at]), passed[at] == 1) for at in places
        )
        return pass_rate(attempts, rule=rule, cluster_by=self.cluster_by)

    def by_slice(self) -> dict[str, Interval]:
        """Return the rate of each slice, the largest first."""
        names = (name or ABSENT for name in self.rows.slices)
        groups = group_values(range(len(self.rows)), names)
        largest_first = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        return {name: self._rate(places, self.rule.of_parts) for name, places in largest_first}

    def by_experiment(self) -> list[RunOutcomes]:
        """Return the outcomes of each experiment of the run, in order of appearance."""
        groups = group_values(range(len(self.rows)), self.rows.experiments)
        return [
            replace(
                self,
                name=f"{self.name} {name}",
                rows=self.rows.pick(places),
                agent=name,
                model=None,
            )
            for name, places in groups.items()
        ]


def outcomes_of(
    run: EvalReport[Any] | RunOutcomes | str,
    store: RunStore | None,
    by: str | None = None,
    cluster_by: str | None = None,
) -> RunOutcomes:
    """Return the outcomes of a report, or of a run of the store by its id."""
    if isinstance(run, RunOutcomes):
        return run
    if isinstance(run, EvalReport):
        return report_outcomes(run, by, cluster_by)
    if store is None:
        raise UsageError(f"expected reports, or a `store` for the ids of runs, got {run!r}")
    return stored_outcomes(store, run, by, cluster_by)


def report_outcomes(
    report: EvalReport[Any], by: str | None = None, cluster_by: str | None = None
) -> RunOutcomes:
    """Return the outcomes of a report, sliced and clustered by these keys of the metadata.

    A run that was configured with a `cluster_by` has that one unless another is given.
    """
    cluster_by = cluster_by or clustered_by(report.config)
    return RunOutcomes(
        name=report.run_id or report.dataset_name or "unnamed",
        rows=CountedRows(_reported(result, by, cluster_by) for result in report.counted),
        quarantined=tuple(map(redact_id, report.quarantined)),
        dataset_name=report.dataset_name,
        unfinished=report.stopped,
        mixed=report.mixed,
        anytime=stops_early(report.config),
        cluster_by=cluster_by,
        rule=rate_rule(report.config, report.decision, complete=not report.stopped),
        decision=report.decision,
        selection=report.selection,
    )


def _reported(result: EvalResult[Any], by: str | None, cluster_by: str | None) -> OutcomeRow:
    return OutcomeRow(
        redact_id(result.sample_id),  # as the run store has it, so that the two can be compared
        result.epoch,
        result.experiment_name,
        result.passed,
        result.error is not None,
        result.score.value,
        result.latency_ms,
        result.tokens_used,
        result.cost,
        criterion_values(result.score),
        "",
        None if by is None else slice_name(result.metadata, by),
        result.error_source,
        None if cluster_by is None else slice_name(result.metadata, cluster_by),
    )


def stored_outcomes(
    store: RunStore, run_id: str, by: str | None = None, cluster_by: str | None = None
) -> RunOutcomes:
    """Return the outcomes of a stored run, as `report_outcomes` does for a report."""
    record = store.run(run_id)
    manifest = record.manifest
    cluster_by = cluster_by or clustered_by(manifest.config)
    planned = "" if manifest.planned is None else f" of {manifest.planned:,}"
    with collector_paused():
        outside = set(manifest.quarantined)
        outcomes = outcome_rows(store, manifest.run_id, by, cluster_by)
        rows = CountedRows(row for row in outcomes if row.sample not in outside)
    complete = record.status == "complete"
    return RunOutcomes(
        name=manifest.run_id,
        rows=rows,
        dataset_name=manifest.dataset_name,
        dataset_digest=manifest.dataset_digest,
        criteria=manifest.criteria,
        agent=manifest.agent,
        model=manifest.model,
        agent_version=manifest.agent_version,
        suite=manifest.suite,
        tags=manifest.tags,
        unfinished="" if complete else f"{record.status}, {record.stored:,}{planned} rows",
        anytime=stops_early(manifest.config),
        run_id=manifest.run_id,
        mixed=record.mixed,
        agent_parts=manifest.agent_parts,
        created_at=manifest.created_at,
        cluster_by=cluster_by,
        judged=judged_run(store, manifest),
        quarantined=manifest.quarantined,
        rule=rate_rule(manifest.config, manifest.decision, complete=complete),
        decision=manifest.decision,
        selection=manifest.selection,
    )


def sample_clusters(cluster_by: str, *runs: RunOutcomes) -> dict[str, str]:
    """Return the cluster of each sample: its value under a key of the metadata.

    It is that of the first run that was read with this key: a baseline file has no metadata. A
    sample without the key is an error.
    """
    outcomes = next((run for run in runs if run.cluster_by == cluster_by), None)
    if outcomes is None:
        raise UsageError(
            f"expected outcomes with the metadata {cluster_by!r} to cluster by, got "
            f"{' and '.join(run.name for run in runs)} without - a baseline file has none, and "
            "other outcomes have it if they are read with `cluster_by`"
        )
    clusters = {}
    for sample, cluster in zip(outcomes.rows.samples, outcomes.rows.clusters, strict=True):
        if cluster is None or cluster == ABSENT:
            raise UsageError(
                f"expected {cluster_by!r} in the metadata of every sample to cluster by, "
                f"found none in {sample!r} of {outcomes.name}"
            )
        clusters[sample] = cluster
    return clusters


def other_datasets(before: RunOutcomes, after: RunOutcomes) -> bool:
    """Return whether both runs have a dataset digest, and the digests differ."""
    a, b = before.dataset_digest, after.dataset_digest
    return a is not None and b is not None and a != b


def incomparable(before: RunOutcomes, after: RunOutcomes) -> list[str]:
    """Return why the numbers of two runs are not comparable; empty if they are."""
    problems = measured_differently(before, after)
    shared, other = _changed_samples(before.rows, after.rows)
    if other:
        problems.append(f"datasets differ: {other:,} of {shared:,} samples were changed")
    elif not shared and other_datasets(before, after):
        sets = (f"{run.dataset_name} {str(run.dataset_digest)[:12]}" for run in (before, after))
        problems.append(f"datasets differ: {' and '.join(map(str.strip, sets))} share no sample")
    return problems


def measured_differently(before: RunOutcomes, after: RunOutcomes) -> list[str]:
    """Return how the evaluators or experiments of two runs differ; empty if they do not."""
    problems = []
    names = [sorted(info.name for info in run.criteria) for run in (before, after)]
    versions = {info.name: info.version for info in before.criteria}
    changed = [
        f"{info.name} is {old} and {info.version}"
        for info in after.criteria
        if (old := versions.get(info.name)) and info.version and old != info.version
    ]
    if all(names) and names[0] != names[1]:
        problems.append(f"evaluators differ: {' and '.join(map(' + '.join, names))}")
    elif changed:
        problems.append(f"evaluators differ in version: {', '.join(changed)}")
    if len({len(set(run.rows.experiments)) > 1 for run in (before, after)}) > 1:
        problems.append("one of them has several experiments and the other has one")
    return problems


def _changed_samples(before: CountedRows, after: CountedRows) -> tuple[int, int]:
    """Count the samples with a digest in both runs, and those whose digests differ."""
    known = {name: at for at, name in enumerate(before.samples) if before.digest(at)}
    same: dict[str, bool] = {}
    for at, name in enumerate(after.samples):
        if (old := known.get(name)) is not None and (digest := after.digest(at)):
            same[name] = before.digest(old) == digest
    return len(same), len(same) - sum(same.values())
