"""The corrected pass rates of a run. Without calibrations, they cost one query."""

from __future__ import annotations

from ..model.corrections import Correction
from .rows import RunManifest
from .schema import Storage


def corrections_of(store: Storage, manifest: RunManifest) -> tuple[Correction, ...]:
    """Return the corrected pass rate of each criterion of a run that was ever calibrated."""
    if not store._database.read("SELECT 1 FROM calibrations LIMIT 1"):
        return ()
    from .calibrations import corrections_by_labels  # here: few stores need these statistics

    return tuple(corrections_by_labels(store, manifest))
