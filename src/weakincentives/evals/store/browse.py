"""Rows of a run by filter, order and page, for people who look at it.

Counted columns are filtered and ordered in the store itself; texts, metadata, tools and errors by
the search index, which is brought up to date meanwhile. Nothing here reads a run whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ... import serde
from ...errors import UsageError, short_repr
from ...internal.closing import Closing
from .reading import ORDER
from .rows import decode_id, encode_id
from .run_store import RunStore
from .search_index import SearchIndex, match_expression

__all__ = ["Facets", "RowFilter", "RowPage", "RowSummary", "RunBrowser", "data_version"]

Verdict = Literal["pass", "fail", "error"]
_VERDICTS: Mapping[str, str] = {
    "pass": "passed = 1 AND error = 0",
    "fail": "passed = 0 AND error = 0",
    "error": "error = 1",
}
_ORDERS: Mapping[str, str] = {
    "position": "position",
    "sample": "sample",
    "verdict": "error, passed",
    "value": "value",
    "latency": "latency_ms",
    "tokens": "tokens + judge_tokens",
    "cost": "coalesce(cost, 0) + coalesce(judge_cost, 0)",
    "epoch": "epoch",
}
MAX_PAGE = 500
_MAX_FACET_VALUES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which rows of a run: those that match all that is given.

    `failed` are names of criteria that failed, `tools` of tools that were called, `metadata` pairs
    of key and value, `errors` the keys of `Facets.errors`; `text` are words to search for.
    `rows` are keys (experiment, sample, epoch), `without_rows` those that are left out.
    Limits are inclusive; `cost` is in US dollars, agent and judges together.
    """

    verdict: Verdict | None = None
    failed: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    errors: tuple[str, ...] = ()
    text: str = ""
    sample: str | None = None
    samples: tuple[str, ...] | None = None
    rows: tuple[tuple[str, str, int], ...] | None = None
    without_rows: tuple[tuple[str, str, int], ...] = ()
    min_latency_ms: float | None = None
    max_latency_ms: float | None = None
    min_cost: float | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        if self.verdict is not None and self.verdict not in _VERDICTS:
            names = ", ".join(get_args(Verdict))
            raise UsageError(f"expected a verdict ({names}), got {short_repr(self.verdict)}")

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts of the search index that a row must have."""
        return (
            *(f"failed:{name}" for name in self.failed),
            *(f"tool:{name}" for name in self.tools),
            *(f"metadata:{key}={value}" for key, value in self.metadata),
            *(f"error:{key}" for key in self.errors),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSummary:
    """A row as a line of a table; its texts are cut."""

    sample: str
    epoch: int
    experiment: str
    position: int
    attempt: int
    verdict: Verdict
    value: float
    latency_ms: int
    tokens: int
    judge_tokens: int
    cost: float | None
    judge_cost: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    input: str = ""
    output: str = ""
    why: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class RowPage:
    """A page of rows, how many match in all, and how many of all rows can be searched by now."""

    rows: tuple[RowSummary, ...]
    total: int
    indexed: int
    of: int


@dataclass(frozen=True, slots=True)
class Facets:
    """What rows can be filtered by, with the number of rows of each value."""

    verdicts: Mapping[str, int]
    failed: Mapping[str, int]
    tools: Mapping[str, int]
    errors: Mapping[str, int]
    metadata: Mapping[str, Mapping[str, int]]


def data_version(store: RunStore) -> int:
    """Return a number that changes whenever another connection has written the store."""
    return int(store._database.read("PRAGMA data_version")[0][0])


class RunBrowser(Closing):
    """Looks at the rows of stored runs, page by page. Threads may share it."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._index = SearchIndex(store)

    def close(self) -> None:
        """Close the search index; the store stays open."""
        self._index.close()

    def update(self, run_id: str, *, seconds: float = 0.5) -> tuple[int, int]:
        """Index more rows of a run; return how many are indexed, and of how many."""
        return self._index.update(run_id, seconds=seconds)

    def rows(
        self,
        run_id: str,
        filter: RowFilter = RowFilter(),
        *,
        order: str = "position",
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> RowPage:
        """Return a page of the rows that match, in order.

        `order` is a column ("position", "sample", "verdict", "value", "latency", "tokens", "cost",
        "epoch") or "criterion:NAME".
        """
        run_key, name = self._store._run_key(run_id), encode_id(run_id)
        where, values = _where(filter, run_key, name)
        by, more = _order_by(order, descending)
        query = (
            f"SELECT {ORDER}, attempt, passed, error, value, latency_ms, tokens, judge_tokens, "
            f"cost, judge_cost, scores, body FROM store.rows WHERE {where} "
            f"ORDER BY {by} LIMIT ? OFFSET ?"
        )
        page = (max(0, min(limit, MAX_PAGE)), max(0, offset))
        found = self._index.read(query, (*values, *more, *page))
        ((total,),) = self._index.read(f"SELECT count(*) FROM store.rows WHERE {where}", values)
        texts = self._texts(name, [columns[-1] for columns in found])
        with self._store._database.corruption_errors(f"the rows of run {run_id}"):
            rows = tuple(_summary(columns, texts.get(columns[-1])) for columns in found)
        return RowPage(rows, total, *self._index.state(run_id))

    def _texts(self, run: bytes, bodies: list[int]) -> dict[int, Any]:
        """Return the first lines of rows by body; of those that are indexed."""
        query = (
            "SELECT body, input, output, why, failed FROM documents WHERE run = ? AND body IN "
            "(SELECT value FROM json_each(?))"
        )
        return {body: texts for body, *texts in self._index.read(query, (run, json.dumps(bodies)))}

    def offset_of(
        self,
        run_id: str,
        key: tuple[str, str, int],
        filter: RowFilter = RowFilter(),
        *,
        order: str = "position",
        descending: bool = False,
    ) -> int | None:
        """Return the place of a row (experiment, sample, epoch) among those that match."""
        run_key, name = self._store._run_key(run_id), encode_id(run_id)
        where, values = _where(filter, run_key, name)
        by, more = _order_by(order, descending)
        experiment, sample, epoch = key
        query = (
            "SELECT place FROM (SELECT experiment, sample, epoch, row_number() "
            f"OVER (ORDER BY {by}) - 1 AS place FROM store.rows WHERE {where}) "
            "WHERE experiment = ? AND sample = ? AND epoch = ?"
        )
        found = self._index.read(
            query, (*more, *values, encode_id(experiment), encode_id(sample), epoch)
        )
        return found[0][0] if found else None

    def facets(self, run_id: str) -> Facets:
        """Return what the rows of a run can be filtered by, as far as they are indexed."""
        run_key, name = self._store._run_key(run_id), encode_id(run_id)
        verdicts = self._index.read(
            "SELECT CASE WHEN error THEN 'error' WHEN passed THEN 'pass' ELSE 'fail' END, count(*) "
            "FROM store.rows WHERE run = ? GROUP BY 1",
            (run_key,),
        )
        groups: dict[str, dict[str, int]] = {"failed": {}, "tool": {}, "error": {}}
        metadata: dict[str, dict[str, int]] = {}
        facts = "SELECT fact, count(*) FROM facts WHERE run = ? GROUP BY fact ORDER BY 2 DESC, 1"
        for stored, count in self._index.read(facts, (name,)):
            kind, _, rest = stored.decode("utf-8", "replace").partition(":")
            if kind == "metadata":
                key, _, value = rest.partition("=")
                values = metadata.setdefault(key, {})
            else:
                values, value = groups.setdefault(kind, {}), rest
            if len(values) < _MAX_FACET_VALUES:
                values[value] = count
        return Facets(
            {verdict.decode(): count for verdict, count in verdicts},
            groups["failed"],
            groups["tool"],
            groups["error"],
            metadata,
        )

    def slices(self, run_id: str, key: str) -> dict[str, tuple[int, int, int]]:
        """Return rows, passes and errors for each value of a metadata key, the most rows first."""
        start = f"metadata:{key}="
        query = (
            "SELECT fact, count(*), sum(passed), sum(error) FROM facts JOIN store.rows "
            "ON rows.run = ? AND rows.body = facts.body WHERE facts.run = ? AND fact >= ? "
            "AND fact < ? GROUP BY fact ORDER BY 2 DESC, 1 LIMIT ?"
        )
        end = f"{start}\U0010ffff"
        values = (self._store._run_key(run_id), encode_id(run_id), start, end, _MAX_FACET_VALUES)
        return {
            fact.decode("utf-8", "replace")[len(start) :]: (count, passed, errors)
            for fact, count, passed, errors in self._index.read(query, values)
        }

    def histogram(self, run_id: str, bins: int = 20) -> list[int]:
        """Return how many rows without an error have a value in each part of 0 to 1."""
        query = (
            "SELECT CAST(max(0, min(value * ?, ?)) AS INTEGER), count(*) FROM store.rows "
            "WHERE run = ? AND error = 0 GROUP BY 1"
        )
        found = self._index.read(query, (bins, bins - 1, self._store._run_key(run_id)))
        counts = dict(found)
        return [counts.get(index, 0) for index in range(bins)]


def _bodies(keys: Iterable[tuple[str, str, int]]) -> str:
    """Return SQL for the bodies of the rows with these keys; it takes the run as its value."""
    literals = ", ".join(
        f"(x'{encode_id(experiment).hex()}', x'{encode_id(sample).hex()}', {int(epoch)})"
        for experiment, sample, epoch in keys
    )
    where = f"(experiment, sample, epoch) IN (VALUES {literals})" if literals else "0"
    return f"(SELECT body FROM store.rows WHERE run = ? AND {where})"


def _where(filter: RowFilter, run_key: int, run: bytes) -> tuple[str, tuple[Any, ...]]:
    """Return the condition on `store.rows`, and its values."""
    parts, values = ["rows.run = ?"], [run_key]

    def add(condition: str, *given: Any) -> None:
        parts.append(condition)
        values.extend(given)

    if filter.verdict is not None:
        add(_VERDICTS[filter.verdict])
    if filter.sample is not None:
        add("sample = ?", encode_id(filter.sample))
    if filter.samples is not None:
        chosen = json.dumps([encode_id(sample).hex().upper() for sample in filter.samples])
        add("hex(sample) IN (SELECT value FROM json_each(?))", chosen)
    if filter.rows is not None:
        add(f"rows.body IN {_bodies(filter.rows)}", run_key)
    if filter.without_rows:
        add(f"rows.body NOT IN {_bodies(filter.without_rows)}", run_key)
    cost = "coalesce(cost, 0) + coalesce(judge_cost, 0)"
    limits = {
        "latency_ms >= ?": filter.min_latency_ms,
        "latency_ms <= ?": filter.max_latency_ms,
        f"{cost} >= ?": filter.min_cost,
        f"{cost} <= ?": filter.max_cost,
    }
    for condition, limit in limits.items():
        if limit is not None:
            add(condition, limit)
    for fact in filter.facts:
        plain = fact.encode("utf-8", "replace").decode()
        add("rows.body IN (SELECT body FROM facts WHERE run = ? AND fact = ?)", run, plain)
    if words := match_expression(filter.text):
        add(
            "rows.body IN (SELECT body FROM documents WHERE run = ? AND id IN "
            "(SELECT rowid FROM texts WHERE texts MATCH ?))",
            run,
            words,
        )
    return " AND ".join(parts), tuple(values)


def _order_by(order: str, descending: bool) -> tuple[str, tuple[Any, ...]]:
    """Return the terms of ORDER BY, and their values."""
    direction = "DESC" if descending else "ASC"
    kind, _, criterion = order.partition(":")
    if kind == "criterion" and criterion:
        # Rows without the criterion last, in either direction.
        value = "(SELECT value FROM json_each(CAST(scores AS TEXT)) WHERE key = ?)"
        return f"{value} IS NULL, {value} {direction}, {ORDER}", (criterion, criterion)
    if order not in _ORDERS:
        raise UsageError(f"expected one of {', '.join(_ORDERS)}, got {short_repr(order)}")
    terms = ", ".join(f"{term} {direction}" for term in _ORDERS[order].split(", "))
    return f"{terms}, {ORDER}", ()


_decode_scores = serde.decoder(dict[str, float])


def _summary(columns: Any, texts: Any) -> RowSummary:
    position, epoch, experiment, sample, attempt, passed, error, value, latency, *rest = columns
    tokens, judge_tokens, cost, judge_cost, scores, _ = rest
    beginning, output, why, failed = (
        text.decode("utf-8", "replace") for text in texts or (b"",) * 4
    )
    return RowSummary(
        sample=decode_id(sample),
        epoch=epoch,
        experiment=decode_id(experiment),
        position=position,
        attempt=attempt,
        verdict="error" if error else "pass" if passed else "fail",
        value=value,
        latency_ms=latency,
        tokens=tokens,
        judge_tokens=judge_tokens,
        cost=cost,
        judge_cost=judge_cost,
        scores=_decode_scores(scores),
        failed=tuple(json.loads(failed)) if failed else (),
        input=beginning,
        output=output,
        why=why,
    )
