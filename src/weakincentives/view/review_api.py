"""Answer the requests and writes of the Review screen, with plain data.

Everything is computed by `weakincentives.evals.review`. A blind answer has nothing from the judge
in it: if a reviewer must not see the verdict, it is not sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import serde
from ..errors import StoreError, UsageError, WinkError
from ..evals import EvalResult, RunStore
from ..evals.reporting import label_pairs, label_rows
from ..evals.reporting.labels import COLUMNS
from ..evals.review import (
    LabelChange,
    QueueOrder,
    ReviewItem,
    RowLabel,
    categories_of,
    create_category,
    give_label,
    labels_by_reviewer,
    merge_categories,
    rename_category,
    review_agreement,
    review_queue,
    row_labels,
    taxonomy_of,
    undo_label,
)
from ..evals.review.label_files import csv_lines, jsonl_lines
from ..evals.review.queue import DEFAULT_LENGTH, review_criterion
from ..evals.runs import Interval
from ..evals.store.browse import RowFilter, RowSummary
from ..evals.store.human_labels import HumanLabel, content_of, labels_of, verdict_on
from ..evals.store.run_titles import run_title
from ..evals.store.stored_row import RowKey
from ..experiment import BASELINE
from ..internal.formatting import verdict_word
from ..internal.state_cache import StateCache
from .address_queries import Query, one, run_of

MAX_QUEUE = 500
_MAX_NOTES = 300  # in one answer
_MAX_LABELLED_RUNS = 500  # runs with cached labels
# The fields of a sample that a reviewer sees in a blind review.
_BLIND_KEYS = (
    *("sample_id", "epoch", "experiment", "run_id", "input", "expected", "output", "diff"),
    *("messages", "message_count", "tool_errors", "events", "latency_ms", "problem", "error"),
)


class RowLabels:
    """The labels of people on the rows of runs; read again only if there are new ones."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._labels = StateCache(_MAX_LABELLED_RUNS)

    def of(self, run_id: str) -> dict[RowKey, RowLabel]:
        """Return the labels of a run by row."""
        state = self._store.people.state(), self._store.row_state(run_id)
        return self._labels.get(run_id, state, lambda: row_labels(self._store, run_id))

    def problem(self, run_id: str) -> str:
        """Return why the labels of a run cannot be read; "" if they can."""
        return self._read(run_id)[1]

    def total(self, run_id: str) -> int:
        """Return the number of rows with a label; 0 if the labels cannot be read."""
        return len(self._read(run_id)[0])

    def _read(self, run_id: str) -> tuple[dict[RowKey, RowLabel], str]:
        """Return the labels of a run by row; if they cannot be read none, and the reason."""
        try:
            return self.of(run_id), ""
        except StoreError as error:
            return {}, str(error)

    def counts(self, run_id: str) -> dict[str, int]:
        """Return the number of rows with each label, and in each category."""
        counts: dict[str, int] = {}
        for label in self._read(run_id)[0].values():
            for name in _names(label):
                counts[name] = counts.get(name, 0) + 1
        return counts

    def names(self, run_id: str) -> dict[RowKey, tuple[str, ...]]:
        """Return the labels that a row can be filtered by, of each row that has one."""
        return {row: _names(label) for row, label in self._read(run_id)[0].items()}

    def add_to(self, run_id: str, rows: Sequence[RowSummary]) -> list[RowSummary]:
        """Return the rows with their labels."""
        labels, problem = self._read(run_id)
        if problem:
            return [replace(row, label="unreadable") for row in rows]
        return [
            replace(row, label=_in_words(labels.get((row.experiment, row.sample, row.epoch))))
            for row in rows
        ]

    def on(self, run_id: str, result: EvalResult[Any]) -> dict[str, Any]:
        """Return what people say about one output, by every criterion; or why that is unknown."""
        try:
            row = result.experiment_name, result.sample_id, result.epoch
            known = row in self.of(run_id)
            return {"labels": _labels_on(self._store, run_id, result) if known else []}
        except StoreError as error:
            return {"labels": [], "labels_problem": str(error)}

    def restrict(self, run_id: str, given: RowFilter, wanted: Sequence[str]) -> RowFilter:
        """Return the filter, limited to rows with these labels; "none" has those without one."""
        if not wanted:
            return given
        labels = self.of(run_id)
        if "none" in wanted:
            return replace(given, without_rows=tuple(labels))
        rows = [
            row
            for row, label in labels.items()
            if all(
                name == (label.verdict or "note")
                or name.removeprefix("category: ") in label.categories
                for name in wanted
            )
        ]
        return replace(given, rows=tuple(rows))


