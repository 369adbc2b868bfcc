"""Give a label, a note or a category to an output, and undo that again.

Everything is added as a new row that says only what changes (`store/human_labels.py`), so
people who review the same outputs at the same time never overwrite each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError
from ...internal.checks import short_name
from ...secrets import redact_message
from ..runs.table import RunTable
from ..store.categories import categories_of
from ..store.human_labels import (
    HumanLabel,
    add_entries,
    content_of,
    draws_of,
    entries_of,
    labels_of,
    live_entries,
)
from ..store.run_store import RunStore
from ..store.run_titles import run_title
from ..store.stored_row import RowKey
from .queue import review_criterion

MAX_REVIEWER_CHARS = 60
MAX_NOTE_CHARS = 10_000
_WORDS: dict[bool, Literal["pass", "fail"]] = {True: "pass", False: "fail"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChange:
    """A change to a person's label of an output; None leaves the earlier value.

    `category` is the id or the name of a category; "" removes it. `settles`: this settles labels
    that differ. `labeller` is the author of the note, if that is someone else.
    """

    passed: bool | None = None
    note: str | None = None
    category: str | None = None
    skipped: bool = False
    settles: bool = False
    blind: bool = False
    labeller: str = ""


@dataclass(frozen=True, slots=True)
class RowLabel:
    """The label of an output, by all criteria: "pass", "fail", "mixed" or "" (a note)."""

    verdict: Literal["pass", "fail", "mixed", ""]
    labellers: tuple[str, ...]
    notes: tuple[str, ...]
    categories: tuple[str, ...]


def check_reviewer(name: str) -> str:
    """Return the name of a reviewer, trimmed; raise a `UsageError` if it cannot be one."""
    return short_name(name, MAX_REVIEWER_CHARS, "a reviewer")


def give_label(
    store: RunStore,
    run_id: str,
    row: RowKey,
    reviewer: str,
    change: LabelChange,
    *,
    criterion: str | None = None,
) -> HumanLabel:
    """Store what a reviewer says about an output, and return the row that was added."""
    reviewer = check_reviewer(reviewer)
    manifest = store.run(run_id).manifest
    name = review_criterion(manifest, criterion)
    stored = store.row(manifest.run_id, *row)
    if stored is None or stored.problem:
        raise UsageError(f"expected an output of run {manifest.run_id}, got {row[1]!r}")
    category = change.category
    if category:
        category = categories_of(store, run_title(manifest)).find(category)
    note = None if change.note is None else redact_message(change.note.strip())
    if note is not None and len(note) > MAX_NOTE_CHARS:
        raise UsageError(f"expected a note of at most {MAX_NOTE_CHARS:,} characters, got more")
    labeller = check_reviewer(change.labeller) if change.labeller else reviewer
    draw = draws_of(store, manifest.run_id, name).get(row)
    content = content_of(stored.result)
    versions = (info.version for info in manifest.criteria if info.name == name)
    entry = HumanLabel(
        run_id=manifest.run_id,
        experiment=row[0],
        sample_id=row[1],
        epoch=row[2],
        content=content,
        criterion=name,
        passed=change.passed,
        created_at=SYSTEM_CLOCK.now(),
        labeller=labeller,
        note=note,
        judge_version=next(versions, ""),
        probability=draw.probability if draw and draw.content == content else None,
        category=category,
        skipped=change.skipped,
        settled=change.settles,
        blind=change.blind,
        by="" if labeller == reviewer else reviewer,
        uid=uuid4().hex,
    )
    add_entries(store, [entry])
    return entry


def undo_label(
    store: RunStore, run_id: str, reviewer: str, *, criterion: str | None = None
) -> HumanLabel | None:
    """Undo the last change of a reviewer in a run and return it; None if nothing is left."""
    reviewer = check_reviewer(reviewer)
    manifest = store.run(run_id).manifest
    name = review_criterion(manifest, criterion)
    own = [
        entry
        for entry in live_entries(entries_of(store, manifest.run_id, name))
        if entry.uid and (entry.by or entry.labeller) == reviewer
    ]
    if not own:
        return None
    last = own[-1]
    undoing = HumanLabel(
        run_id=last.run_id,
        experiment=last.experiment,
        sample_id=last.sample_id,
        epoch=last.epoch,
        content=last.content,
        criterion=name,
        passed=None,
        created_at=SYSTEM_CLOCK.now(),
        labeller=last.labeller,
        note=None,
        by=last.by,
        uid=uuid4().hex,
        undoes=last.uid,
    )
    add_entries(store, [undoing])
    return last


def current_labels(store: RunStore, run_id: str, criterion: str) -> list[HumanLabel]:
    """Return the labels of a run's outputs as they are now; those of changed ones are left out."""
    return unchanged(store, run_id, labels_of(store, run_id, criterion))


def unchanged(store: RunStore, run_id: str, labels: Iterable[HumanLabel]) -> list[HumanLabel]:
    """Return the labels of outputs that the run has as they were labelled.

    A label of an output that is damaged is among them: nobody has changed that output.
    """
    contents: dict[RowKey, str | None] = {}  # None: it cannot be read
    current, keys = [], set[RowKey]()
    for label in labels:
        if label.row not in contents:
            stored = store.row(run_id, *label.row)
            if stored is not None:
                contents[label.row] = None if stored.problem else content_of(stored.result)
            else:
                keys = keys or _keys(store.table(run_id))
                contents[label.row] = None if label.row in keys else ""
        if contents[label.row] in (None, label.content):
            current.append(label)
    return current


def _keys(table: RunTable) -> set[RowKey]:
    return {table.key(at) for at in range(len(table))}


def labels_by_reviewer(
    store: RunStore, run_id: str, rows: Iterable[RowKey], *, criterion: str | None = None
) -> dict[str, dict[RowKey, HumanLabel]]:
    """Return what each reviewer says about these outputs as they are now, without decisions."""
    manifest = store.run(run_id).manifest
    wanted = {*rows}
    found: dict[str, dict[RowKey, HumanLabel]] = {}
    name = review_criterion(manifest, criterion)
    for label in current_labels(store, manifest.run_id, name):
        if label.row in wanted and not label.settled:
            found.setdefault(label.labeller, {})[label.row] = label
    return found


def row_labels(store: RunStore, run_id: str) -> dict[RowKey, RowLabel]:
    """Return what people say about each labelled output of a run, by any criterion."""
    manifest = store.run(run_id).manifest
    categories = categories_of(store, run_title(manifest))
    found: dict[RowKey, list[HumanLabel]] = {}
    for name in dict.fromkeys(["", *(info.name for info in manifest.criteria)]):
        for label in current_labels(store, manifest.run_id, name):
            if label.passed is not None or label.note:
                found.setdefault(label.row, []).append(label)
    labels = {}
    for row, given in found.items():
        decisions = [label for label in given if label.settled]
        verdicts = {label.passed for label in decisions or given if label.passed is not None}
        names = (categories.names.get(categories.resolve(label.category), "") for label in given)
        labels[row] = RowLabel(
            "" if not verdicts else "mixed" if len(verdicts) > 1 else _WORDS[True in verdicts],
            tuple(dict.fromkeys(label.labeller for label in given)),
            tuple(label.note for label in given if label.note),
            tuple(dict.fromkeys(filter(None, names))),
        )
    return labels
