"""Records of runs, as lists show them: status, counts, times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from ..model.versions import mixed_versions_line
from ..runs.scope import Scope
from .manifest import RunManifest

STATUSES = ("complete", "interrupted", "stopped", "cancelled")
"""How a run can end."""
StopReason = Literal["", "rule", "budget", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of a run. The counts are computed from its rows; `RunStore.figures` has the rest.

    `note` says in words why a run ended early, and `stop_reason` by which means: "rule" (its pass
    rate was known well enough), "budget" (of tokens, cost or time) or "error" (`stop_on_error`); ""
    for any other end. `active_seconds` is how long processes ran it, without the time between two
    resumes.

    `not_counted` are the stored rows whose sample or epoch is no longer in the dataset, and
    `not_counted_samples` those of them with epoch 1. `quarantined` is the number of samples in
    quarantine, and `quarantined_rows` that of their rows. `total`, `passed` and `errors` leave out
    all of these. `damaged` are rows that are missing, or fail their checksum and so count as
    errors.

    `agent_versions` has the number of rows by each version of the agent, if the run was resumed
    with a changed one or if workers ran it; then `criteria_versions` has it by each fingerprint of
    the evaluators. Errors of infrastructure that no known version ran are in neither.
    """

    manifest: RunManifest
    status: str
    note: str = ""
    stop_reason: StopReason = ""
    finished_at: datetime | None = None
    active_seconds: float | None = None
    total: int = 0
    passed: int = 0
    errors: int = 0
    not_counted: int = 0
    not_counted_samples: int = 0
    damaged: int = 0
    agent_versions: Mapping[str, int] = field(default_factory=dict, hash=False)
    quarantined: int = 0
    quarantined_rows: int = 0
    criteria_versions: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def mixed(self) -> str:
        """Which versions of agent and evaluators the run mixes, in words; empty if there is one."""
        manifest = self.manifest
        return mixed_versions_line(
            self.agent_versions,
            self.criteria_versions,
            manifest.workers,
            expect=manifest.expect,
            changed=(earlier.changed for earlier in manifest.earlier_agents),
        )

    @property
    def stored(self) -> int:
        """The number of stored rows, those of quarantined samples included."""
        return self.total + self.quarantined_rows


def scope_of(
    record: RunRecord, *, confidence: float = 0.95, cluster_by: str | None = None
) -> Scope:
    """Return which rows of a stored run count, and how its intervals are computed."""
    complete = record.status == "complete"
    return Scope.of(
        record.manifest, complete=complete, confidence=confidence, cluster_by=cluster_by
    )


def mark_damaged(record: RunRecord, damaged: int, written: int) -> RunRecord:
    """Return the record of a run with damaged rows, of `written` rows in all."""
    what = "its rows do not add up to what was written"
    if damaged:
        what = f"{damaged:,} of {written:,} rows cannot be read"
    note = f"the file is damaged: {what} - keep a copy of it, then resume the run"
    return replace(record, status="damaged", note=note, damaged=damaged)


def not_counted_line(record: RunRecord) -> str:
    """Return a line on the stored rows that are not counted; empty if all are."""
    if not (count := record.not_counted):
        return ""
    what = "sample" if count == record.not_counted_samples else "result"
    plural, are = ("", "is") if count == 1 else ("s", "are")
    return f"{count:,} stored {what}{plural} {are} no longer in the dataset and {are} not counted"
