"""Reports of other systems as runs of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError, short_repr
from ...evals import CriterionInfo, EvalReport, RunManifest, RunStore, StoredRow
from ...evals.engine.manifest import new_run_id, packages
from .k2 import read_k2_results
from .simple_evals import read_simple_evals
from .verifiers import read_verifiers

__all__ = ["FORMATS", "read_results", "store_report"]

FORMATS: dict[str, Callable[[Path | str], EvalReport[Any]]] = {
    "k2": read_k2_results,
    "simple-evals": read_simple_evals,
    "verifiers": read_verifiers,
}
"""The readers of files, by the name of the system that wrote them."""


def read_results(path: Path | str, format: str) -> EvalReport[Any]:
    """Return the results that another system wrote."""
    if format not in FORMATS:
        raise UsageError(f"expected one of {', '.join(FORMATS)}, got {short_repr(format)}")
    return FORMATS[format](path)


def store_report(
    store: RunStore,
    report: EvalReport[Any],
    *,
    agent: str = "",
    model: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Store a report as a complete run, and return its id."""
    run_id = new_run_id()
    names = dict.fromkeys(
        score.criterion for result in report.results for score in result.scores if score.criterion
    )
    manifest = RunManifest(
        run_id=run_id,
        created_at=SYSTEM_CLOCK.now(),
        dataset_name=report.dataset_name,
        planned=len(report.results),
        agent=agent,
        model=model,
        criteria=tuple(CriterionInfo(name=name, version="") for name in names),
        tags=dict(tags or {}),
        packages=packages(),
    )
    positions: dict[str, int] = {}
    store.begin(manifest)
    for result in report.results:
        position = positions.setdefault(result.sample_id, len(positions))
        store.put(StoredRow(result=replace(result, run_id=run_id), position=position))
    store.finish(run_id, "complete")
    return run_id
