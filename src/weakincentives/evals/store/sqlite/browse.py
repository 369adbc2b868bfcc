"""Rows of a run by filter, order and page, for people who look at it.

Counted columns are filtered and ordered in the store itself; texts, metadata, tools and errors by
the search index, which is updated at the same time. Nothing here reads a run whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .... import serde
from ....errors import UsageError, short_repr
from ....internal.closing import Closing
from ....internal.state_cache import StateCache
from ...model.grouping import ABSENT
from ...runs.figures import Figures, slice_figures
from ...runs.table import RunTable
from ..base_store import BaseRunStore
from ..browse import (
    ALL_ROWS,
    MAX_PAGE,
    ORDERS,
    Facets,
    RowFilter,
    RowPage,
    RowSummary,
    RunBrowser,
    facets_of,
)
from ..run_record import scope_of
from .columns import ORDER, RowColumns
from .database import Database
from .encoding import decode_id, encode_id
from .reading import columns_of
from .search_index import SearchIndex, match_expression
from .tables import table_row

_VERDICTS: Mapping[str, str] = {
    "pass": "passed = 1 AND error = 0",
    "fail": "passed = 0 AND error = 0",
    "error": "error = 1",
}
# As in `runs.table.known_latency`.
_LATENCY = "iif(latency_ms = 0 AND error_source IS 'infrastructure', NULL, latency_ms)"
_COST = "coalesce(cost, 0) + coalesce(judge_cost, 0)"  # at least
_WHOLE_COST = "iif(judge_tokens > 0 AND judge_cost IS NULL, NULL, cost + coalesce(judge_cost, 0))"
_TERMS: Mapping[str, tuple[str, ...]] = {
    "position": ("position",),
    "sample": ("sample",),
    "verdict": ("error", "passed"),
    "value": ("value",),
    "latency": ("latency_ms",),
    "tokens": ("tokens + judge_tokens",),
    "cost": (_COST,),
    "epoch": ("epoch",),
}
_MAX_CACHED = 200  # counts and facets
_PLAIN_NAME = re.compile(r"[\w .:/-]+")  # criteria that a JSON path can name
_FIRST_ROWS = 50  # read to find out which columns a table has


class SqliteRunBrowser(Closing, RunBrowser):
    """Looks at the rows of stored runs, page by page. Threads may share it."""

    def __init__(self, store: BaseRunStore, database: Database) -> None:
        self._store, self._database = store, database
        self._index = SearchIndex(store, database)
        self._cache = StateCache(_MAX_CACHED)

    def close(self) -> None:
        self._index.close()

    def update(self, run_id: str, *, seconds: float = 0.5) -> tuple[int, int]:
        return self._index.update(run_id, seconds=seconds)

    def rows(
        self,
        run_id: str,
        filter: RowFilter = ALL_ROWS,
        *,
        order: str = "position",
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> RowPage:
        run_key, name = self._index.run_key(run_id), encode_id(run_id)
        where, values = _where(filter, run_key, name)
        terms = _order_terms(order, descending)
        by = f"{', '.join(map(str, terms))}, {ORDER}"
        more = tuple(value for term in terms for value in term.values)
        # Only keys are sorted: the other columns are read for the rows of the page.
        query = (
            f"SELECT {ORDER}, attempt, passed, error, value, {_LATENCY}, tokens, judge_tokens, "
            f"cost, judge_cost, scores, body FROM (SELECT run, {ORDER} FROM store.rows "
            f"WHERE {where} ORDER BY {by} LIMIT ? OFFSET ?) JOIN store.rows USING (run, {ORDER}) "
            f"ORDER BY {by}"
        )
        page = (max(0, min(limit, MAX_PAGE)), max(0, offset))
        found = self._index.read(query, (*values, *more, *page, *more))
        state = self._store.row_state(run_id), self._index.state(run_id)
        total = self._cache.get(
            ("count", run_id, filter), state, lambda: self._count(where, values)
        )
        texts = self._texts(name, [columns[-1] for columns in found])
        with self._database.corruption_errors(f"the rows of run {run_id}"):
            rows = tuple(_summary(columns, texts.get(columns[-1])) for columns in found)
        return RowPage(rows, total, *state[1])

    def _count(self, where: str, values: tuple[Any, ...]) -> int:
        ((total,),) = self._index.read(f"SELECT count(*) FROM store.rows WHERE {where}", values)
        return int(total)

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
        filter: RowFilter = ALL_ROWS,
        *,
        order: str = "position",
        descending: bool = False,
    ) -> int | None:
        run_key, name = self._index.run_key(run_id), encode_id(run_id)
        where, values = _where(filter, run_key, name)
        terms, (experiment, sample, epoch) = _order_terms(order, descending), key
        more = tuple(value for term in terms for value in term.values)
        select = ", ".join([*(term.sql for term in terms), ORDER])
        its_key = "experiment = ? AND sample = ? AND epoch = ?"
        found = self._index.read(
            f"SELECT {select} FROM store.rows WHERE {where} AND {its_key}",
            (*more, *values, encode_id(experiment), encode_id(sample), epoch),
        )
        if not found:
            return None
        count = len(terms)
        before, of = _before(terms, found[0][:count], found[0][count:])
        return self._count(f"{where} AND {before}", (*values, *of))

    def facets(self, run_id: str) -> Facets:
        state = self._store.row_state(run_id), self._index.state(run_id)
        return self._cache.get(("facets", run_id), state, lambda: self._facets(run_id))

    def _facets(self, run_id: str) -> Facets:
        run_key, name = self._index.run_key(run_id), encode_id(run_id)
        verdicts = self._index.read(
            "SELECT CASE WHEN error THEN 'error' WHEN passed THEN 'pass' ELSE 'fail' END, count(*) "
            "FROM store.rows WHERE run = ? GROUP BY 1",
            (run_key,),
        )
        facts = "SELECT fact, count(*) FROM facts WHERE run = ? GROUP BY fact ORDER BY 2 DESC, 1"
        found = self._index.read(facts, (name,))
        return facets_of(
            {verdict.decode(): count for verdict, count in verdicts},
            ((fact.decode("utf-8", "replace"), count) for fact, count in found),
        )

    def facts(self, run_id: str) -> dict[tuple[str, str, int], list[str]]:
        by_body: dict[int, list[str]] = {}
        shared: dict[bytes, str] = {}
        of_run = "SELECT fact, body FROM facts WHERE run = ?"
        for fact, body in self._index.read(of_run, (encode_id(run_id),)):
            name = shared.get(fact) or shared.setdefault(fact, fact.decode("utf-8", "replace"))
            by_body.setdefault(body, []).append(name)
        keys = "SELECT experiment, sample, epoch, body FROM store.rows WHERE run = ?"
        return {
            (decode_id(experiment), decode_id(sample), epoch): by_body.get(body, [])
            for experiment, sample, epoch, body in self._index.read(
                keys, (self._index.run_key(run_id),)
            )
        }

    def columns(self, run_id: str) -> tuple[tuple[str, ...], bool]:
        query = (
            "SELECT scores, epoch FROM store.rows WHERE run = ? AND error = 0 "
            f"ORDER BY {ORDER} LIMIT {_FIRST_ROWS}"
        )
        rows = self._index.read(query, (self._index.run_key(run_id),))
        with self._database.corruption_errors(f"the rows of run {run_id}"):
            names = dict.fromkeys(name for scores, _ in rows for name in _decode_scores(scores))
        return tuple(names), any(epoch > 1 for _, epoch in rows)

    def slices(self, run_id: str, key: str) -> dict[str, Figures]:
        state = self._store.row_state(run_id), self._index.state(run_id)
        return self._cache.get(("slices", run_id, key), state, lambda: self._slices(run_id, key))

    def _slices(self, run_id: str, key: str) -> dict[str, Figures]:
        scope = scope_of(self._store.run(run_id))
        table = self._indexed_table(run_id, tuple(dict.fromkeys((*scope.keys, key))))
        return slice_figures(table, scope, key)

    def _indexed_table(self, run_id: str, keys: tuple[str, ...]) -> RunTable:
        run_key, name = self._index.run_key(run_id), encode_id(run_id)
        slices: list[dict[int, str]] = []
        for key in keys:
            start = f"metadata:{key}="
            query = "SELECT body, fact FROM facts WHERE run = ? AND fact >= ? AND fact < ?"
            facts = self._index.read(query, (name, start, f"{start}\U0010ffff"))
            slices.append(
                {body: fact.decode("utf-8", "replace")[len(start) :] for body, fact in facts}
            )
        query = (
            f"SELECT {columns_of('rows', bodies=False)} FROM store.rows WHERE run = ? AND body IN "
            f"(SELECT body FROM documents WHERE run = ?) ORDER BY {ORDER}"
        )
        rows = map(RowColumns._make, self._index.read(query, (run_key, name)))
        with self._database.corruption_errors(f"the rows of run {run_id}"):
            return RunTable(
                (
                    table_row(row, tuple(each.get(row.body, ABSENT) for each in slices))
                    for row in rows
                ),
                keys,
            )


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
    limits = {
        f"{_LATENCY} >= ?": filter.min_latency_ms,
        f"{_LATENCY} <= ?": filter.max_latency_ms,
        f"{_COST} >= ?": filter.min_cost,
        f"{_WHOLE_COST} <= ?": filter.max_cost,
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


@dataclass(frozen=True, slots=True)
class _Term:
    """A term of ORDER BY, with its values."""

    sql: str
    values: tuple[Any, ...] = ()
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.sql} {'DESC' if self.descending else 'ASC'}"


def _order_terms(order: str, descending: bool) -> tuple[_Term, ...]:
    """Return the terms that decide before the order of the dataset does."""
    kind, _, criterion = order.partition(":")
    if kind == "criterion" and criterion:
        value = _criterion_value(criterion)
        # Rows without the criterion last, in either direction.
        return _Term(f"({value.sql} IS NULL)", value.values), replace(value, descending=descending)
    if order not in _TERMS:
        raise UsageError(f"expected one of {', '.join(ORDERS)}, got {short_repr(order)}")
    return tuple(_Term(term, (), descending) for term in _TERMS[order])


def _criterion_value(name: str) -> _Term:
    """Return the value of a criterion in a row."""
    if _PLAIN_NAME.fullmatch(name):  # the quick way, which cannot express every name
        return _Term("json_extract(CAST(scores AS TEXT), ?)", (f'$."{name}"',))
    return _Term("(SELECT value FROM json_each(CAST(scores AS TEXT)) WHERE key = ?)", (name,))


def _before(terms: Sequence[_Term], of: Sequence[Any], key: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the condition on rows that come before one with these values and this key."""
    cases, values, equal, equal_values = [], [], "1", list[Any]()
    for term, value in zip(terms, of, strict=True):
        cases.append(f"({equal} AND {term.sql} {'>' if term.descending else '<'} ?)")
        values += [*equal_values, *term.values, value]
        equal += f" AND {term.sql} IS ?"
        equal_values += [*term.values, value]
    cases.append(f"({equal} AND ({ORDER}) < (?, ?, ?, ?))")
    return f"({' OR '.join(cases)})", [*values, *equal_values, *key]


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
        tokens=tokens or None,  # unknown tokens are stored as 0
        judge_tokens=judge_tokens,
        cost=cost,
        judge_cost=judge_cost,
        scores=_decode_scores(scores),
        failed=tuple(json.loads(failed)) if failed else (),
        input=beginning,
        output=output,
        why=why,
    )
