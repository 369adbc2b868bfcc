"""The corrected pass rates of a run. Without calibrations, they cost one query."""

from __future__ import annotations

from ..model.corrections import Correction
from .manifest import RunManifest
from .run_store import RunStore


def corrections_of(store: RunStore, manifest: RunManifest) -> tuple[Correction, ...]:
    """Return the corrected pass rate of each criterion of a run that was ever calibrated."""
    if not store.people.exist("calibrations"):
        return ()
    from .calibrations import corrections_by_labels  # here: few stores need these statistics

    return tuple(corrections_by_labels(store, manifest))
