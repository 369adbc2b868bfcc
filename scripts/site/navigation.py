"""Put every page into a section of the site, as `nav` of mkdocs.yml says.

An entry is a page, or a pattern such as `cookbook/*.md` for all pages that match and are named
nowhere else, in the order of their titles. A pattern may match nothing; a page must exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from typing import Any

Entry = Any  # a page, a pattern, or a dict from a title to one or to a list of entries


def expand(nav: list[Entry], pages: Iterable[str], title_of: Callable[[str], str]) -> list[Entry]:
    """Return the navigation without patterns; raise if a page is missing, or has no place."""
    pages = set(pages)
    named = {page for page in _strings(nav) if "*" not in page}
    if named - pages:
        raise SystemExit(f"mkdocs.yml names pages that do not exist: {sorted(named - pages)}")
    free = pages - named

    def expanded(entries: list[Entry]) -> list[Entry]:
        entries_without_patterns: list[Entry] = []
        for entry in entries:
            if isinstance(entry, dict):
                [(title, inner)] = entry.items()
                entries_without_patterns.append(
                    {title: expanded(inner) if isinstance(inner, list) else inner}
                )
            elif "*" in entry:
                matching = sorted((p for p in free if fnmatch(p, entry)), key=title_of)
                free.difference_update(matching)
                entries_without_patterns += matching
            else:
                entries_without_patterns.append(entry)
        return [
            entry
            for entry in entries_without_patterns
            if entry not in [{title: []} for title in _titles(entries_without_patterns)]
        ]

    result = expanded(nav)
    if free:
        raise SystemExit(f"expected each page in a section of `nav` in mkdocs.yml: {sorted(free)}")
    return result


def _titles(entries: Iterable[Entry]) -> list[str]:
    return [title for entry in entries if isinstance(entry, dict) for title in entry]


def _strings(entries: Any) -> Iterable[str]:
    """Yield each page and pattern."""
    if isinstance(entries, str):
        yield entries
    for inner in entries.values() if isinstance(entries, dict) else entries:
        if isinstance(entries, dict | list):
            yield from _strings(inner)
