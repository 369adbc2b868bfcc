"""The description of a run, as it is stored before its first sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from ...errors import UsageError
from ..model.decision import Decision
from ..model.selection import Selection
from ..model.versions import CriterionInfo, WorkerVersion, add_version, judge_models

_MAX_VERSIONS = 50  # of workers, in the manifest of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAgent:
    """The version of an agent that ran a part of a run, and what has changed since then."""

    version: str
    changed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """The description of a run, written before its first sample.

    `dataset_digest` is None if the samples are a stream, and as long as it is unknown: it is
    computed while the samples run, and added when the run ends. `planned` is None if the number of
    rows is unknown. `parent` is the run whose trajectories are scored again. Secrets are never
    stored: a command that contained one cannot be resumed as it is. `suite` is the name of the
    suite, empty if it has none.

    `agent_version` is a hash of the agent, `agent_parts` has one for each part of its code and its
    settings. `earlier_agents` are those of a run that was resumed with a changed agent (`force`).

    `quarantined` are the ids of samples that did not count when it began, `quarantine_expired`
    those that counted again because their quarantine was over. `selection` has the samples, if they
    were drawn by strata of earlier pass rates.

    `decision` is added when a rule stops the run, or has compared it with another one.

    `kind` is "run" if one process runs the samples, and "submission" if workers on `queue` do.
    Then `workers` are the versions of those whose results arrived; agent, evaluators and commit are
    those of the first. `expect` is the version that workers must have, if the run is pinned.
    """

    run_id: str
    created_at: datetime
    dataset_name: str = ""
    dataset_digest: str | None = None
    planned: int | None = None
    agent: str = ""
    agent_version: str = ""
    model: str | None = None
    criteria: tuple[CriterionInfo, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    git_commit: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict, hash=False)
    command: tuple[str, ...] = ()
    parent: str | None = None
    kind: Literal["run", "submission"] = "run"
    queue: str = ""
    suite: str = ""
    agent_parts: Mapping[str, str] = field(default_factory=dict, hash=False)
    earlier_agents: tuple[EarlierAgent, ...] = ()
    quarantined: tuple[str, ...] = ()
    quarantine_expired: tuple[str, ...] = ()
    decision: Decision | None = None
    selection: Selection | None = None
    workers: tuple[WorkerVersion, ...] = ()
    expect: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.run_id, str) or not self.run_id:
            raise UsageError(f"expected a non-empty `RunManifest.run_id`, got {self.run_id!r}")
        if self.created_at.tzinfo is None:
            raise UsageError(
                "expected a time zone in `RunManifest.created_at`, got "
                f"{self.created_at} - use datetime.now(UTC)"
            )

    @property
    def judge_models(self) -> Mapping[str, str]:
        """The model that each judge asked, by the name of its criterion."""
        return judge_models(self.criteria)


def with_workers(manifest: RunManifest, versions: Iterable[WorkerVersion]) -> RunManifest:
    """Return the manifest of a submitted run with further versions of its workers.

    If agent and evaluators were unknown so far, they are those of the first version.
    """
    workers = manifest.workers
    for version in versions:
        workers = add_version(workers, version)
    manifest = replace(manifest, workers=workers[:_MAX_VERSIONS])
    first = next((each for each in workers if each.criteria), None)
    if first is None or manifest.criteria:
        return manifest
    return described_by(manifest, first)


def described_by(manifest: RunManifest, version: WorkerVersion) -> RunManifest:
    """Return the manifest of a submitted run with what its workers run."""
    return replace(
        manifest,
        agent=version.agent,
        agent_version=version.agent_version,
        agent_parts=version.agent_parts,
        model=version.model,
        criteria=version.criteria,
        git_commit=version.git_commit,
    )
