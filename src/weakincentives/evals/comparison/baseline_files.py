"""Baselines: what later runs are compared with, as a small JSON file to commit.

Rules of this file:
1. A baseline has one row per line: ids, verdicts and values, but no output of a model, and no
   metadata: of samples that depend on each other, it has the ids in groups.
2. It can pool several runs of the same samples. Their rows are further epochs of the samples, so
   that the luck of one run counts less.
3. Nothing writes a baseline but `save_baseline`: a gate never moves the one that it compares with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ... import serde
from ...errors import ReportError, SerializationError, UsageError
from ...internal.atomic_write import write_whole
from ..model.grouping import ABSENT, group_values
from ..model.result import ErrorSource
from ..model.selection import Selection
from ..model.versions import CriterionInfo
from ..runs.scope import Scope
from ..runs.table import RunTable, TableRow
from ..stats.pass_rate import RateRule
from .comparability import comparison_blockers
from .outcomes import RunOutcomes

BASELINE = "wink-baseline/2"
_EARLIER = "wink-baseline/1"  # without the sources of errors, and of one run


def pool_outcomes(runs: Sequence[RunOutcomes]) -> RunOutcomes:
    """Return several runs of the same samples as one: their rows are epochs of the samples."""
    if not runs:
        raise UsageError("expected at least one run for a baseline, got none")
    names = [run.name for run in runs]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"expected different runs to pool, got {repeated[0]} twice")
    for first, other in combinations(runs, 2):
        if problems := comparison_blockers(first, other):
            raise UsageError(
                f"expected runs that were measured the same way, got {first.name} and "
                f"{other.name}: {'; '.join(problems)}"
            )
    if len({run.cluster_by for run in runs}) > 1:
        raise UsageError("expected runs with the same `cluster_by` to pool, got different ones")
    if len(runs) == 1:
        return replace(runs[0], runs=(runs[0].name,))
    times = [run.created_at for run in runs if run.created_at is not None]
    agents, models = {run.agent for run in runs}, {run.model for run in runs}
    versions = {run.agent_version for run in runs}
    return replace(
        runs[0],
        name=" + ".join(names),
        rows=RunTable(_pooled(runs), runs[0].rows.keys),
        whole=None,
        agent=runs[0].agent if len(agents) == 1 else "",
        model=runs[0].model if len(models) == 1 else None,
        agent_version=runs[0].agent_version if len(versions) == 1 else "",
        tags={},
        unfinished="; ".join(run.unfinished for run in runs if run.unfinished),
        anytime=any(run.anytime for run in runs),
        run_id="",
        mixed="; ".join(run.mixed for run in runs if run.mixed),
        agent_parts={},
        created_at=min(times, default=None),
        runs=tuple(names),
    )


def _pooled(runs: Iterable[RunOutcomes]) -> Iterator[TableRow]:
    earlier_epochs = 0
    for run in runs:
        yield from (row._replace(epoch=row.epoch + earlier_epochs) for row in run.rows)
        earlier_epochs += run.epochs


def save_baseline(outcomes: RunOutcomes, path: Path | str) -> None:
    """Write the keys, verdicts and values of a run; the only texts are ids and names.

    A row is `[sample, epoch, passed, value, digest, experiment, scores, error_source]`, with
    `passed` null for an error. `scores` has the value of each criterion, if there are several. The
    last two are left out if they are empty.
    """
    head = {
        "format": BASELINE,
        "name": outcomes.name,
        "runs": outcomes.runs or [outcomes.name],
        "created_at": None if outcomes.created_at is None else outcomes.created_at.isoformat(),
        "dataset_name": outcomes.dataset_name,
        "dataset_digest": outcomes.dataset_digest,
        "criteria": [[info.name, info.version] for info in outcomes.criteria],
        "suite": outcomes.suite,
        "tags": dict(outcomes.tags),
        "who": outcomes.agent,
        "model": outcomes.model,
        "agent_version": outcomes.agent_version,
        "unfinished": outcomes.unfinished,
        "anytime": outcomes.anytime,
        "rule": asdict(outcomes.scope.rule),
        "selection": outcomes.scope.selection and asdict(outcomes.scope.selection),
        "cluster_by": outcomes.cluster_by,
        "clusters": _clusters(outcomes),
        "quarantined": sorted(outcomes.quarantined),
        "judge_models": dict(outcomes.judge_models),
        "mixed": outcomes.mixed,
    }
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (line.encode() for line in _lines(head, outcomes.rows)))
    except OSError as error:
        raise UsageError(f"expected a file to write, got: {error}") from None


def _clusters(outcomes: RunOutcomes) -> list[list[str]]:
    """Return the samples that depend on each other, in groups."""
    if outcomes.cluster_by is None:
        return []
    rows = outcomes.rows
    groups = group_values(rows.samples, outcomes.scope.clusters(rows))
    return [list(dict.fromkeys(samples)) for samples in groups.values()]


def _lines(head: Mapping[str, Any], rows: Iterable[TableRow]) -> Iterator[str]:
    yield "{\n"
    yield from (f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    yield '"rows": [\n'
    between = ""
    for row in rows:
        passed = None if row.error else row.passed
        line = [row.sample, row.epoch, passed, row.value, row.digest[:16], row.experiment]
        scores = row.scores if len(row.scores) > 1 else {}
        line += [scores, row.error_source] if row.error_source else [scores] if scores else []
        yield between + json.dumps(line)
        between = ",\n"
    yield "\n]\n}\n"


class _Row(NamedTuple):
    sample: str
    epoch: int
    passed: bool | None
    value: float
    digest: str
    experiment: str
    scores: Mapping[str, float] = MappingProxyType({})
    error_source: ErrorSource | None = None


@dataclass(frozen=True, slots=True)
class _Baseline:
    format: str
    name: str
    rows: list[_Row]
    runs: list[str] = field(default_factory=list)
    created_at: datetime | None = None
    dataset_name: str = ""
    dataset_digest: str | None = None
    criteria: list[tuple[str, str]] = field(default_factory=list)
    suite: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    who: str = ""
    model: str | None = None
    agent_version: str = ""
    unfinished: str = ""
    anytime: bool = False
    rule: RateRule | None = None  # none in files of earlier versions
    selection: Selection | None = None
    cluster_by: str | None = None
    clusters: tuple[tuple[str, ...], ...] = ()
    quarantined: tuple[str, ...] = ()
    judge_models: dict[str, str] = field(default_factory=dict)
    mixed: str = ""


def _judge(model: str | None) -> dict[str, str]:
    return {} if model is None else {"model": model}


def load_baseline(path: Path | str) -> RunOutcomes:
    """Read a file that `save_baseline` wrote."""
    path = Path(path)
    try:
        head = serde.decode(path.read_bytes(), _Baseline)
    except (SerializationError, OSError) as error:
        raise ReportError(
            f"expected a baseline, as `wink eval baseline RUN -o FILE` writes it: {error}",
            file=path,
        ) from None
    if head.format not in (BASELINE, _EARLIER):
        raise ReportError(f"expected the format {BASELINE}, got {head.format!r}", file=path)
    only = head.criteria[0][0] if len(head.criteria) == 1 else ""
    groups = {sample: str(at) for at, each in enumerate(head.clusters) for sample in each}
    keys = () if head.cluster_by is None else (head.cluster_by,)
    return RunOutcomes(
        name=head.name,
        rows=RunTable(
            (
                TableRow(
                    row.sample,
                    row.epoch,
                    row.experiment,
                    row.passed is True,
                    row.passed is None,
                    row.value,
                    scores=row.scores or ({only: row.value} if only else {}),
                    digest=row.digest,
                    error_source=row.error_source,
                    metadata=tuple(groups.get(row.sample, ABSENT) for _ in keys),
                )
                for row in head.rows
            ),
            keys,
        ),
        dataset_name=head.dataset_name,
        dataset_digest=head.dataset_digest,
        criteria=tuple(
            CriterionInfo(name=name, version=version, judge=_judge(head.judge_models.get(name)))
            for name, version in head.criteria
        ),
        agent=head.who,
        model=head.model,
        agent_version=head.agent_version,
        suite=head.suite,
        tags=head.tags,
        unfinished=head.unfinished,
        anytime=head.anytime,
        created_at=head.created_at,
        runs=tuple(head.runs) or (head.name,),
        scope=Scope(
            quarantined=frozenset(head.quarantined),
            cluster_by=head.cluster_by,
            rule=head.rule or RateRule(kind="population" if head.anytime else "fixed"),
            selection=head.selection,
        ),
        mixed=head.mixed,
    )
