"""The outcomes of a run, as far as a comparison needs them: keys, verdicts, values, usage.

They come from a report, from a stored run without its long texts, or from a baseline file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ...errors import UsageError
from .._types import stops_early
from ..model.decision import Decision
from ..model.grouping import ABSENT, group_values
from ..model.versions import CriterionInfo, judge_models
from ..runs.figures import Figures, run_figures
from ..runs.report import EvalReport
from ..runs.scope import EVERY_ROW, Scope
from ..runs.table import RunTable
from ..store.run_record import scope_of
from ..store.run_store import RunStore
from .corrected import JudgedRun, judged_run

LEFT_OUT = frozenset({"evaluator", "infrastructure"})
"""The sources of errors that say nothing about the agent, and so are in no comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcomes:
    """The counted rows of a run, its names, and the facts that decide which runs are comparable.

    `unfinished` says how far the run got; empty if it is complete. `anytime`: it has a rule to stop
    early. `decision` is what that rule found.
    `mixed` says which versions of agent and evaluators it has, if there are several. `runs` has the
    names of the runs that a baseline was made of, and `created_at` is when the oldest one began.
    The rows that do not count by its `scope` are not among `rows`; `whole` has them too, if there
    are any.
    """

    name: str
    rows: RunTable = field(repr=False)
    scope: Scope = field(default=EVERY_ROW, repr=False)
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
    # The verdicts of the judge that was calibrated, with its calibration; None if none was.
    judged: JudgedRun | None = field(default=None, repr=False)
    decision: Decision | None = None
    whole: RunTable | None = field(default=None, repr=False)

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
    def cluster_by(self) -> str | None:
        """The key of the metadata by which samples depend on each other, if they do."""
        return self.scope.cluster_by

    @property
    def quarantined(self) -> frozenset[str]:
        """The samples that do not count."""
        return self.scope.quarantined

    @property
    def errors(self) -> int:
        """The number of rows with an error."""
        return sum(self.rows.errors)

    @property
    def figures(self) -> Figures:
        """The figures of the run, with the confidence of the scope."""
        return run_figures(self.rows if self.whole is None else self.whole, self.scope)

    @property
    def left_out(self) -> Counter[str]:
        """The errors that no comparison counts, by source: those of evaluators and infrastructure.

        An error of the agent is not among them: it is a failure of the agent.
        """
        if not self.errors:
            return Counter()
        sources = map(self.rows.error_source, range(len(self.rows)))
        return Counter(source for source in sources if source in LEFT_OUT)

    def by_experiment(self) -> list[RunOutcomes]:
        """Return the outcomes of each experiment of the run, in order of appearance."""
        groups = group_values(range(len(self.rows)), self.rows.experiments)
        return [
            replace(
                self,
                name=f"{self.name} {name}",
                rows=self.rows.pick(places),
                whole=None,
                agent=name,
                model=None,
                scope=self.scope.of_part,
            )
            for name, places in groups.items()
        ]


def outcomes_of(
    run: EvalReport[Any] | RunOutcomes | str,
    store: RunStore | None,
    by: str | None = None,
    cluster_by: str | None = None,
    confidence: float = 0.95,
) -> RunOutcomes:
    """Return the outcomes of a report, or of a run of the store by its id."""
    if isinstance(run, RunOutcomes):
        return replace(run, scope=replace(run.scope, confidence=confidence))
    if isinstance(run, EvalReport):
        return report_outcomes(run, by, cluster_by, confidence)
    if store is None:
        raise UsageError(f"expected reports, or a `store` for the ids of runs, got {run!r}")
    return stored_outcomes(store, run, by, cluster_by, confidence)


def report_outcomes(
    report: EvalReport[Any],
    by: str | None = None,
    cluster_by: str | None = None,
    confidence: float = 0.95,
) -> RunOutcomes:
    """Return the outcomes of a report, with these keys of the metadata to slice and cluster by.

    A run that was configured with a `cluster_by` has that one unless another is given.
    """
    scope = report.scope(confidence=confidence, cluster_by=cluster_by)
    table = report.table(_keys(scope, by))
    return RunOutcomes(
        name=report.run_id or report.dataset_name or "unnamed",
        rows=_counted(table, scope),
        whole=None if scope.counts_every_row else table,
        scope=scope,
        dataset_name=report.dataset_name,
        unfinished=report.stopped,
        mixed=report.mixed,
        anytime=stops_early(report.config),
        decision=report.decision,
    )


def stored_outcomes(
    store: RunStore,
    run_id: str,
    by: str | None = None,
    cluster_by: str | None = None,
    confidence: float = 0.95,
) -> RunOutcomes:
    """Return the outcomes of a stored run, as `report_outcomes` does for a report."""
    record = store.run(run_id)
    manifest, scope = (
        record.manifest,
        scope_of(record, confidence=confidence, cluster_by=cluster_by),
    )
    table = store.table(manifest.run_id, _keys(scope, by))
    planned = "" if manifest.planned is None else f" of {manifest.planned:,}"
    complete = record.status == "complete"
    return RunOutcomes(
        name=manifest.run_id,
        rows=_counted(table, scope),
        whole=None if scope.counts_every_row else table,
        scope=scope,
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
        judged=judged_run(store, manifest),
        decision=manifest.decision,
    )


def _keys(scope: Scope, by: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*scope.keys, *filter(None, [by]))))


def _counted(table: RunTable, scope: Scope) -> RunTable:
    return table if scope.counts_every_row else table.pick(scope.counted(table))


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
    names = outcomes.rows.metadata(cluster_by)
    for sample, cluster in zip(outcomes.rows.samples, names, strict=True):
        if cluster == ABSENT:
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


def _changed_samples(before: RunTable, after: RunTable) -> tuple[int, int]:
    """Count the samples with a digest in both runs, and those whose digests differ."""
    known = {name: at for at, name in enumerate(before.samples) if before.digest(at)}
    same: dict[str, bool] = {}
    for at, name in enumerate(after.samples):
        if (old := known.get(name)) is not None and (digest := after.digest(at)):
            same[name] = before.digest(old) == digest
    return len(same), len(same) - sum(same.values())
