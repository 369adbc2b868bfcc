"""The ledger: the history of each sample over all stored runs of a suite.

Rules of this file:
1. A sample is flaky if the same version of the agent both passed and failed it.
2. It is newly broken if the latest runs fail it, and the version of the agent before them always
   passed it. Only runs of the agent, model and experiment of the latest run say that.
3. It is dead if no run ever passed it, and saturated if no run ever failed it, in at least
   `min_runs` runs.
4. An error of the infrastructure or of an evaluator is not an outcome. An error of the agent is a
   failure.
5. A sample whose content changed is another one: its earlier history does not count.
6. Memory follows the number of samples, not that of runs: rows are read in pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ...errors import UsageError
from ...experiment import BASELINE
from ..comparison.comparability import describe_differences
from ..runs.table import TableRow
from ..store.manifest import RunManifest
from ..store.run_record import RunRecord
from ..store.run_store import RunStore
from ..store.run_titles import run_title

LedgerStatus = Literal["flaky", "broken", "dead", "saturated"]
LEDGER_STATUSES: tuple[LedgerStatus, ...] = ("flaky", "broken", "dead", "saturated")
MIN_RUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The history of one sample: its runs, and how often it passed, failed or was an error.

    `flaky_versions` are versions of the agent that both passed and failed it. `broken_since` is the
    run with which it began to fail, after `passed_before`; both are "" if it is not newly broken.
    """

    sample: str
    statuses: tuple[LedgerStatus, ...]
    runs: int
    passed: int
    failed: int
    errors: int
    flaky_versions: tuple[str, ...] = ()
    broken_since: str = ""
    passed_before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The samples of a suite over its stored runs, in the order in which they first appear.

    `runs` are the ids of the runs, oldest first. `differences` says in one sentence what differs
    between them apart from the agent; empty if nothing does. A sample can have several statuses, or
    none: it passed in some versions of the agent and failed in others, or has too few runs.
    """

    suite: str
    runs: tuple[str, ...]
    entries: tuple[LedgerEntry, ...]
    min_runs: int = MIN_RUNS
    differences: str = ""
    quarantined: tuple[str, ...] = ()

    def with_status(self, *statuses: LedgerStatus) -> tuple[LedgerEntry, ...]:
        """Return the entries that have one of these statuses."""
        return tuple(entry for entry in self.entries if set(statuses) & set(entry.statuses))

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of samples with each status."""
        return {status: len(self.with_status(status)) for status in LEDGER_STATUSES}


def read_ledger(
    store: RunStore,
    suite: str,
    *,
    min_runs: int = MIN_RUNS,
    runs: Sequence[RunRecord] | None = None,
) -> Ledger:
    """Read the ledger of a suite, or of the dataset of that name, from the stored runs.

    `runs` are the records to read, by default all of that name. Runs that were scored again, and
    runs that are damaged, are left out.
    """
    if min_runs < 1:
        raise UsageError(f"expected `min_runs` of 1 or more, got {min_runs}")
    listed = store.runs() if runs is None else runs
    records = runs_of_suite(listed, suite)
    if not records:
        known = dict.fromkeys(run_title(record.manifest) for record in listed)
        names = ", ".join([*known][:8]) or "none"
        raise UsageError(
            f"expected the name of a suite or a dataset with runs, got {suite!r} - there are: "
            f"{names} ({store.location})"
        )
    records.sort(key=lambda record: record.manifest.created_at)
    latest = records[-1].manifest
    histories: dict[str, _History] = {}
    for number, record in enumerate(records):
        in_line = _line(record.manifest) == _line(latest)
        agent = (record.manifest.agent, record.manifest.model or "")
        for row in store.table(record.manifest.run_id):
            history = histories.get(row.sample)
            if history is None or (row.digest and row.digest != history.digest):
                history = histories[row.sample] = _History(row.digest)
            version = row.agent_version or record.manifest.agent_version or f"run {number}"
            history.add(row, number, (*agent, version), in_line=in_line)
    ids = tuple(record.manifest.run_id for record in records)
    entries = tuple(_entry(sample, history, ids, min_runs) for sample, history in histories.items())
    return Ledger(
        suite=suite,
        runs=ids,
        entries=entries,
        min_runs=min_runs,
        differences=describe_differences(
            [replace(each.manifest, quarantined=()) for each in records]
        ),
        quarantined=latest.quarantined,
    )


