"""A stored run in numbers, and its most interesting rows, without reading all of it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...errors import UsageError
from .._types import clustered_by
from ..model.corrections import Correction
from ..model.decision import rate_rule
from ..model.errors import ErrorGroup
from ..model.explain import type_mismatch
from ..model.quarantine import quarantine_line
from ..model.redacted_ids import redact_id
from ..model.result import headline
from ..model.selection import selected_rate
from ..stats.intervals import Counts, Interval
from ..stats.pass_rate import counted_rate, pass_rate
from ..stats.repeats import EpochStats, epoch_stats
from .corrections import corrections_of
from .queries import clustered_attempts, stored_error_groups
from .reading import ORDER, ROW, body_in, read_pages, read_rows, to_row, unreadable
from .records import (
    counted_rows,
    mark_damaged,
    not_counted_line,
    recount,
)
from .rows import decode_id, encode_id
from .run_store import RunRecord, RunStore, StoredRow

_MAX_LISTED = 5  # sample ids in an error message
# `position` makes SQLite read the rows, which have checksums, and not the index of their keys.
_CHECKED = "run = ? AND position > -1e18"
_MISMATCH_ROWS = 100  # read to find out why none passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The numbers of a run; `str(...)` is its verdict line.

    `rate` is the share that passed, with its interval. `criteria` has the mean value of each
    criterion over rows without an error, `errors` the number of errors of each source,
    `error_groups` the errors by type and place. The latencies are None if there is no row.
    `unreadable` has the ids of bodies that cannot be read: their rows count as errors.
    `type_mismatch` is a warning if no output can ever be right, because of its type.
    `epoch_stats` is there if the run has epochs. `corrections` has the pass rates that people would
    give, of the judges that were calibrated by their labels.
    """

    record: RunRecord
    rate: Interval
    criteria: Mapping[str, float]
    errors: Mapping[str, int]
    latency_p50_ms: int | None
    latency_p95_ms: int | None
    unreadable: tuple[int, ...] = ()
    epoch_stats: EpochStats | None = None
    error_groups: tuple[ErrorGroup, ...] = ()
    type_mismatch: str = ""
    corrections: tuple[Correction, ...] = ()

    def __str__(self) -> str:
        record = self.record
        decision = record.manifest.decision
        lines = (
            *map(str, self.corrections),
            "" if decision is None else decision.verdict,
            record.note,
            self.unreadable_note,
            not_counted_line(record),
        )
        outside = quarantine_line(record.quarantined, record.manifest.quarantine_expired)
        notes = filter(None, (*lines, record.mixed, outside))
        return " - ".join([headline(self.rate, record.passed, record.errors), *notes])

    @property
    def unreadable_note(self) -> str:
        """The number of rows that could not be read, in words; empty if the note has it."""
        count = len(self.unreadable)
        if not count or self.record.status == "damaged":
            return ""
        return f"{count:,} {'row' if count == 1 else 'rows'} could not be read"


