"""A stored run as it is shown: its record, its figures, its errors in groups, and what to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from ...internal.error_details import ErrorDetails
from ..model.corrections import Correction
from ..model.error_groups import ErrorGroup, error_groups
from ..model.explain import type_mismatch
from ..model.quarantine import quarantine_line
from ..model.result import ErrorSource
from ..runs.figures import Figures, histogram, run_figures, slice_figures
from ..runs.table import RunTable
from .find_rows import worst_keys
from .run_record import RunRecord, mark_damaged, not_counted_line, scope_of
from .run_store import RunStore
from .stored_corrections import corrections_of
from .stored_row import RowKey

WORST_ROWS = 5
_MISMATCH_ROWS = 100  # read to find out why none passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run as it is shown; `str(...)` is its verdict line.

    `unreadable` is the number of rows that cannot be read, if that was checked; else of those whose
    columns are damaged. `error_groups` are the errors by type and place. `type_mismatch` is a
    warning if no output can ever be right, because of its type. `corrections` has the pass rates
    that people would give, of the judges that were calibrated by their labels. `histogram` counts
    the scores in each twentieth of 0 to 1. `worst` are keys of rows to look at first.
    """

    record: RunRecord
    figures: Figures
    unreadable: int = 0
    error_groups: tuple[ErrorGroup, ...] = ()
    type_mismatch: str = ""
    corrections: tuple[Correction, ...] = ()
    histogram: tuple[int, ...] = ()
    worst: tuple[RowKey, ...] = ()

    def __str__(self) -> str:
        record = self.record
        decision = record.manifest.decision
        lines = (
            *map(str, self.corrections),
            "" if decision is None else decision.verdict,
            record.note,
            self.unreadable_note,
            not_counted_line(record),
        )
        outside = quarantine_line(self.figures.quarantined, record.manifest.quarantine_expired)
        return " - ".join([str(self.figures), *filter(None, (*lines, record.mixed, outside))])

    @property
    def unreadable_note(self) -> str:
        """The number of rows that could not be read, in words; empty if the note has it."""
        count = self.unreadable
        if not count or self.record.status == "damaged":
            return ""
        return f"{count:,} {'row' if count == 1 else 'rows'} could not be read"


def overview(
    store: RunStore, run_id: str, *, check: bool = False, confidence: float = 0.95
) -> Overview:
    """Return a run as it is shown; its id as `RunStore.run` takes it.

    With `check`, the long values of every row are checked too; without, only the columns that are
    counted, in a fraction of the time.
    """
    record = store.run(run_id)
    manifest, scope = record.manifest, scope_of(record, confidence=confidence)
    table = store.table(manifest.run_id, scope.keys)
    figures = run_figures(table, scope)
    # A store counts in an index, which may be damaged although the rows are not.
    differ = record.status != "running" and len(table) != record.stored
    if differ and store.run(manifest.run_id) != record:  # it has changed meanwhile
        return overview(store, manifest.run_id, check=check, confidence=confidence)
    if record.status != "damaged" and (table.unreadable or differ):
        record = mark_damaged(record, table.unreadable, len(table))
        record = replace(
            record, total=figures.total, passed=figures.passed, errors=figures.error_count
        )
    return Overview(
        record=record,
        figures=figures,
        unreadable=len(store.unreadable(manifest.run_id)) if check else table.unreadable,
        error_groups=_error_groups(store, manifest.run_id, table, scope.counted(table)),
        type_mismatch=_type_mismatch(store, manifest.run_id, figures),
        corrections=corrections_of(store, manifest),
        histogram=tuple(histogram(table, scope)),
        worst=tuple(worst_keys(table, scope, WORST_ROWS)),
    )


def stored_slices(
    store: RunStore, record: RunRecord, key: str, *, confidence: float = 0.95
) -> dict[str, Figures]:
    """Return the figures of each slice of a stored run by a key of the metadata."""
    scope = scope_of(record, confidence=confidence)
    return slice_figures(store.table(record.manifest.run_id, (*scope.keys, key)), scope, key)


@dataclass(frozen=True, slots=True)
class _StoredError:
    """The only part of a stored result that grouping its error needs."""

    sample_id: str
    error: str | None
    error_source: ErrorSource | None = None
    error_details: ErrorDetails | None = None


def _error_groups(
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


def _type_mismatch(store: RunStore, run_id: str, figures: Figures) -> str:
    if figures.passed or figures.errors or not figures.total:
        return ""
    rows = islice(store.rows(run_id), _MISMATCH_ROWS)
    return type_mismatch(row.result for row in rows)
