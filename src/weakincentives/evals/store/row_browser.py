"""`RowBrowser`: looks at the rows of a run by reading them all, for stores without an index."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...errors import UsageError, short_repr
from ..model.explain import failed_criteria
from ..model.result import EvalResult, criterion_values
from ..runs.figures import Figures, slice_figures
from ..runs.table import known_latency
from .browse import (
    ALL_ROWS,
    MAX_PAGE,
    ORDERS,
    Facets,
    RowFilter,
    RowPage,
    RowSummary,
    RunBrowser,
    Verdict,
    facets_of,
    search_terms,
)
from .row_texts import facts, snippets, texts
from .run_record import scope_of
from .run_store import RunStore
from .stored_row import RowKey, StoredRow


class _Row(NamedTuple):
    """A row, and what it is found by."""

    summary: RowSummary
    facts: frozenset[str]
    words: str

    @property
    def key(self) -> RowKey:
        return self.summary.experiment, self.summary.sample, self.summary.epoch


class RowBrowser(RunBrowser):
    """Looks at rows by reading all of them."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def close(self) -> None:
        pass

    def update(self, run_id: str, *, seconds: float = 0.5) -> tuple[int, int]:
        total = len(self._store.table(run_id))
        return total, total

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
        every = list(self._rows(run_id))
        found = _ordered([row for row in every if _matches(row, filter)], order, descending)
        start, count = max(0, offset), max(0, min(limit, MAX_PAGE))
        page = tuple(row.summary for row in found[start : start + count])
        return RowPage(page, len(found), len(every), len(every))

    def offset_of(
        self,
        run_id: str,
        key: RowKey,
        filter: RowFilter = ALL_ROWS,
        *,
        order: str = "position",
        descending: bool = False,
    ) -> int | None:
        rows = [row for row in self._rows(run_id) if _matches(row, filter)]
        places = enumerate(_ordered(rows, order, descending))
        return next((place for place, row in places if row.key == key), None)

    def facets(self, run_id: str) -> Facets:
        rows = list(self._rows(run_id))
        counted = Counter(fact for row in rows for fact in row.facts)
        verdicts = Counter[str](row.summary.verdict for row in rows)
        return facets_of(verdicts, sorted(counted.items(), key=lambda each: (-each[1], each[0])))

    def facts(self, run_id: str) -> dict[RowKey, list[str]]:
        return {row.key: sorted(row.facts) for row in self._rows(run_id)}

    def columns(self, run_id: str) -> tuple[tuple[str, ...], bool]:
        table = self._store.table(run_id)
        scored = (row.scores for row in table if not row.error)
        names = dict.fromkeys(name for scores in scored for name in scores)
        return tuple(names), any(epoch > 1 for epoch in table.epochs)

    def slices(self, run_id: str, key: str) -> dict[str, Figures]:
        scope = scope_of(self._store.run(run_id))
        return slice_figures(self._store.table(run_id, (*scope.keys, key)), scope, key)

    def _rows(self, run_id: str) -> Iterator[_Row]:
        return map(_row, self._store.rows(run_id))


def _row(stored: StoredRow) -> _Row:
    result: EvalResult[Any] = stored.result
    failed = [criterion for criterion, _ in failed_criteria(result)]
    beginning, output, why = snippets(result)
    verdict: Verdict = "error" if result.error else "pass" if result.passed else "fail"
    summary = RowSummary(
        sample=result.sample_id,
        epoch=result.epoch,
        experiment=result.experiment_name,
        position=stored.position,
        attempt=result.attempt,
        verdict=verdict,
        value=result.score.value,
        latency_ms=known_latency(result.latency_ms, result.error_source),
        tokens=result.agent_tokens or None,
        judge_tokens=result.judge_tokens or 0,
        cost=result.cost,
        judge_cost=result.judge_cost,
        scores=criterion_values(result.score),
        failed=tuple(failed),
        input=beginning,
        output=output,
        why=why,
    )
    return _Row(summary, frozenset(facts(result, failed)), "\n".join(texts(stored)).casefold())


def _ordered(rows: list[_Row], order: str, descending: bool) -> list[_Row]:
    """Return the rows in order; equal ones by position, and last those without the criterion."""
    kind, _, criterion = order.partition(":")
    if kind == "criterion" and criterion:
        with_it = [row for row in rows if criterion in row.summary.scores]
        without = [row for row in rows if criterion not in row.summary.scores]
        with_it.sort(key=lambda row: row.summary.scores[criterion], reverse=descending)
        return with_it + without
    if order not in _VALUES:
        raise UsageError(f"expected one of {', '.join(ORDERS)}, got {short_repr(order)}")
    value = _VALUES[order]
    return sorted(rows, key=lambda row: value(row.summary), reverse=descending)


def _matches(row: _Row, filter: RowFilter) -> bool:
    summary = row.summary
    return (
        filter.verdict in (None, summary.verdict)
        and filter.sample in (None, summary.sample)
        and (filter.samples is None or summary.sample in filter.samples)
        and (filter.rows is None or row.key in filter.rows)
        and row.key not in filter.without_rows
        and _between(filter.min_latency_ms, summary.latency_ms, filter.max_latency_ms)
        and _between(filter.min_cost, _cost(summary), None)
        and _between(None, _whole_cost(summary), filter.max_cost)
        and row.facts.issuperset(filter.facts)
        and _has(row.words, filter.text.casefold())
    )


def _has(words: str, text: str) -> bool:
    """Return whether the words of a search are there; the last one may be the beginning of one."""
    terms = [rf"\b{re.escape(term)}\b" for term in search_terms(text)]
    if terms and not text.endswith(('"', " ")):
        terms[-1] = terms[-1].removesuffix(r"\b")
    return all(re.search(term, words) for term in terms)


def _between(least: float | None, value: float | None, most: float | None) -> bool:
    """Return whether a value is within limits; what is unknown is within none."""
    if value is None:
        return least is None and most is None
    return (least is None or value >= least) and (most is None or value <= most)


def _cost(summary: RowSummary) -> float:
    """Return what a row cost at least."""
    return (summary.cost or 0) + (summary.judge_cost or 0)


def _whole_cost(summary: RowSummary) -> float | None:
    if summary.cost is None or (summary.judge_tokens and summary.judge_cost is None):
        return None
    return _cost(summary)


_VALUES: Mapping[str, Callable[[RowSummary], Any]] = {
    "position": lambda row: row.position,
    "sample": lambda row: row.sample.encode("utf-8", "surrogatepass"),
    "verdict": lambda row: ("fail", "pass", "error").index(row.verdict),
    "value": lambda row: row.value,
    "latency": lambda row: row.latency_ms or 0,
    "tokens": lambda row: (row.tokens or 0) + row.judge_tokens,
    "cost": _cost,
    "epoch": lambda row: row.epoch,
}
