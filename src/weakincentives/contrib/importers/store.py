"""Reports of other systems as runs of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...clock import SYSTEM_CLOCK
from ...errors import UsageError, short_repr
from ...evals import CriterionInfo, Dataset, EvalReport, RunManifest, RunStore, StoredRow
from ...evals.engine.manifest import new_run_id, packages
from .detect import detect_format
from .inspect import read_inspect
from .k2 import read_k2_results
from .langsmith import read_langsmith
from .openai_evals import read_openai_evals
from .promptfoo import read_promptfoo
from .pydantic_evals import read_pydantic_evals
from .simple_evals import read_simple_evals
from .verifiers import read_verifiers

FORMATS: dict[str, Callable[[Path | str], EvalReport[Any] | list[EvalReport[Any]]]] = {
    "inspect": read_inspect,
    "k2": read_k2_results,
    "langsmith": read_langsmith,
    "openai-evals": read_openai_evals,
    "promptfoo": read_promptfoo,
    "pydantic-evals": read_pydantic_evals,
    "simple-evals": read_simple_evals,
    "verifiers": read_verifiers,
}
"""The readers of files, by the name of the system that wrote them."""


def read_reports(path: Path | str, format: str | None = None) -> list[EvalReport[Any]]:
    """Return the runs of a file of another system, which is recognised if it is not named."""
    format = format or detect_format(path)
    if format not in FORMATS:
        raise UsageError(f"expected one of {', '.join(FORMATS)}, got {short_repr(format)}")
    read = FORMATS[format](path)
    return read if isinstance(read, list) else [read]


def read_results(path: Path | str, format: str | None = None) -> EvalReport[Any]:
    """Return the run of a file that has one."""
    reports = read_reports(path, format)
    if len(reports) != 1:
        raise UsageError(f"expected a file with one run, got {len(reports)} - use read_reports")
    return reports[0]


def store_report(
    store: RunStore,
    report: EvalReport[Any],
    *,
    agent: str = "",
    model: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Store a report as a complete run, and return its id.

    Without `agent` and `model` they are those that its reader found in the file.
    """
    run_id, found = new_run_id(), agent_and_model(report)
    names = dict.fromkeys(
        score.criterion for result in report.results for score in result.scores if score.criterion
    )
    manifest = RunManifest(
        run_id=run_id,
        created_at=SYSTEM_CLOCK.now(),
        dataset_name=report.dataset_name,
        dataset_digest=_digest(report),
        planned=len(report.results),
        agent=agent or found[0],
        model=model or found[1] or None,
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


def agent_and_model(report: EvalReport[Any]) -> tuple[str, str]:
    """Return the names that the reader of a report found in its file; "" for an unknown one."""
    config = report.config if isinstance(report.config, Mapping) else {}
    return str(config.get("agent") or ""), str(config.get("model") or "")


def _digest(report: EvalReport[Any]) -> str | None:
    """Return the digest of the samples, by which runs on the same ones are recognised."""
    samples = {result.sample_id: result.sample for result in report.results}
    known = [sample for sample in samples.values() if sample is not None]
    return Dataset(known).digest if len(known) == len(samples) else None