def runs_of_suite(records: Iterable[RunRecord], suite: str) -> list[RunRecord]:
    """Return the runs of a suite or dataset that can be read, without those scored again."""
    return [
        record
        for record in records
        if suite in (run_title(record.manifest), record.manifest.dataset_name)
        and record.manifest.parent is None
        and record.status != "damaged"
        and record.stored
    ]


def _line(manifest: RunManifest) -> tuple[str, ...]:
    experiment = manifest.config.get("experiment_name", BASELINE.name)
    return manifest.agent, manifest.model or "", str(experiment)


_PASSED, _FAILED = 1, 2


@dataclass(slots=True)
class _History:
    """The history of a sample so far. `versions` has the outcomes of each version of the agent."""

    digest: str
    runs: int = 0
    passed: int = 0
    failed: int = 0
    errors: int = 0
    last_run: int = -1
    versions: dict[tuple[str, str, str], int] = field(default_factory=dict)
    # In runs of the latest agent: the run in progress, and the failing runs at the end.
    run: int = -1
    run_outcomes: int = 0
    run_version: tuple[str, str, str] = ("", "", "")
    good_run: int = -1  # the last one that passed
    good_version: tuple[str, str, str] | None = None
    bad_run: int = -1  # the first one that failed after it
    bad_version: tuple[str, str, str] = ("", "", "")

    def add(self, row: TableRow, run: int, version: tuple[str, str, str], *, in_line: bool) -> None:
        if row.error and row.error_source != "agent":
            self.errors += 1
            return
        self.errors += row.error
        outcome = _PASSED if row.passed else _FAILED
        self.passed += row.passed
        self.failed += not row.passed
        self.runs += run != self.last_run
        self.last_run = run
        self.versions[version] = self.versions.get(version, 0) | outcome
        if not in_line:
            return
        if run != self.run:
            self.end_run()
            self.run, self.run_outcomes, self.run_version = run, 0, version
        self.run_outcomes |= outcome

    def end_run(self) -> None:
        """Note whether the run passed; one with both outcomes did not fail."""
        if self.run < 0:
            return
        if self.run_outcomes & _PASSED:
            self.good_run, self.good_version, self.bad_run = self.run, self.run_version, -1
        elif self.bad_run < 0:
            self.bad_run, self.bad_version = self.run, self.run_version

    @property
    def is_broken(self) -> bool:
        """Whether the last runs fail, and the version before them always passed."""
        return (
            self.bad_run >= 0
            and self.good_version is not None
            and self.good_version != self.bad_version
            and self.versions[self.good_version] == _PASSED
        )


def _entry(sample: str, history: _History, runs: Sequence[str], min_runs: int) -> LedgerEntry:
    history.end_run()
    both = _PASSED | _FAILED
    flaky = tuple(key[-1] for key, outcomes in history.versions.items() if outcomes == both)
    broken, known = history.is_broken, history.runs >= min_runs
    statuses: dict[LedgerStatus, bool] = {
        "flaky": bool(flaky),
        "broken": broken,
        "dead": known and not history.passed,
        "saturated": known and not history.failed,
    }
    return LedgerEntry(
        sample=sample,
        statuses=tuple(status for status, applies in statuses.items() if applies),
        runs=history.runs,
        passed=history.passed,
        failed=history.failed,
        errors=history.errors,
        flaky_versions=flaky,
        broken_since=runs[history.bad_run] if broken else "",
        passed_before=runs[history.good_run] if broken else "",
    )
