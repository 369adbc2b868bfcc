"""What a comparison needs of a run, and no more: keys, verdicts, values, and what they took.

It comes out of a report, out of a stored run without its long texts, or out of a baseline: a small
JSON file that one can commit, with a row a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import serde
from ..errors import ReportError, SerializationError, UsageError
from ._config import stops_early
from ._files import write_whole
from ._rate import pass_rate
from ._reading import collector_paused
from ._report import EvalReport
from ._score import is_part
from ._store import CriterionInfo, RunStore
from ._store_rows import text, unpacked
from .statistics import Interval

__all__ = [
    "Counted",
    "RunOutcomes",
    "incomparable",
    "load_baseline",
    "other_datasets",
    "report_outcomes",
    "save_baseline",
    "stored_outcomes",
]

BASELINE = "wink-baseline/1"
ABSENT = "(none)"  # the slice of what lacks the key
_BEFORE_ALL: tuple[Any, ...] = (-1, 0, b"", b"")
_PAGE, _PAGE_WITH_BODIES = 2_000, 50  # rows in memory at a time, as they are stored
_COLUMNS = (
    "position, epoch, experiment, sample, passed, error, value, latency_ms, tokens, cost, "
    "scores, sample_digest"
)


class Counted(NamedTuple):
    """A row as it is counted. `slice` is its value under the key to slice by, if there is one."""

    sample: str
    epoch: int
    experiment: str
    passed: bool
    error: bool
    value: float
    latency_ms: int | None = None
    tokens: int = 0
    cost: float | None = None
    scores: Mapping[str, float] = {}
    digest: str = ""
    slice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcomes:
    """The counted rows of a run, and what says whether another run is comparable."""

    name: str
    rows: tuple[Counted, ...] = field(repr=False)
    dataset_name: str = ""
    dataset_digest: str | None = None
    criteria: tuple[CriterionInfo, ...] = ()
    who: str = ""
    unfinished: str = ""
    anytime: bool = False  # it has a rule to stop early

    @property
    def epochs(self) -> int:
        """How many times the samples were asked."""
        return max((row.epoch for row in self.rows), default=0)

    @property
    def passed(self) -> int:
        """How many passed; an error did not."""
        return sum(row.passed for row in self.rows)

    @property
    def errors(self) -> int:
        """How many ended in an error."""
        return sum(row.error for row in self.rows)

    @property
    def rate(self) -> Interval:
        """The share that passed, with a 95 % interval; epochs of one sample are a cluster."""
        return pass_rate(((row.sample, row.passed) for row in self.rows), anytime=self.anytime)

    def by_slice(self) -> dict[str, Interval]:
        """The rate of each slice, the largest first."""
        found: dict[str, list[Counted]] = {}
        for row in self.rows:
            found.setdefault(row.slice or ABSENT, []).append(row)
        groups = sorted(found.items(), key=lambda group: (-len(group[1]), group[0]))
        return {name: replace(self, rows=tuple(rows)).rate for name, rows in groups}

    def by_experiment(self) -> list[RunOutcomes]:
        """One for each experiment of the run, in the order in which they appear."""
        found: dict[str, list[Counted]] = {}
        for row in self.rows:
            found.setdefault(row.experiment, []).append(row)
        return [
            replace(self, name=f"{self.name} {name}", rows=tuple(rows), who=name)
            for name, rows in found.items()
        ]


def report_outcomes(report: EvalReport[Any], by: str | None = None) -> RunOutcomes:
    """Those of a report; with `by`, sliced by that key of the metadata."""
    rows = []
    for result in report.results:
        score = result.score
        scores = {metric.name: metric.value for metric in score.metrics if is_part(metric)}
        rows.append(
            Counted(
                result.sample_id,
                result.epoch,
                result.experiment_name,
                result.passed,
                result.error is not None,
                score.value,
                result.latency_ms,
                result.tokens_used,
                result.trajectory.cost if result.trajectory else None,
                scores or {score.criterion or "score": score.value},
                "",
                None if by is None else _slice(result.metadata, by),
            )
        )
    return RunOutcomes(
        name=report.run_id or report.dataset_name or "unnamed",
        rows=tuple(rows),
        dataset_name=report.dataset_name,
        unfinished=report.stopped,
        anytime=stops_early(report.config),
    )


def stored_outcomes(store: RunStore, run_id: str, by: str | None = None) -> RunOutcomes:
    """Those of a stored run. The long texts are read only with `by`, and a page at a time."""
    record = store.run(run_id)
    manifest = record.manifest
    done = (
        f"{record.total:,} rows"
        if manifest.planned is None
        else (f"{record.total:,} of {manifest.planned:,} rows")
    )
    with collector_paused():
        rows = tuple(_stored(store, store._number(manifest.run_id), by))
    return RunOutcomes(
        name=manifest.run_id,
        rows=rows,
        dataset_name=manifest.dataset_name,
        dataset_digest=manifest.dataset_digest,
        criteria=manifest.criteria,
        who=manifest.model or manifest.agent,
        unfinished="" if record.status == "complete" else f"{record.status}, {done}",
        anytime=stops_early(manifest.config),
    )


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a slice needs of a stored result."""

    metadata: Mapping[str, Any] = field(default_factory=dict)