def overview(store: RunStore, run_id: str, *, check: bool = False) -> Overview:
    """Return the numbers of a run; its id as `RunStore.run` takes it.

    A row that cannot be read counts as an error. With `check`, the long values of every row are
    checked too; without, only the columns that are counted, in a fraction of the time.
    """
    record = store.run(run_id)
    database, run_key = store._database, store._run_key(record.manifest.run_id)
    lost_rows = unreadable(database, run_key, bodies=check)
    lost = tuple(row.body for row in lost_rows)
    if lost:
        record = recount(database, run_key, record, lost)
    damaged = sum(row.damaged for row in lost_rows)
    # SQLite counts in an index, which may be damaged although the rows are not. Both counts are in
    # one statement, which sees one state of the file: rows may be written meanwhile.
    counts = "(SELECT count(*) FROM rows WHERE run = ?) <> count(passed) FROM rows WHERE run = ?"
    ((differ,),) = database.read(f"SELECT {counts}", (run_key, run_key))
    if record.status != "damaged" and (damaged or differ):
        record = mark_damaged(record, damaged, record.stored)
    is_lost = body_in(lost)
    counted = counted_rows(record.manifest)
    by_source = (
        f"SELECT CASE WHEN {is_lost} THEN 'infrastructure' ELSE coalesce(error_source, 'agent') "
        f"END, count(*) FROM rows WHERE run = ? AND {counted} AND (error OR {is_lost}) "
        "GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    with database.corruption_errors(f"the figures of run {record.manifest.run_id}"):
        readable = record.stored - len(lost)
        p50, p95 = (_latency(store, run_key, is_lost, readable, q) for q in (0.5, 0.95))
        sources = database.read(by_source, (run_key,))
        return Overview(
            record=record,
            rate=stored_rate(store, record, lost),
            criteria=_criteria(store, run_key, record, is_lost),
            errors={decode_id(source): count for source, count in sources},
            latency_p50_ms=p50,
            latency_p95_ms=p95,
            unreadable=lost,
            epoch_stats=stored_epoch_stats(store, record, lost),
            error_groups=stored_error_groups(store, record.manifest.run_id, lost, counted)
            if record.errors
            else (),
            type_mismatch=_type_mismatch(store, record),
            corrections=corrections_of(store, record.manifest),
        )


def _type_mismatch(store: RunStore, record: RunRecord) -> str:
    if record.passed or record.errors or not record.total:
        return ""
    rows = islice(store.rows(record.manifest.run_id), _MISMATCH_ROWS)
    return type_mismatch(row.result for row in rows)


def stored_rate(
    store: RunStore, record: RunRecord, lost: Sequence[int] = (), *, confidence: float = 0.95
) -> Interval:
    """Return the pass rate of a stored run with its interval; its rows are counted by SQL.

    If the run has a `cluster_by`, the metadata of its rows are read for that.
    """
    manifest = record.manifest
    if (key := clustered_by(manifest.config)) is not None:
        attempts = clustered_attempts(store, manifest, key, lost)
        return pass_rate(attempts, confidence=confidence, cluster_by=key)
    run_key = store._run_key(manifest.run_id)
    counts: Counts = {(1, 1): record.passed, (1, 0): record.total - record.passed}
    if any(_repeats(store, run_key)):  # otherwise each sample has one row
        query = (
            "SELECT n, good, count(*) FROM (SELECT count(*) AS n, "
            f"sum(passed AND NOT {body_in(lost)}) AS good FROM rows WHERE {_CHECKED} "
            f"AND {counted_rows(manifest)} GROUP BY +sample) GROUP BY n, good"
        )
        samples = store._database.read(query, (run_key,))
        counts = {(n, passed): count for n, passed, count in samples}
    if manifest.selection is not None:
        query = (
            f"SELECT sample, passed AND NOT {body_in(lost)} FROM rows WHERE {_CHECKED} "
            f"AND {counted_rows(manifest)}"
        )
        rows = store._database.read(query, (run_key,))
        chosen = ((decode_id(sample), passed == 1) for sample, passed in rows)
        if (estimated := selected_rate(manifest.selection, chosen)) is not None:
            return estimated
    rule = rate_rule(manifest.config, manifest.decision, complete=record.status == "complete")
    return counted_rate(counts, rule=rule, confidence=confidence)


def stored_epoch_stats(
    store: RunStore, record: RunRecord, lost: Sequence[int] = ()
) -> EpochStats | None:
    """Return pass@k, pass^k and the flaky samples of a stored run; None without epochs."""
    run_key = store._run_key(record.manifest.run_id)
    has_epochs, several = _repeats(store, run_key)
    if not has_epochs:
        return None
    query = (
        f"SELECT sample, experiment, sum(passed AND NOT {body_in(lost)}), count(*) FROM rows "
        f"WHERE {_CHECKED} AND {counted_rows(record.manifest)} "
        "GROUP BY +sample, +experiment ORDER BY min(position)"
    )
    counts = {}
    for sample, experiment, passed, attempts in store._database.read(query, (run_key,)):
        name = decode_id(sample)
        key = f"{name} ({decode_id(experiment)})" if several else name
        counts[key] = passed, attempts
    return epoch_stats(counts)


def _repeats(store: RunStore, run_key: int) -> tuple[bool, bool]:
    """Return whether a run has epochs, and whether it has several experiments."""
    ((has_epochs, several),) = store._database.read(
        f"SELECT max(epoch) > 1, min(+experiment) < max(+experiment) FROM rows WHERE {_CHECKED}",
        (run_key,),
    )
    return bool(has_epochs), bool(several)


def _latency(store: RunStore, run_key: int, is_lost: str, total: int, share: float) -> int | None:
    """Return the latency that this share of all rows does not exceed."""
    query = (
        f"SELECT latency_ms FROM rows WHERE run = ? AND NOT {is_lost} "
        "ORDER BY latency_ms LIMIT 1 OFFSET ?"
    )
    rank = max(0, math.ceil(share * total) - 1)
    latencies = store._database.read(query, (run_key, rank))
    return latencies[0][0] if latencies else None


def _criteria(store: RunStore, run_key: int, record: RunRecord, is_lost: str) -> dict[str, float]:
    """Return the mean of each criterion: in the order of the manifest, then by name.

    The column `scores` holds `criterion_values` of the score, so this is the same mean as that of
    `EvalReport.scores_by_criterion`, without reading a body.
    """
    query = (
        "SELECT key, avg(json_each.value) FROM (SELECT scores FROM rows WHERE run = ? AND NOT "
        f"error AND NOT {is_lost} AND {counted_rows(record.manifest)}), "
        "json_each(CAST(scores AS TEXT)) GROUP BY key ORDER BY key"
    )
    means = {decode_id(name): mean for name, mean in store._database.read(query, (run_key,))}
    names = dict.fromkeys([*(info.name for info in record.manifest.criteria), *means])
    return {name: means[name] for name in names if name in means}


# ── rows ────────────────────────────────────────────────────────────────────────────────────────


def rows_where(
    store: RunStore, run_id: str, *kinds: str, lost: Sequence[int] = ()
) -> Iterator[StoredRow]:
    """Yield the rows of these kinds ("passed", "failed", "errors") in dataset order; or all.

    `lost` are the bodies of rows that cannot be read, which are errors.
    """
    is_lost = body_in(lost)
    conditions = {
        "passed": f"passed AND NOT {is_lost}",
        "failed": f"NOT passed AND NOT error AND NOT {is_lost}",
        "errors": f"(error OR {is_lost})",
    }
    where = " OR ".join(conditions[kind] for kind in kinds) or "1"
    run_key = store._run_key(run_id, prefix=True)
    return read_rows(store._database, run_key, where=where)


def worst(
    store: RunStore, run_id: str, limit: int = 5, lost: Sequence[int] = ()
) -> list[StoredRow]:
    """Return errors first, including rows with `lost` bodies, then failures by ascending value.

    Samples in quarantine are left out.
    """
    is_lost = body_in(lost)
    order = f"(error OR {is_lost}) DESC, value, {ORDER}"
    run_key = store._run_key(run_id, prefix=True)
    counted = counted_rows(store.run(run_id).manifest)
    return _select(store, run_key, f"(NOT passed OR {is_lost}) AND {counted}", (), order, limit)


def rows_of_sample(store: RunStore, run_id: str, sample_id: str) -> list[StoredRow]:
    """Return the rows of one sample, by epoch and experiment; raise if its id is unknown."""
    run_key = store._run_key(run_id, prefix=True)
    rows = _select(store, run_key, "sample = ?", (encode_id(redact_id(sample_id)),), ORDER, -1)
    if rows:
        return rows
    raise UsageError(
        f"expected the id of a sample of run {store.run(run_id).manifest.run_id}, "
        f"got {sample_id!r} - {_hint(store, run_key, sample_id)}"
    )


def row_of_key(
    store: RunStore, run_id: str, experiment: str, sample_id: str, epoch: int
) -> StoredRow | None:
    """Return the row of a key, with the ids as they are stored; None if there is none."""
    key = encode_id(experiment), encode_id(sample_id), epoch
    where = "experiment = ? AND sample = ? AND epoch = ?"
    return next(iter(_select(store, store._run_key(run_id), where, key, ORDER, 1)), None)


def row_keys(store: RunStore, run_id: str) -> set[tuple[str, str, int]]:
    """Return the keys of all rows of a run, also of those that a damaged index does not find."""
    pages = read_pages(store._database, store._run_key(run_id), "passed", bodies=False, size=2000)
    with store._database.corruption_errors(f"the keys of the run {run_id!r}"):
        return {
            (decode_id(experiment), decode_id(sample), epoch)
            for page in pages
            for _, epoch, experiment, sample, _ in page
        }


def _select(
    store: RunStore, run_key: int, where: str, values: tuple[Any, ...], order: str, limit: int
) -> list[StoredRow]:
    # The long values are joined after the limit, so that only those of the result are read.
    query = (
        f"SELECT {ORDER}, {ROW} FROM (SELECT * FROM rows WHERE run = ? AND {where} "
        f"ORDER BY {order} LIMIT {limit}) LEFT JOIN bodies ON bodies.id = body ORDER BY {order}"
    )
    rows = store._database.read(query, (run_key, *values))
    return [to_row(columns, store._database, run_key) for columns in rows]


def _hint(store: RunStore, run_key: int, sample_id: str) -> str:
    """Return what is known about an id that has no row."""
    start = encode_id(sample_id)
    select = "SELECT DISTINCT sample FROM rows WHERE run = ?"

    def ids(condition: str, *values: Any) -> list[str]:
        rows = store._database.read(f"{select} {condition}", values)
        return [decode_id(stored) for (stored,) in rows]

    if ids("AND sample = ?", -run_key, start):
        return "it is stored, but no longer in the dataset, and is not counted"
    between = f"AND sample BETWEEN ? AND ? LIMIT {_MAX_LISTED}"
    near = ids(between, run_key, start, start + b"\xff")
    some = ids("LIMIT 1000", run_key)
    near = near or difflib.get_close_matches(sample_id, some, _MAX_LISTED)
    if not some:
        return "it has no rows"
    names = ", ".join(map(repr, near or some[:_MAX_LISTED]))
    return f"{'near it' if near else 'there are'}: {names}"
