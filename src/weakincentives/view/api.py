"""Answer the page's requests with plain data. Every function takes the query of the address.

Figures and words are those of the library and the command: nothing is computed here that they do
not compute.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..errors import UsageError
from ..evals import RunStore
from ..evals.comparison import (
    RunComparison,
    compare_several,
    count_divergences,
    count_kinds,
    describe_divergences,
    flip_details,
    flip_divergences,
    sample_matrix,
)
from ..evals.comparison.matrix import of_kind
from ..evals.reporting.documents import overview_data, rate_data, record_data, slices_data
from ..evals.runs.figures import Figures
from ..evals.store import RunRecord, StoredRow
from ..evals.store.browse import MAX_PAGE, RowFilter
from ..evals.store.find_rows import rows_of_sample
from ..evals.store.listing import RunListing
from ..evals.store.overview import Overview, overview
from ..evals.store.run_titles import agent_label, experiment_name, run_title
from ..evals.store.stored_row import RowKey
from ..experiment import BASELINE
from ..internal.formatting import pretty
from ..internal.state_cache import StateCache
from .address_queries import Query, one, read_number, read_whole, run_of
from .comparing import aligned_data, comparison_page, matrix_row
from .queue_page import queue_data, states_of
from .review_api import RowLabels
from .sample_data import row_data, sibling_data
from .writes import set_tags

_MAX_RUNS = 200
_MAX_SPARKLINE_RUNS = 12  # earlier runs of the same suite
_MAX_COMPARED = 5
_MAX_OVERVIEWS, _MAX_RATES = 20, 10_000  # cached values
_PAGE_SAMPLES = 50  # compared samples in one answer
_MAX_ALIGNED = 200  # flips whose trajectories are aligned for the summary


class Api:
    """Answers of the server over one run store. Threads may share it.

    `ANSWERS` are the names of the methods that the page calls, as `/api/<name>?...`.
    """

    ANSWERS = (
        *("runs", "head", "run", "rows", "facets", "slices", "sample", "place"),
        *("compare", "divergences", "aligned", "flip"),
    )

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._browser = store.browser()
        self._listing = RunListing(store)
        self._overviews = StateCache(_MAX_OVERVIEWS)
        self.writes = 0  # writes of this server, which `data_version` does not show
        self._labels = RowLabels(store)
        self._rates = StateCache(_MAX_RATES)
        self._lock = threading.Lock()
        self._comparing = threading.Lock()
        self._last_compared: tuple[Any, list[RunComparison]] | None = None

    def close(self) -> None:
        """Close the search index."""
        self._browser.close()

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def runs(self, query: Query) -> dict[str, Any]:
        """Return a page of runs, newest first: `offset`, `limit`, and words in `q`."""
        offset, limit = read_whole(query, "offset", 0), read_whole(query, "limit", 50)
        words = one(query, "q").lower().split()
        found = [record for record in self._listing.records() if _matches(record, words)]
        page = found[offset : offset + min(limit, _MAX_RUNS)]
        return {
            "total": len(found),
            "runs": [self.summary(record) for record in page],
            "sparks": self._sparks(page, found),
        }

    def records(self) -> list[RunRecord]:
        """Return all runs, newest first."""
        return self._listing.records()

    def summary(self, record: RunRecord) -> dict[str, Any]:
        """Return a run as a line of the list."""
        return {**record_data(record, self._figures(record)), **self._names(record)}

    def _names(self, record: RunRecord) -> dict[str, Any]:
        manifest = record.manifest
        return {
            "queue": queue_data(record, states_of(self._store, [record]).get(manifest.run_id)),
            "title": run_title(manifest),
            "label": agent_label(manifest.agent, manifest.model),
            "experiment": experiment_name(manifest),
        }

    def _figures(self, record: RunRecord) -> Figures:
        """Return the figures of a run; computed again only if its rows have changed."""
        run_id = record.manifest.run_id
        state = self._store.row_state(run_id), record.status, record.damaged
        return self._rates.get(run_id, state, lambda: self._store.figures(record))

    def _pass_rate(self, record: RunRecord) -> float | None:
        rate: float | None = rate_data(self._figures(record).rate)["pass_rate"]
        return rate

    def _sparks(
        self, page: Sequence[RunRecord], all_runs: Sequence[RunRecord]
    ) -> dict[str, list[float | None]]:
        """Return the pass rates of earlier runs of the same suite, oldest first."""
        by_title: dict[str, list[RunRecord]] = {}
        for record in all_runs:
            by_title.setdefault(run_title(record.manifest), []).append(record)
        sparks = {}
        for record in page:
            same = by_title[run_title(record.manifest)]
            at = same.index(record)
            sparks[record.manifest.run_id] = [
                self._pass_rate(each) for each in reversed(same[at : at + _MAX_SPARKLINE_RUNS])
            ]
        return sparks

    def tags(self, body: bytes) -> dict[str, Any]:
        """Set and remove tags of a run."""
        changed = set_tags(self._store, body)
        with self._lock:
            self.writes += 1
        return changed

    # ── one run ─────────────────────────────────────────────────────────────────────────────────

    def run(self, query: Query) -> dict[str, Any]:
        """Return all figures of a run."""
        found = self._overview(self._id(run_of(query)))
        record, name = found.record, found.record.manifest.run_id
        return {
            **overview_data(found),
            **self._names(record),
            "headline": str(found),
            "labelled": self._labels.total(name),
            "labels_problem": self._labels.problem(name),
            "histogram": found.histogram,
            "config": record.manifest.config,
            "dataset_digest": record.manifest.dataset_digest,
            "packages": record.manifest.packages,
            "command": list(record.manifest.command),
            "earlier": self._earlier(record),
        }

    def head(self, query: Query) -> dict[str, Any]:
        """Return what the table of a run needs before its figures are there."""
        name = self._id(run_of(query))
        criteria, has_epochs = self._browser.columns(name)
        return {
            "run_id": name,
            "criteria": criteria,
            "epochs": has_epochs,
            "labelled": self._labels.total(name),
        }

    def _overview(self, run_id: str) -> Overview:
        """Return the figures of a run; computed again only if its rows or labels have changed."""
        state = self._record(run_id), self._store.people.state()
        return self._overviews.get(run_id, state, lambda: overview(self._store, run_id))

    def _record(self, run_id: str) -> RunRecord:
        found = (each for each in self._listing.records() if each.manifest.run_id == run_id)
        return next(found, None) or self._store.run(run_id)

    def _earlier(self, record: RunRecord) -> list[dict[str, Any]]:
        """Return runs of the same suite before this one, oldest first."""
        title, began = run_title(record.manifest), record.manifest.created_at
        same = [
            each
            for each in self._listing.records()
            if run_title(each.manifest) == title and each.manifest.created_at < began and each.total
        ]
        return [
            {"run_id": each.manifest.run_id, "pass_rate": self._pass_rate(each)}
            for each in reversed(same[:_MAX_SPARKLINE_RUNS])
        ]

    def rows(self, query: Query) -> dict[str, Any]:
        """Return a page of the rows of a run that match the filters."""
        name = self._id(run_of(query))
        page = self._browser.rows(
            name,
            self._filter(name, query),
            order=one(query, "order") or "position",
            descending=one(query, "desc") == "1",
            offset=read_whole(query, "offset", 0),
            limit=min(read_whole(query, "limit", 100), MAX_PAGE),
        )
        rows = self._labels.add_to(name, page.rows)
        return {"rows": rows, "total": page.total, "indexed": page.indexed, "of": page.of}

    def facets(self, query: Query) -> dict[str, Any]:
        """Return what the rows of a run can be filtered by, and index more rows."""
        name = self._id(run_of(query))
        indexed, of = self._browser.update(name)
        return {
            **asdict(self._browser.facets(name)),
            "labels": self._labels.counts(name),
            "indexed": indexed,
            "of": of,
        }

    def facts(self, run_id: str) -> dict[RowKey, list[str]]:
        """Return what each row can be filtered by ("tool:search", "label:pass"), by its key."""
        labels = self._labels.names(run_id)
        return {
            row: [*facts, *(f"label:{name}" for name in labels.get(row, ("none",)))]
            for row, facts in self._browser.facts(run_id).items()
        }

    def slices(self, query: Query) -> dict[str, Any]:
        """Return the pass rate for each value of a metadata key."""
        key = one(query, "by")
        name = self._id(run_of(query))
        indexed, of = self._browser.update(name)
        found = self._browser.slices(name, key)
        return {"by": key, "slices": slices_data(key, found), "indexed": indexed, "of": of}

    # ── one sample ──────────────────────────────────────────────────────────────────────────────

    def sample(self, query: Query) -> dict[str, Any]:
        """Return one row whole: `sample`, `epoch`, `experiment`; messages from `message` on."""
        name, sample_id = self._id(run_of(query)), one(query, "sample")
        rows = rows_of_sample(self._store, name, sample_id)
        epoch, experiment = one(query, "epoch"), one(query, "experiment")
        chosen = [
            row
            for row in rows
            if epoch in ("", str(row.result.epoch))
            and experiment in ("", row.result.experiment_name)
        ]
        if not chosen:
            raise UsageError(f"expected an epoch of sample {sample_id!r}, found none")
        return self.sample_of(name, chosen[0], rows, read_whole(query, "message", 0))

    def sample_of(
        self, run_id: str, row: StoredRow, rows: Sequence[StoredRow], first_message: int = 0
    ) -> dict[str, Any]:
        """Return one of the rows of a sample whole."""
        return {
            **row_data(row, first_message),
            **self._labels.on(run_id, row.result),
            "siblings": [sibling_data(each.result) for each in rows],
        }

    def place(self, query: Query) -> dict[str, Any]:
        """Return the rows before and after one, in the order and with the filters of the table."""
        name = self._id(run_of(query))
        given = self._filter(name, query)
        order, descending = one(query, "order") or "position", one(query, "desc") == "1"
        key = (
            one(query, "experiment") or BASELINE.name,
            one(query, "at"),
            read_whole(query, "epoch", 1),
        )
        at = self._browser.offset_of(name, key, given, order=order, descending=descending)
        if at is None:
            return {"at": None, "total": 0, "before": None, "after": None}
        start = max(0, at - 1)
        page = self._browser.rows(
            name, given, order=order, descending=descending, offset=start, limit=3
        )
        near = {start + index: row for index, row in enumerate(page.rows)}
        return {
            "at": at,
            "total": page.total,
            "before": _key_data(near.get(at - 1)),
            "after": _key_data(near.get(at + 1)),
        }

    def text(self, query: Query) -> str:
        """Return one text of a row whole: `part` is input, expected, output or message:N."""
        key = (one(query, "experiment") or BASELINE.name, one(query, "sample"))
        run_id = self._id(run_of(query))
        row = self._store.row(run_id, *key, read_whole(query, "epoch", 1))
        if row is None:
            raise UsageError(f"expected a sample of run {run_id!r}, got {key[1]!r}")
        part, _, number = one(query, "part").partition(":")
        result, sample = row.result, row.result.sample
        messages = result.trajectory.messages if result.trajectory else ()
        if part == "message" and number.isdecimal() and int(number) < len(messages):
            return messages[int(number)].content
        parts = {
            "input": sample and sample.input,
            "expected": sample and sample.expected,
            "output": result.output,
        }
        if part not in parts:
            raise UsageError(f"expected input, expected, output or message:N, got {part!r}")
        return pretty(parts[part])

    # ── comparison ──────────────────────────────────────────────────────────────────────────────

    def compare(self, query: Query) -> dict[str, Any]:
        """Return two to five runs compared: the first with each of the others (`run`).

        `kind` chooses the samples: different (the default), broken, fixed, failing or all.
        """
        names = [self._id(run) for run in query.get("run", ())]
        if not 2 <= len(names) <= _MAX_COMPARED:
            raise UsageError(f"expected two to {_MAX_COMPARED} runs to compare, got {len(names)}")
        compared = self.compared(names)
        runs = (compared[0].before, *(each.after for each in compared))
        every = sample_matrix(runs)
        kind: Any = one(query, "kind") or "different"
        chosen = of_kind(every, kind)
        offset = read_whole(query, "offset", 0)
        overviews = [self._overview(name) for name in names]
        return {
            "runs": [self.summary(each.record) for each in overviews],
            "comparisons": [comparison_page(each) for each in compared],
            "rows": [
                matrix_row(self._store, runs, row)
                for row in chosen[offset : offset + _PAGE_SAMPLES]
            ],
            "kinds": count_kinds(every),
            "total": len(chosen),
        }

    def compared(self, names: Sequence[str]) -> list[RunComparison]:
        """Return the first run compared with each of the others; the last answer is kept."""
        states = tuple(
            (record.manifest.run_id, record.status, self._store.row_state(record.manifest.run_id))
            for record in map(self._record, names)
        )
        with self._comparing:
            if self._last_compared is None or self._last_compared[0] != states:
                found = compare_several(names[0], names[1:], store=self._store, force=True)
                self._last_compared = states, list(found)
            return self._last_compared[1]

    def divergences(self, query: Query) -> dict[str, Any]:
        """Return where the trajectories of the flips of two runs diverge, by step."""
        a, b = self._two(query)
        (compared,) = self.compared((a, b))
        flips = compared.flips[:_MAX_ALIGNED]
        found = flip_divergences(compared, self._store, self._store, flips)
        counted = count_divergences(found)
        return {
            "divergences": counted,
            "summary": describe_divergences(counted),
            "of": found.aligned,
            "flips": len(compared.flips),
        }

    def aligned(self, query: Query) -> dict[str, Any]:
        """Return one sample in two runs: both results, what changed, and the steps side by side."""
        a, b = self._two(query)
        sample, epoch = one(query, "sample"), read_whole(query, "epoch", 0)
        rows = [_chosen(self._store, run, sample, epoch) for run in (a, b)]
        return aligned_data(rows)

    def flip(self, query: Query) -> dict[str, Any]:
        """Return the criteria that changed in one sample of two runs."""
        a, b = self._two(query)
        (compared,) = self.compared((a, b))
        sample, epoch = one(query, "sample"), one(query, "epoch")
        flips = [
            each
            for each in compared.flips
            if each.sample == sample and epoch in ("", "0", str(each.epoch))
        ]
        details = flip_details(compared, self._store, self._store, flips[:1])
        return {"criteria": details[0].criteria if details else ()}

    # ── internal ────────────────────────────────────────────────────────────────────────────────

    def _filter(self, name: str, query: Query) -> RowFilter:
        return self._labels.restrict(name, row_filter(query), query.get("label", ()))

    def _id(self, run_id: str) -> str:
        return self._store.find_run(run_id)

    def _two(self, query: Query) -> tuple[str, str]:
        names = query.get("run", ())
        if len(names) != 2:
            raise UsageError(f"expected two runs, got {len(names)}")
        return self._id(names[0]), self._id(names[1])


def _chosen(store: RunStore, run_id: str, sample: str, epoch: int) -> StoredRow | None:
    try:
        rows = rows_of_sample(store, run_id, sample)
    except UsageError:
        return None
    return next((row for row in rows if epoch in (0, row.result.epoch)), rows[0] if rows else None)


# ── the query of the address ────────────────────────────────────────────────────────────────────


def row_filter(query: Query) -> RowFilter:
    """Return the filters in the query of an address."""
    verdict: Any = one(query, "verdict") or None
    pairs = (pair.partition("=") for pair in query.get("meta", ()))
    return RowFilter(
        verdict=verdict,
        failed=tuple(query.get("failed", ())),
        tools=tuple(query.get("tool", ())),
        workers=tuple(query.get("worker", ())),
        errors=tuple(query.get("error", ())),
        metadata=tuple((key, value) for key, _, value in pairs),
        text=one(query, "q"),
        min_latency_ms=read_number(query, "min_latency"),
        max_latency_ms=read_number(query, "max_latency"),
        min_cost=read_number(query, "min_cost"),
        max_cost=read_number(query, "max_cost"),
    )


def _matches(record: RunRecord, words: Sequence[str]) -> bool:
    manifest = record.manifest
    tags = (f"{key}={value}" for key, value in manifest.tags.items())
    about = (manifest.run_id, manifest.suite, manifest.dataset_name, manifest.agent, manifest.model)
    text = " ".join([record.status, experiment_name(manifest), *filter(None, about), *tags]).lower()
    return all(word in text for word in words)


# ── values ──────────────────────────────────────────────────────────────────────────────────────


def _key_data(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    return {"sample": row.sample, "epoch": row.epoch, "experiment": row.experiment}
