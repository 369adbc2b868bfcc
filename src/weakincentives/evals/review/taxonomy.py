"""Failure categories with their counts, and how many of them are still to be found.

A note says what went wrong first in a trajectory. Notes are sorted into categories afterwards. The
curve has, for each note in the order in which they were written, how many categories there were by
then. It flattens when new notes bring nothing new. How probable it is that the next note brings a
new category is estimated by the share of categories that have one note so far (I. J. Good,
Biometrika 40, 1953).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..stats.intervals import Interval, rate_interval
from ..store.categories import categories_of
from ..store.human_labels import HumanLabel
from ..store.run_store import RunStore
from ..store.run_titles import run_title
from .labelling import current_labels
from .queue import review_criterion


@dataclass(frozen=True, slots=True)
class CategoryCount:
    """A category, its notes in this run, and their share of all notes that have a category."""

    category: str
    name: str
    count: int
    share: Interval
    labels: tuple[HumanLabel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taxonomy:
    """The categories of a run's suite, the largest first, and the notes that have none yet.

    Notes on outputs that pass are not failures.

    `curve[i]` is the number of categories after `i + 1` notes. `new_category` is the estimated
    probability that the next note brings a new one; None before the first note.
    """

    suite: str
    run_id: str
    criterion: str
    categories: tuple[CategoryCount, ...]
    unsorted: tuple[HumanLabel, ...]
    curve: tuple[int, ...]
    new_category: float | None


def taxonomy_of(store: RunStore, run_id: str, *, criterion: str | None = None) -> Taxonomy:
    """Return the failure categories of a run with their notes."""
    manifest = store.run(run_id).manifest
    name = review_criterion(manifest, criterion)
    known = categories_of(store, run_title(manifest))
    sorted_notes: dict[str, list[HumanLabel]] = {category: [] for category in known.names}
    unsorted = []
    curve: list[int] = []
    seen: Counter[str] = Counter()
    labels = current_labels(store, manifest.run_id, name)
    for label in sorted(labels, key=lambda label: label.created_at):
        if category := known.resolve(label.category):
            sorted_notes[category].append(label)
            seen[category] += 1
            curve.append(len(seen))
        elif label.note and label.passed is not True:
            unsorted.append(label)
    total = seen.total()
    counts = [
        CategoryCount(
            category,
            known.names[category],
            len(notes),
            rate_interval(len(notes), total),
            tuple(notes),
        )
        for category, notes in sorted_notes.items()
    ]
    counts.sort(key=lambda each: -each.count)
    singles = sum(count == 1 for count in seen.values())
    return Taxonomy(
        suite=known.suite,
        run_id=manifest.run_id,
        criterion=name,
        categories=tuple(counts),
        unsorted=tuple(unsorted),
        curve=tuple(curve),
        new_category=singles / total if total else None,
    )
