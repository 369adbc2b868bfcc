"""Reports of other systems as runs of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...clock import SYSTEM_CLOCK
from ...errors import SerializationError, UsageError, short_repr
from ...evals import Dataset, EvalReport, RunStore
from ...evals.engine.run_manifest import new_run_id, packages
from ...evals.store import CriterionInfo, RunManifest, StoredRow
from .detect import system_of
from .files import MAX_BYTES, ResultFile
from .inspect import read_inspect
from .k2 import read_k2_results
from .langsmith import read_langsmith
from .openai_evals import read_openai_evals
from .promptfoo import read_promptfoo
from .pydantic_evals import read_pydantic_evals
from .simple_evals import read_simple_evals
from .verifiers import read_verifiers

FORMATS: dict[str, Callable[[Path | str | ResultFile], Any]] = {
    "inspect": read_inspect,
    "k2": read_k2_results,
    "langsmith": read_langsmith,
    "openai-evals": read_openai_evals,
    "promptfoo": read_promptfoo,
    "pydantic-evals": read_pydantic_evals,
    "simple-evals": read_simple_evals,
    "verifiers": read_verifiers,
}
"""The readers of files, by the name of the system that wrote them: each returns its reports."""


def read_reports(
    path: Path | str, format: str | None = None, *, max_bytes: int = MAX_BYTES
) -> list[EvalReport[Any]]:
    """Return the runs of a file of another system, which is recognised if it is not named.

    A file that has more than `max_bytes`, decompressed, is refused; so is an archive with a member
    that has more than a quarter of that.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(f"expected one of {', '.join(FORMATS)}, got {short_repr(format)}")
    with ResultFile(path, max_bytes) as file:
        system = format or system_of(file)
        read = FORMATS[system](file)
    return [_with_agent(each, system) for each in (read if isinstance(read, list) else [read])]


def _with_agent(report: EvalReport[Any], system: str) -> EvalReport[Any]:
    """Return a report whose agent is that of the file, or the system that wrote it."""
    agent, model = agent_and_model(report)
    return replace(report, config={"agent": agent or system, "model": model})


def read_results(
    path: Path | str, format: str | None = None, *, max_bytes: int = MAX_BYTES
) -> EvalReport[Any]:
    """Return the run of a file that has one."""
    reports = read_reports(path, format, max_bytes=max_bytes)
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
    """Store a report as a run, and return its id.

    Without `agent` and `model` they are those that its reader found in the file. The run is
    "complete", unless the report stopped early or misses results. Two results of one sample and
    epoch are refused.
    """
    return store_reports(store, [report], agent=agent, model=model, tags=tags)[0]


def store_reports(
    store: RunStore,
    reports: Iterable[EvalReport[Any]],
    *,
    agent: str = "",
    model: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> list[str]:
    """Store reports as runs, all of them or none, and return their ids: see `store_report`."""
    run_ids: list[str] = []

    def runs() -> Iterator[tuple[RunManifest, Iterator[StoredRow], str]]:
        for report in reports:
            found = agent_and_model(report)
            manifest = _manifest(report, agent or found[0], model or found[1] or None, tags)
            run_ids.append(manifest.run_id)
            missing = "results are missing" if report.missing else ""
            yield manifest, _rows(report), report.stopped or missing

    store.add(runs())
    return run_ids


def _manifest(
    report: EvalReport[Any], agent: str, model: str | None, tags: Mapping[str, str] | None
) -> RunManifest:
    names = dict.fromkeys(
        score.criterion for result in report.results for score in result.scores if score.criterion
    )
    return RunManifest(
        run_id=new_run_id(),
        created_at=SYSTEM_CLOCK.now(),
        dataset_name=report.dataset_name,
        dataset_digest=_digest(report),
        planned=len(report.results) + len(report.missing),
        agent=agent,
        model=model,
        criteria=tuple(CriterionInfo(name=name, version="") for name in names),
        tags=dict(tags or {}),
        packages=packages(),
    )


def _rows(report: EvalReport[Any]) -> Iterator[StoredRow]:
    positions: dict[str, int] = {}
    for result in report.results:
        position = positions.setdefault(result.sample_id, len(positions))
        yield StoredRow(result=result, position=position)


def agent_and_model(report: EvalReport[Any]) -> tuple[str, str]:
    """Return the names that the reader of a report found in its file; "" for an unknown one."""
    config = report.config if isinstance(report.config, Mapping) else {}
    return str(config.get("agent") or ""), str(config.get("model") or "")


def _digest(report: EvalReport[Any]) -> str | None:
    """Return the digest of the samples, by which runs on the same ones are recognised.

    None if it is unknown.
    """
    samples = {result.sample_id: result.sample for result in report.results}
    known = [sample for sample in samples.values() if sample is not None]
    if len(known) < len(samples):
        return None
    try:
        return Dataset(known).digest
    except (SerializationError, UsageError):  # values that other systems write, such as NaN
        return None
