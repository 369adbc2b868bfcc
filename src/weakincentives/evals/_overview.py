"""A stored run in numbers, and the rows of it that matter, without reading all of it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ._config import stops_early
from ._intervals import Counts, Interval
from ._rate import counted_rate
from ._report import headline
from ._store import RunRecord, RunStore, StoredRow
from ._store_rows import raw, row_of, text

__all__ = ["Overview", "overview", "rows_of_sample", "rows_where", "stored_rate", "worst"]

_PAGE = 50  # rows in memory at a time
_NEAR = 5  # ids that an error names
_PLAIN = (Any, Any, Any)
_ORDER = "position, epoch, experiment, sample"
_BEFORE_ALL: tuple[Any, ...] = (-1, 0, b"", b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What a run came to; `str(...)` is its verdict line.

    `rate` is the share that passed, with its interval. `criteria` has the mean value of each
    criterion over rows without an error, `errors` how many errors each source gave. The latencies
    are None where there is no row.
    """

    record: RunRecord
    rate: Interval
    criteria: Mapping[str, float]
    errors: Mapping[str, int]
    latency_p50_ms: int | None
    latency_p95_ms: int | None

    def __str__(self) -> str:
        record = self.record
        note = f" - {record.note}" if record.note else ""
        return headline(self.rate, record.passed, record.errors) + note


def overview(store: RunStore, run_id: str) -> Overview:
    """The run in numbers; its id as `RunStore.run` takes it."""
    record = store.run(run_id)
    number = store._number(record.manifest.run_id)
    by_source = (
        "SELECT coalesce(error_source, 'agent'), count(*) FROM rows WHERE run = ? AND error "
        "GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    p50, p95 = (_latency(store, number, record.total, share) for share in (0.5, 0.95))
    return Overview(
        record=record,
        rate=stored_rate(store, record),
        criteria=_criteria(store, number, [each.name for each in record.manifest.criteria]),
        errors={text(source): n for source, n in store._database.read(by_source, (number,))},
        latency_p50_ms=p50,
        latency_p95_ms=p95,
    )


def stored_rate(store: RunStore, record: RunRecord) -> Interval:
    """The pass rate of a stored run, by the one rule; its rows are counted where they are."""
    number = store._number(record.manifest.run_id)
    several = "SELECT max(epoch) > 1 OR min(experiment) < max(experiment) FROM rows WHERE run = ?"
    counts: Counts = {(1, 1): record.passed, (1, 0): record.total - record.passed}
    if store._database.read(several, (number,))[0][0]:  # or else each sample has one row
        query = (
            "SELECT n, good, count(*) FROM (SELECT count(*) AS n, sum(passed) AS good "
            "FROM rows WHERE run = ? GROUP BY sample) GROUP BY n, good"
        )
        found = store._database.read(query, (number,))
        counts = {(n, good): times for n, good, times in found}
    return counted_rate(counts, anytime=stops_early(record.manifest.config))


def _latency(store: RunStore, number: int, total: int, share: float) -> int | None:
    """The latency that this share of all rows does not exceed."""
    query = "SELECT latency_ms FROM rows WHERE run = ? ORDER BY latency_ms LIMIT 1 OFFSET ?"
    found = store._database.read(query, (number, max(0, math.ceil(share * total) - 1)))
    return found[0][0] if found else None


def _criteria(store: RunStore, number: int, first: Sequence[str]) -> dict[str, float]:
    """The mean of each criterion: in the order of the manifest, then by name."""
    query = (
        "SELECT key, avg(json_each.value) FROM rows, json_each(CAST(scores AS TEXT)) "
        "WHERE run = ? AND NOT error GROUP BY key ORDER BY key"
    )
    means = {text(name): mean for name, mean in store._database.read(query, (number,))}
    return {name: means[name] for name in dict.fromkeys([*first, *means]) if name in means}


# ── rows ────────────────────────────────────────────────────────────────────────────────────────

_SELECT = f"""
SELECT {_ORDER}, sample_digest, criteria, passed, value, result, session
FROM (SELECT * FROM rows WHERE run = ? AND {{where}} ORDER BY {{order}} LIMIT {{limit}})
LEFT JOIN bodies ON bodies.id = body ORDER BY {{order}}
"""


def rows_where(store: RunStore, run_id: str, *kinds: str) -> Iterator[StoredRow]:
    """The rows of these kinds ("failed", "errors") in dataset order; without a kind, all."""
    where = {"failed": "NOT passed AND NOT error", "errors": "error"}
    if not kinds:
        yield from store.rows(run_id)
        return
    wanted = " OR ".join(where[kind] for kind in kinds)
    number, last = store._number(run_id, guess=True), _BEFORE_ALL
    query = _SELECT.format(
        where=f"({wanted}) AND ({_ORDER}) > (?, ?, ?, ?)", order=_ORDER, limit=_PAGE
    )
    while page := store._database.read(query, (number, *last)):
        yield from (row_of(columns, _PLAIN, store._database) for columns in page)
        last = page[-1][:4]


def worst(store: RunStore, run_id: str, limit: int = 5) -> list[StoredRow]:
    """Errors first, then those that failed, from the lowest value on."""
    order = f"error DESC, value, {_ORDER}"
    query = _SELECT.format(where="NOT passed", order=order, limit=limit)
    found = store._database.read(query, (store._number(run_id, guess=True),))
    return [row_of(columns, _PLAIN, store._database) for columns in found]


def rows_of_sample(store: RunStore, run_id: str, sample_id: str) -> list[StoredRow]:
    """The rows of one sample, by epoch and experiment; an unknown id names those that are near."""
    number = store._number(run_id, guess=True)
    query = _SELECT.format(where="sample = ?", order=_ORDER, limit=-1)
    found = store._database.read(query, (number, raw(sample_id)))
    if found:
        return [row_of(columns, _PLAIN, store._database) for columns in found]
    ids = "SELECT DISTINCT sample FROM rows WHERE run = ? "
    near = store._database.read(
        f"{ids} AND sample BETWEEN ? AND ? LIMIT {_NEAR}",
        (number, raw(sample_id), raw(sample_id) + b"\xff"),
    )
    names, which = [text(found) for (found,) in near], "near it"
    if not names:
        some = [text(found) for (found,) in store._database.read(f"{ids} LIMIT 1000", (number,))]
        names = difflib.get_close_matches(sample_id, some, _NEAR)
        if not names:
            names, which = some[:_NEAR], "there are"
    known = f"{which}: {', '.join(map(repr, names))}" if names else "it has no rows"
    raise UsageError(
        f"expected the id of a sample of run {store.run(run_id).manifest.run_id}, "
        f"got {sample_id!r} - {known}"
    )