def _stored(store: RunStore, number: int, by: str | None) -> Iterator[Counted]:
    bodies, size = ("", _PAGE) if by is None else (", result", _PAGE_WITH_BODIES)
    query = (
        f"SELECT {_COLUMNS}{bodies} FROM rows {'LEFT JOIN bodies ON id = body' if by else ''} "
        "WHERE run = ? AND (position, epoch, experiment, sample) > (?, ?, ?, ?) "
        f"ORDER BY position, epoch, experiment, sample LIMIT {size}"
    )
    values = serde.decoder(dict[str, float])
    last, database = _BEFORE_ALL, store._database
    while page := database.read(query, (number, *last)):
        last = page[-1][:4]
        with database.reading("rows in their order"):
            found = [_counted(columns, values, by) for columns in page]
        yield from found


def _counted(columns: Sequence[Any], values: Callable[[bytes], Any], by: str | None) -> Counted:
    _, epoch, experiment, sample, passed, error, value, latency, tokens, cost, *rest = columns
    scores, digest, *body = rest
    return Counted(
        text(sample),
        epoch,
        text(experiment),
        passed == 1,
        error == 1,
        value,
        latency,
        tokens,
        cost,
        values(scores),
        text(digest),
        _slice(serde.decode(unpacked(body[0]), _Carried).metadata, by) if by else None,
    )


def _slice(metadata: Mapping[str, Any], by: str) -> str:
    value = metadata.get(by, ABSENT)
    return value if isinstance(value, str) else serde.encode(value).decode()


def other_datasets(before: RunOutcomes, after: RunOutcomes) -> bool:
    """True where both know their dataset, and it is not the same."""
    a, b = before.dataset_digest, after.dataset_digest
    return a is not None and b is not None and a != b


def incomparable(before: RunOutcomes, after: RunOutcomes) -> list[str]:
    """Why numbers of the two would not be about the same thing; empty where they are."""
    problems = []
    names = [sorted(each.name for each in run.criteria) for run in (before, after)]
    versions = {each.name: each.version for each in before.criteria}
    changed = [
        f"{each.name} is {was} and {each.version}"
        for each in after.criteria
        if (was := versions.get(each.name)) and each.version and was != each.version
    ]
    if all(names) and names[0] != names[1]:
        problems.append(f"evaluators differ: {' and '.join(map(' + '.join, names))}")
    elif changed:
        problems.append(f"evaluators differ in version: {', '.join(changed)}")
    if len({len({row.experiment for row in run.rows}) > 1 for run in (before, after)}) > 1:
        problems.append("one of them has several experiments and the other has one")
    known = {row.sample: row.digest[:16] for row in before.rows if row.digest}
    contents = {
        row.sample: known[row.sample] == row.digest[:16]
        for row in after.rows
        if row.digest and row.sample in known
    }
    other = sum(not same for same in contents.values())
    if other:
        problems.append(f"datasets differ: {other:,} of {len(contents):,} samples were changed")
    elif not contents and other_datasets(before, after):
        told = (f"{run.dataset_name} {str(run.dataset_digest)[:12]}" for run in (before, after))
        problems.append(f"datasets differ: {' and '.join(map(str.strip, told))} share no sample")
    return problems


# ── baselines ───────────────────────────────────────────────────────────────────────────────────


def save_baseline(outcomes: RunOutcomes, path: Path | str) -> None:
    """Write the keys, verdicts and values of a run; no text of it but ids and names.

    A row is `[sample, epoch, passed, value, digest, experiment]`, `passed` null after an error.
    """
    head = {
        "format": BASELINE,
        "name": outcomes.name,
        "dataset_name": outcomes.dataset_name,
        "dataset_digest": outcomes.dataset_digest,
        "criteria": [[each.name, each.version] for each in outcomes.criteria],
        "who": outcomes.who,
        "unfinished": outcomes.unfinished,
        "anytime": outcomes.anytime,
    }
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (line.encode() for line in _lines(head, outcomes.rows)))
    except OSError as error:
        raise UsageError(f"expected a file to write, got: {error}") from None


def _lines(head: Mapping[str, Any], rows: Iterable[Counted]) -> Iterator[str]:
    yield "{\n"
    yield from (f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    yield '"rows": [\n'
    between = ""
    for row in rows:
        passed = None if row.error else row.passed
        line = [row.sample, row.epoch, passed, row.value, row.digest[:16], row.experiment]
        yield between + json.dumps(line)
        between = ",\n"
    yield "\n]\n}\n"


_Row = tuple[str, int, bool | None, float, str, str]


@dataclass(frozen=True, slots=True)
class _Baseline:
    format: str
    name: str
    rows: list[_Row]
    dataset_name: str = ""
    dataset_digest: str | None = None
    criteria: list[tuple[str, str]] = field(default_factory=list)
    who: str = ""
    unfinished: str = ""
    anytime: bool = False


def load_baseline(path: Path | str) -> RunOutcomes:
    """What `save_baseline` wrote."""
    path = Path(path)
    try:
        head = serde.decode(path.read_bytes(), _Baseline)
    except (SerializationError, OSError) as error:
        raise ReportError(
            f"expected a baseline, as `wink eval gate RUN --save-baseline FILE` writes it: {error}",
            file=path,
        ) from None
    if head.format != BASELINE:
        raise ReportError(f"expected the format {BASELINE}, got {head.format!r}", file=path)
    return RunOutcomes(
        name=head.name,
        rows=tuple(
            Counted(sample, epoch, experiment, passed is True, passed is None, value, digest=digest)
            for sample, epoch, passed, value, digest, experiment in head.rows
        ),
        dataset_name=head.dataset_name,
        dataset_digest=head.dataset_digest,
        criteria=tuple(CriterionInfo(name=name, version=of) for name, of in head.criteria),
        who=head.who,
        unfinished=head.unfinished,
        anytime=head.anytime,
    )
