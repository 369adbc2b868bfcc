"""Parts of a run that are read without the rest of it: passes by sample, errors in groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...internal.error_details import ErrorDetails
from ..model.error_groups import ErrorGroup, error_groups
from ..model.result import ErrorSource
from ..runs.table import RunTable
from .run_store import RunStore


def passes_by_sample(store: RunStore, run_id: str) -> dict[str, tuple[int, int, str]]:
    """Return, for each sample of a run, its passes, its attempts, and the start of its digest.

    Errors of infrastructure or of an evaluator say nothing about the agent, and do not count.
    """
    table = store.table(run_id)
    found: dict[str, tuple[int, int, str]] = {}
    for at, sample in enumerate(table.samples):
        if table.error_source(at) not in ("infrastructure", "evaluator"):
            passed, total, digest = found.get(sample, (0, 0, ""))
            digest = max(digest, table.digest(at))
            found[sample] = passed + table.passed[at], total + 1, digest
    return found


@dataclass(frozen=True, slots=True)
class _StoredError:
    """The only part of a stored result that grouping its error needs."""

    sample_id: str
    error: str | None
    error_source: ErrorSource | None = None
    error_details: ErrorDetails | None = None


def stored_error_groups(
    store: RunStore, run_id: str, table: RunTable, places: Iterable[int]
) -> tuple[ErrorGroup, ...]:
    """Return the errors of a stored run in groups: those of the rows at these places."""
    sources = {table.key(at): table.error_source(at) for at in places if table.errors[at]}

    def errors() -> Iterator[_StoredError]:
        for key, stored in store.parts(run_id, _StoredError, "errors"):
            if key not in sources:
                continue
            if stored is None:
                yield _StoredError(key[1], "this row could not be read", sources[key])
            else:
                yield replace(stored, sample_id=key[1])

    return error_groups(errors()) if sources else ()
