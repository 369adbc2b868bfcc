"""`audit_suite`: is the eval itself sound?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...internal.event_loop import run_sync
from .._types import Dataset, EvalConfig
from ..runs.figures import run_figures
from ..store.run_record import scope_of
from .audit_report import (
    AuditedSample,
    AuditReport,
    Finding,
    HeadlineRange,
    Verdict,
    invalid_verdicts,
)
from .ledger import MIN_RUNS, read_ledger, runs_of_suite
from .probes import PROBES, CriterionSpread, ProbeRun, applicable_criterion, run_probe
from .texts import text_findings

if TYPE_CHECKING:
    from ..engine.suite import EvalSuite
    from ..store.run_record import RunRecord
    from ..store.run_store import RunStore

_STORED_RUNS = 3  # runs that are read to see whether criteria vary
_PASSES = {
    "empty": "an empty output",
    "echo": "a copy of the input",
    "other": "the expected value of another sample",
    "shuffled": "the expected value with its words shuffled",
}


def audit_suite(
    suite: EvalSuite[Any, Any, Any],
    *,
    samples: Dataset[Any, Any] | None = None,
    judges: bool = False,
    adapter: Any = None,
    store: RunStore | None = None,
    name: str = "",
    min_runs: int = MIN_RUNS,
) -> AuditReport:
    """Audit a suite: its dataset, its evaluators, and what cheap agents score. Its agent is unused.

    LLM judges are asked only with `judges`; `adapter` is theirs, by default that of the suite. The
    runs of the suite in `store`, found by its `name`, show which samples never passed or never
    failed. `samples` replaces the dataset of the suite.

    >>> from weakincentives.evals import EvalSuite, Sample, contains
    >>> wrong = Sample("2", "Capital of Italy?", "Rome")
    >>> leak = Sample("1", "Is Paris the capital of France?", "Paris")
    >>> report = audit_suite(EvalSuite(lambda question: "", [leak, wrong], contains))
    >>> print(report)
    of 2 samples 1 looks invalid: a pass rate can be off by up to 50.0 points
    >>> report.finding("echo").samples[0].id
    '1'
    """
    dataset = suite.dataset if samples is None else samples
    if not len(dataset):
        raise UsageError("expected a dataset with samples to audit, got none")
    name = name or suite.name
    spread = CriterionSpread()
    criterion, left_out = applicable_criterion(suite.evaluator, dataset.samples, judges=judges)
    runs: dict[str, ProbeRun] = {}
    if criterion is not None:
        given = suite.config
        config = EvalConfig(max_concurrent=given.max_concurrent, timeout=given.timeout)
        model = suite.adapter if adapter is None else adapter
        runs = {
            probe: run_sync(run_probe, probe, dataset.samples, criterion, spread, model, config)
            for probe in PROBES
        }
    records = [] if store is None else runs_of_suite(store.runs(), name)
    if store is not None:
        _add_stored_scores(spread, store, records[:_STORED_RUNS])
    findings = (
        *_probe_findings(runs),
        spread.finding(),
        *text_findings(dataset.samples),
        *_history(store, name, records, dataset, min_runs),
    )
    return AuditReport(
        suite=name,
        samples=len(dataset),
        probes=tuple(run.score for run in runs.values()),
        findings=findings,
        left_out=left_out,
        headline=_headline(store, records, invalid_verdicts(findings)),
        runs=len(records),
    )


def _add_stored_scores(
    spread: CriterionSpread, store: RunStore, records: Sequence[RunRecord]
) -> None:
    """Add the values that the criteria had in stored runs."""
    for record in records:
        for row in store.table(record.manifest.run_id):
            if not row.error:
                spread.add(row.scores)


# ── cheap agents ────────────────────────────────────────────────────────────────────────────────


def _probe_findings(runs: Mapping[str, ProbeRun]) -> Iterator[Finding]:
    for name in PROBES:
        run = runs.get(name)
        if run is None or not run.score.scored:
            why = "no evaluator is left" if run is None else "no sample has such an output"
            yield Finding(check=name, level="skipped", message=why)
        elif name == "oracle":
            yield Finding.of(
                name,
                "problem",
                run.failures,
                "the expected value itself fails for {n} of {total} samples",
                f"the expected value itself passes for all of {run.score.scored:,}",
                total=run.score.scored,
                invalid=("failure",),
            )
        else:
            is_wrong = name != "shuffled"
            yield Finding.of(
                name,
                "problem" if is_wrong else "note",
                run.passes,
                f"{_PASSES[name]} passes for {{n}} of {{total}} samples",
                f"{_PASSES[name]} passes for none of {run.score.scored:,}",
                total=run.score.scored,
                invalid=("pass",) if is_wrong else (),
            )
    yield _repeats(runs)


def _repeats(runs: Mapping[str, ProbeRun]) -> Finding:
    asked = sum(run.repeated for run in runs.values())
    if not asked:
        return Finding(check="repeat", level="skipped", message="no output was scored twice")
    unstable: dict[str, AuditedSample] = {}
    for run in runs.values():
        for sample in run.unstable:
            unstable.setdefault(sample.id, sample)
    return Finding.of(
        "repeat",
        "problem",
        [*unstable.values()],
        f"{{n}} {{samples}} got another verdict when the same output was scored again ({asked:,} "
        "outputs were)",
        f"the same output got the same verdict twice, for all of {asked:,}",
        total=asked,
        invalid=("pass", "failure"),
    )


# ── stored runs ─────────────────────────────────────────────────────────────────────────────────


def _history(
    store: RunStore | None,
    name: str,
    records: Sequence[RunRecord],
    dataset: Dataset[Any, Any],
    min_runs: int,
) -> Iterator[Finding]:
    if store is None or len(records) < min_runs:
        message = f"{len(records)} stored runs of {name or 'this suite'}, {min_runs} are needed"
        yield Finding(check="never_passed", level="skipped", message=message)
        yield Finding(check="never_failed", level="skipped", message=message)
        return
    known = {sample.id for sample in dataset}
    ledger = read_ledger(store, name, min_runs=min_runs, runs=records)
    for check, status, verb in (
        ("never_passed", "dead", "passed"),
        ("never_failed", "saturated", "failed"),
    ):
        entries = [entry for entry in ledger.entries if entry.sample in known]
        found = [
            AuditedSample(entry.sample, f"never {verb} in {entry.runs:,} runs")
            for entry in entries
            if status in entry.statuses
        ]
        yield Finding.of(
            check,
            "note",
            found,
            f"{{n}} of {{total}} samples never {verb} in a stored run",
            f"every sample {verb} in a stored run, of {len(records):,}",
            total=len(entries),
        )


def _headline(
    store: RunStore | None,
    records: Sequence[RunRecord],
    invalid: Mapping[str, frozenset[Verdict]],
) -> HeadlineRange | None:
    """Return the range of the pass rate of the latest complete run."""
    latest = next((record for record in records if record.status == "complete"), None)
    if store is None or latest is None or not invalid:
        return None
    scope = scope_of(latest)
    table = store.table(latest.manifest.run_id, scope.keys)
    wrong_passes = wrong_failures = 0
    valid: list[int] = []
    for at in scope.counted(table):
        verdicts = invalid.get(table.samples[at])
        if verdicts is None:
            valid.append(at)
        elif table.passed[at]:
            wrong_passes += "pass" in verdicts
        else:
            wrong_failures += "failure" in verdicts
    found = run_figures(table, scope)
    if not found.total:
        return None
    return HeadlineRange(
        run_id=latest.manifest.run_id,
        rows=found.total,
        rate=found.passed / found.total,
        low=(found.passed - wrong_passes) / found.total,
        high=(found.passed + wrong_failures) / found.total,
        valid=run_figures(table.pick(valid), scope.of_part).rate if valid else None,
    )
