"""Failure categories: what people sort their notes into, for each suite or dataset.

Rows are only ever added: a category is created, renamed, or merged into another one. A label has
the id of its category, so that a new name or a merge changes no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import uuid4

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError, short_repr
from ...internal.checks import short_name
from .run_store import RunStore

MAX_NAME_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryChange:
    """One change of a category: its new name, or the category that it was merged into."""

    suite: str
    category: str
    kind: Literal["create", "rename", "merge"]
    created_at: datetime = field(default_factory=SYSTEM_CLOCK.now)
    by: str = ""
    name: str = ""
    into: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """The categories of a suite: names by id, in the order in which they were created.

    `merged` has the id of the category that another one was merged into.
    """

    suite: str
    names: Mapping[str, str]
    merged: Mapping[str, str]

    def resolve(self, category: str | None) -> str:
        """Return the id of a category today; "" if there is none, or it is unknown."""
        category = category or ""
        while category in self.merged:
            category = self.merged[category]
        return category if category in self.names else ""

    def find(self, name: str) -> str:
        """Return the id of the category with this name or id; raise a `UsageError` without one."""
        wanted = name.strip()
        if resolved := self.resolve(wanted):
            return resolved
        for category, known in self.names.items():
            if known.casefold() == wanted.casefold():
                return category
        listed = ", ".join(map(repr, self.names.values())) or "none yet"
        raise UsageError(
            f"expected a category of {self.suite}, got {short_repr(name)} - there are: {listed}"
        )


def categories_of(store: RunStore, suite: str) -> Categories:
    """Return the categories of a suite or dataset as they are now."""
    changes = store.people.read("failure_categories", CategoryChange, suite=suite)
    return folded_categories(suite, changes)


def folded_categories(suite: str, changes: Iterable[CategoryChange]) -> Categories:
    """Return the categories as all changes together leave them."""
    names: dict[str, str] = {}
    merged: dict[str, str] = {}
    for change in changes:
        if change.kind == "merge":
            # Two people may merge the same categories at the same time, in both directions.
            target = change.into
            while target in merged:
                target = merged[target]
            if change.category in names and target in names and target != change.category:
                merged[change.category] = target
                del names[change.category]
        elif change.kind == "create" and change.category not in merged:
            names.setdefault(change.category, change.name)
        elif change.category in names:
            names[change.category] = change.name
    return Categories(suite=suite, names=names, merged=merged)


def create_category(store: RunStore, suite: str, name: str, *, by: str = "") -> str:
    """Create a category and return its id; that of the same name, if there is one."""
    name = short_name(name, MAX_NAME_CHARS, "a category")
    known = categories_of(store, suite)
    for category, other in known.names.items():
        if other.casefold() == name.casefold():
            return category
    category = f"cat-{uuid4().hex[:12]}"
    _add(store, CategoryChange(suite=suite, category=category, kind="create", by=by, name=name))
    return category


def rename_category(store: RunStore, suite: str, category: str, name: str, *, by: str = "") -> str:
    """Give a category (its id or name) another name, and return its id.

    A name that another category has merges the two.
    """
    name = short_name(name, MAX_NAME_CHARS, "a category")
    known = categories_of(store, suite)
    found = known.find(category)
    for other, taken in known.names.items():
        if other != found and taken.casefold() == name.casefold():
            return merge_categories(store, suite, found, other, by=by)
    _add(store, CategoryChange(suite=suite, category=found, kind="rename", by=by, name=name))
    return found


def merge_categories(store: RunStore, suite: str, category: str, into: str, *, by: str = "") -> str:
    """Merge a category into another one (ids or names), and return the id of what remains."""
    known = categories_of(store, suite)
    found, target = known.find(category), known.find(into)
    if found == target:
        raise UsageError(f"expected two categories to merge, got {known.names[found]!r} twice")
    _add(store, CategoryChange(suite=suite, category=found, kind="merge", by=by, into=target))
    return target


def _add(store: RunStore, change: CategoryChange) -> None:
    store.people.add("failure_categories", [change])