def _names(label: RowLabel) -> tuple[str, ...]:
    return label.verdict or "note", *(f"category: {name}" for name in label.categories)


def _in_words(label: RowLabel | None) -> str:
    if label is None:
        return ""
    return " · ".join([label.verdict or "note", *label.categories])


# ── writes ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWrite:
    """A reviewer starts or continues a review; with a `sample`, that one comes first."""

    run: str
    reviewer: str = ""
    criterion: str = ""
    n: int = DEFAULT_LENGTH
    order: QueueOrder = "informative"
    blind: bool = False
    sample: str = ""
    epoch: int = 1
    experiment: str = BASELINE.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWrite(LabelChange):
    """A label, a note or a category that a reviewer gives to an output."""

    run: str
    sample: str
    reviewer: str
    epoch: int = 1
    experiment: str = BASELINE.name
    criterion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoWrite:
    """The last change of a reviewer is undone."""

    run: str
    reviewer: str
    criterion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryWrite:
    """A category is created, or renamed (`name`), or merged (`into`)."""

    run: str
    reviewer: str
    category: str = ""
    name: str = ""
    into: str = ""


class ReviewApi:
    """Answers of the Review screen over one run store. Threads may share it."""

    ANSWERS = ("review_item", "review_progress", "review_categories", "review_agreement")
    WRITES = ("review_queue", "review_label", "review_undo", "review_category")

    def __init__(self, store: RunStore, sample: Callable[[Query], dict[str, Any]]) -> None:
        self._store = store
        self._sample = sample
        self._writing = threading.Lock()

    # ── reads ───────────────────────────────────────────────────────────────────────────────────

    def review_progress(self, query: Query) -> dict[str, Any]:
        """Return how many outputs each reviewer has labelled, and the categories."""
        run_id, criterion = self._run(query)
        manifest = self._store.run(run_id).manifest
        counts: dict[str, int] = {}
        for label in labels_of(self._store, run_id, review_criterion(manifest, criterion)):
            if label.passed is not None and not label.settled:
                counts[label.labeller] = counts.get(label.labeller, 0) + 1
        return {"reviewers": counts, "categories": self._categories(run_title(manifest))}

    def review_item(self, query: Query) -> dict[str, Any]:
        """Return one output to review; `blind` without anything that the judge says."""
        run_id, criterion = self._run(query)
        whole = self._sample({**query, "run": [run_id]})
        item = {name: whole[name] for name in _BLIND_KEYS if name in whole}
        if one(query, "blind") == "1":
            return item
        manifest = self._store.run(run_id).manifest
        row = whole["experiment"], whole["sample_id"], whole["epoch"]
        stored = self._store.row(run_id, *row)
        if stored is None:
            raise UsageError(f"expected an output of run {run_id}, got {row[1]!r}")
        name = review_criterion(manifest, criterion)
        passed, reason = verdict_on(stored.result, name, only=len(manifest.criteria) <= 1)
        return {**item, "judge": {"verdict": verdict_word(passed, "error"), "reason": reason}}

    def review_categories(self, query: Query) -> dict[str, Any]:
        """Return the failure categories with their notes, and the curve."""
        run_id, criterion = self._run(query)
        found = taxonomy_of(self._store, run_id, criterion=criterion)
        keys = [*categories_of(self._store, found.suite).names]
        return {
            "suite": found.suite,
            "criterion": found.criterion,
            "categories": [
                {
                    "id": each.category,
                    "name": each.name,
                    "key": keys.index(each.category) + 1,
                    "count": each.count,
                    **rate_with_ends(each.share),
                    "notes": [_note(label) for label in each.labels[:_MAX_NOTES]],
                }
                for each in found.categories
            ],
            "unsorted": [_note(label) for label in found.unsorted[:_MAX_NOTES]],
            "unsorted_count": len(found.unsorted),
            "curve": found.curve,
            "new_category": found.new_category,
        }

    def review_agreement(self, query: Query) -> dict[str, Any]:
        """Return how far the reviewers agree, and where they do not."""
        run_id, criterion = self._run(query)
        found = review_agreement(self._store, run_id, criterion=criterion)
        return {
            "criterion": found.criterion,
            "labels": found.labels,
            "shared": found.shared,
            "agreement": found.agreement and rate_with_ends(found.agreement),
            "alpha": found.alpha and rate_with_ends(found.alpha),
            "pairs": [
                {"people": [each.first, each.second], "agreed": each.agreed, "n": each.rate.n}
                | rate_with_ends(each.rate)
                for each in found.pairs
            ],
            "disagreements": [
                {
                    **_key(each.row),
                    "labels": [_note(label) for label in each.labels],
                    "decision": each.decision and _note(each.decision),
                }
                for each in found.disagreements
            ],
        }

    def export(self, query: Query) -> tuple[str, bytes]:
        """Return the name and the content of a file: `form` is csv, jsonl or pairs."""
        run_id, criterion = self._run(query)
        form = one(query, "form")
        names = {"csv": "labels.csv", "jsonl": "labels.jsonl", "pairs": "pairs.jsonl"}
        if form not in names:
            raise UsageError(f"expected csv, jsonl or pairs, got {form!r}")
        read = label_pairs if form == "pairs" else label_rows
        rows = read(self._store, run_id, criterion=criterion)
        lines = csv_lines(rows, COLUMNS) if form == "csv" else jsonl_lines(rows)
        return names[form], b"".join(lines)

    # ── writes ──────────────────────────────────────────────────────────────────────────────────

    def review_queue(self, body: bytes) -> dict[str, Any]:
        """Return the queue of a run with the reviewer's own labels, and how far others are.

        This is a write, since it stores which outputs were drawn at random.
        """
        asked = _decoded(body, QueueWrite)
        if not 0 < asked.n <= MAX_QUEUE:
            raise UsageError(f"expected a number of outputs from 1 to {MAX_QUEUE}, got {asked.n}")
        criterion = asked.criterion or None
        with self._writing:
            queue = review_queue(
                self._store, asked.run, criterion=criterion, n=asked.n, order=asked.order
            )
        manifest = self._store.run(queue.run_id).manifest
        items = list(queue.items)
        if asked.sample:
            row = asked.experiment, asked.sample, asked.epoch
            items.sort(key=lambda item: item.row != row)
            if not items or items[0].row != row:
                items.insert(0, ReviewItem(row, ("chosen",)))
        rows = [item.row for item in items]
        found = labels_by_reviewer(self._store, queue.run_id, rows, criterion=criterion)
        own = found.get(asked.reviewer, {})
        return {
            "run_id": queue.run_id,
            "criterion": queue.criterion,
            "criteria": [info.name for info in manifest.criteria],
            "items": [
                {
                    **_key(item.row),
                    "reasons": () if asked.blind else item.reasons,
                    "label": _label(own.get(item.row)),
                }
                for item in items
            ],
            "reviewers": _counts(found),
            "categories": self._categories(run_title(manifest)),
        }

    def review_label(self, body: bytes) -> dict[str, Any]:
        """Store what a reviewer says about an output."""
        write = _decoded(body, LabelWrite)
        row = write.experiment, write.sample, write.epoch
        criterion = write.criterion or None
        entry = give_label(self._store, write.run, row, write.reviewer, write, criterion=criterion)
        return {"label": _label(entry)}

    def review_undo(self, body: bytes) -> dict[str, Any]:
        """Undo the last change of a reviewer; return the output and what is left of its label."""
        write = _decoded(body, UndoWrite)
        criterion = write.criterion or None
        with self._writing:  # two tabs of one reviewer undo two changes
            undone = undo_label(self._store, write.run, write.reviewer, criterion=criterion)
        if undone is None:
            return {"undone": None, "label": None}
        found = labels_by_reviewer(self._store, write.run, [undone.row], criterion=criterion)
        left = found.get(undone.labeller, {}).get(undone.row)
        return {"undone": _key(undone.row), "label": _label(left)}

    def review_category(self, body: bytes) -> dict[str, Any]:
        """Create, rename or merge a category; return its id and all categories."""
        write = _decoded(body, CategoryWrite)
        title = run_title(self._store.run(write.run).manifest)
        with self._writing:  # two reviewers who create the same one get the same one
            if write.into:
                found = merge_categories(
                    self._store, title, write.category, write.into, by=write.reviewer
                )
            elif write.category:
                found = rename_category(
                    self._store, title, write.category, write.name, by=write.reviewer
                )
            else:
                found = create_category(self._store, title, write.name, by=write.reviewer)
        return {"id": found, "categories": self._categories(title)}

    # ── internal ────────────────────────────────────────────────────────────────────────────────

    def _run(self, query: Query) -> tuple[str, str | None]:
        """Return the id of the run, and the criterion if one is named."""
        manifest = self._store.run(run_of(query)).manifest
        return manifest.run_id, one(query, "criterion") or None

    def _categories(self, title: str) -> list[dict[str, str]]:
        names = categories_of(self._store, title).names
        return [{"id": category, "name": name} for category, name in names.items()]


