"""Rows of a run by filter, order and page, for people who look at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from ...errors import UsageError, short_repr
from ..model.grouping import MAX_NAME_CHARS
from ..runs.figures import Figures
from .stored_row import RowKey

Verdict = Literal["pass", "fail", "error"]
ORDERS = ("position", "sample", "verdict", "value", "latency", "tokens", "cost", "epoch")
"""What rows can be ordered by, beside "criterion:NAME"."""
MAX_PAGE = 500
_MAX_FACET_VALUES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Selects the rows of a run that match all given conditions.

    `failed` are names of criteria that failed, `tools` of tools that were called, `workers` of
    processes that ran them, `metadata` pairs of key and value, `errors` the keys of
    `Facets.errors`; `text` are words to search for.
    `rows` are keys (experiment, sample, epoch), `without_rows` those that are left out.
    Limits are inclusive; `cost` is in US dollars, agent and judges together. What is unknown is
    within no maximum.
    """

    verdict: Verdict | None = None
    failed: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
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
        if self.verdict is not None and self.verdict not in get_args(Verdict):
            names = ", ".join(get_args(Verdict))
            raise UsageError(f"expected a verdict ({names}), got {short_repr(self.verdict)}")

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts of the search index that a row must have."""
        return (
            *(f"failed:{name}" for name in self.failed),
            *(f"tool:{name}" for name in self.tools),
            *(f"worker:{name}" for name in self.workers),
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
    latency_ms: int | None
    tokens: int | None
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
    workers: Mapping[str, int]
    errors: Mapping[str, int]
    metadata: Mapping[str, Mapping[str, int]]


ALL_ROWS = RowFilter()


def facets_of(verdicts: Mapping[str, int], facts: Iterable[tuple[str, int]]) -> Facets:
    """Return the facets of facts ("tool:search") with their numbers of rows, in this order.

    Of each kind, the first values are kept. Values of the metadata that are texts are left out.
    """
    groups: dict[str, dict[str, int]] = {name: {} for name in ("failed", "tool", "worker", "error")}
    metadata: dict[str, dict[str, int]] = {}
    for fact, count in facts:
        kind, _, value = fact.partition(":")
        values = groups.setdefault(kind, {})
        if kind == "metadata":
            key, _, value = value.partition("=")
            if len(value) == MAX_NAME_CHARS:  # a text, not a category
                continue
            values = metadata.setdefault(key, {})
        if len(values) < _MAX_FACET_VALUES:
            values[value] = count
    return Facets(
        verdicts, groups["failed"], groups["tool"], groups["worker"], groups["error"], metadata
    )


def search_terms(text: str) -> list[str]:
    """Return the words of a search; those in quotes must be together.

    >>> search_terms('refused "port 80" dia')
    ['refused', 'port 80', 'dia']
    """
    terms: list[str] = []
    for index, part in enumerate(text.split('"')):
        terms += ([part] if part.strip() else []) if index % 2 else part.split()
    return terms


class RunBrowser(Protocol):
    """Looks at the rows of stored runs, page by page. Threads may share it.

    Counted columns are filtered and ordered at once; texts, metadata, tools and errors as far as
    they are indexed, which `update` does. Figures are those of the rows that are indexed by then.
    """

    def close(self) -> None:
        """Close the search index; the store stays open."""

    def update(self, run_id: str, *, seconds: float = 0.5) -> tuple[int, int]:
        """Index more rows of a run; return how many are indexed, and of how many."""

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
        """Return a page of the rows that match, in order: by one of `ORDERS`, or a criterion."""

    def offset_of(
        self,
        run_id: str,
        key: RowKey,
        filter: RowFilter = ALL_ROWS,
        *,
        order: str = "position",
        descending: bool = False,
    ) -> int | None:
        """Return the place of a row among those that match; None if it does not."""

    def facets(self, run_id: str) -> Facets:
        """Return what the rows of a run can be filtered by."""

    def facts(self, run_id: str) -> dict[RowKey, list[str]]:
        """Return what each row can be filtered by ("tool:search")."""

    def columns(self, run_id: str) -> tuple[tuple[str, ...], bool]:
        """Return the names of the criteria, as the first rows have them, and whether it has epochs.

        Nothing but those rows is read.
        """

    def slices(self, run_id: str, key: str) -> dict[str, Figures]:
        """Return the figures of each slice by a key of the metadata."""
