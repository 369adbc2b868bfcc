"""The corrected pass rates of a run. Without calibrations, they cost one query."""

from __future__ import annotations

from ..model.corrections import Correction
from .rows import RunManifest
from .schema import Storage


def corrections_of(store: Storage, manifest: RunManifest) -> tuple[Correction, ...]:
    """Return the corrected pass rate of each criterion of a run that was ever calibrated."""
    if not has_calibrations(store):
        return ()
    from .calibrations import corrections_by_labels  # here: few stores need these statistics

    return tuple(corrections_by_labels(store, manifest))


def has_calibrations(store: Storage) -> bool:
    """Return whether a judge was ever calibrated in this store."""
    return bool(store._database.read("SELECT 1 FROM calibrations LIMIT 1"))