def _labels_on(store: RunStore, run_id: str, result: EvalResult[Any]) -> list[dict[str, Any]]:
    manifest = store.run(run_id).manifest
    names = categories_of(store, run_title(manifest))
    row, content = (result.experiment_name, result.sample_id, result.epoch), content_of(result)
    return [
        {
            **_note(label),
            "criterion": name,
            "category": names.names.get(names.resolve(label.category), ""),
            "settled": label.settled,
        }
        for name in dict.fromkeys(["", *(info.name for info in manifest.criteria)])
        for label in labels_of(store, run_id, name)
        if label.row == row
        and label.content == content
        and (label.passed is not None or label.note)
    ]


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return serde.decode(body, kind)
    except WinkError as error:
        raise UsageError(f"expected a {kind.__name__}: {error}") from None


def _key(row: RowKey) -> dict[str, Any]:
    return {"experiment": row[0], "sample": row[1], "epoch": row[2]}


def _label(label: HumanLabel | None) -> dict[str, Any] | None:
    if label is None:
        return None
    return {
        "verdict": verdict_word(label.passed),
        "note": label.note or "",
        "category": label.category or "",
        "skipped": label.skipped,
    }


def _note(label: HumanLabel) -> dict[str, Any]:
    return {
        **_key(label.row),
        "verdict": verdict_word(label.passed),
        "note": label.note or "",
        "labeller": label.labeller,
        "created_at": label.created_at,
        "blind": label.blind,
    }


def _counts(found: Mapping[str, Mapping[RowKey, HumanLabel]]) -> dict[str, int]:
    return {
        labeller: sum(label.passed is not None for label in labels.values())
        for labeller, labels in sorted(found.items())
    }


def rate_with_ends(found: Interval) -> dict[str, float]:
    """Return a rate and the ends of its interval."""
    return {"rate": found.estimate, "low": found.low, "high": found.high}
