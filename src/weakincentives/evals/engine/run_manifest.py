"""The manifest of a run: stored before its first sample, so that the run can be resumed."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from ... import serde
from ...clock import SYSTEM_CLOCK
from ...internal.git import run_git
from ...internal.version import __version__
from .._types import Dataset, EvalConfig
from ..evaluators.criteria import Criterion
from ..model.quarantine import QuarantinedSample, split_by_date
from ..model.redacted_ids import redact_id
from ..model.selection import Selection
from ..model.versions import CriterionInfo, WorkerVersion
from ..store.manifest import RunManifest
from .agents import Agent, identity_of
from .fingerprint import criteria_fingerprint, fingerprint
from .tasks import count_of

_SDKS = ("openai", "anthropic")
_COMMIT = re.compile(r"# branch\.oid ([0-9a-f]{12})")


def new_run_id() -> str:
    """Return a new id. Ids sort by time."""
    return f"{SYSTEM_CLOCK.now():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


def build_manifest(
    run_id: str,
    agent: Agent | None,
    criterion: Criterion | None,
    config: EvalConfig,
    samples: Any,
    *,
    name: str = "",
    suite: str = "",
    model: str | None = None,
    tags: Mapping[str, str] | None = None,
    command: tuple[str, ...] = (),
    quarantine: Sequence[QuarantinedSample] = (),
    adapter: Any = None,
    selection: Selection | None = None,
) -> RunManifest:
    """Return the manifest, without the dataset's digest. Call it off the event loop: it runs git.

    `adapter` is that of judges without their own.
    """
    count = count_of(samples, config)
    version = version_of(agent, criterion, adapter)
    quarantined, expired = split_by_date(quarantine)
    return RunManifest(
        run_id=run_id,
        created_at=SYSTEM_CLOCK.now(),
        suite=suite,
        dataset_name=name or (samples.name if isinstance(samples, Dataset) else ""),
        planned=None if count is None else count * config.epochs,
        agent=version.agent,
        agent_version=version.agent_version,
        agent_parts=version.agent_parts,
        model=model or version.model,
        criteria=version.criteria,
        config=serde.plain(config.stored()),
        tags=dict(tags or {}),
        git_commit=version.git_commit,
        packages=packages(),
        command=command,
        quarantined=tuple(map(redact_id, quarantined)),
        quarantine_expired=tuple(map(redact_id, expired)),
        selection=selection,
    )


def version_of(
    agent: Agent | None, criterion: Criterion | None, adapter: Any = None
) -> WorkerVersion:
    """Return the versions of agent, evaluators and code, as they are now. It runs git.

    `adapter` is that of judges without their own.
    """
    identity = identity_of(agent)
    by, infos = "", tuple[CriterionInfo, ...]()
    if criterion is not None:
        by, infos = criteria_fingerprint(criterion), tuple(criterion_infos(criterion, adapter))
    judges = [[info.name, sorted(info.judge.items())] for info in infos]
    return WorkerVersion(
        agent_version=identity.version,
        criteria_version=fingerprint([by, judges]) if by else "",
        criteria_fingerprint=by,
        agent=getattr(agent, "agent_name", ""),
        agent_parts=identity.parts,
        model=getattr(agent, "agent_model", None),
        criteria=infos,
        git_commit=git_commit(),
    )


def criterion_infos(criterion: Criterion, adapter: Any = None) -> Iterator[CriterionInfo]:
    """Yield name and version of each part of the criterion; `adapter` is that of the run."""
    for part in criterion.parts or (criterion,):
        judge = _judge_parts(part, adapter) if part.adapters else {}
        yield CriterionInfo(name=part.name, version=fingerprint(part), judge=judge)


def _judge_parts(judge: Criterion, adapter: Any) -> dict[str, str]:
    """Return what a judge is made of: its models, and hashes of settings, prompt and scale."""
    from .._judge import Scale  # here: a run without judges does not import them

    models = [adapter if each is None else each for each in judge.adapters]
    leaves = [leaf for leaf in _leaves(judge) if not any(leaf is each for each in judge.adapters)]
    scales = [leaf for leaf in leaves if isinstance(leaf, Scale)]
    return {
        "model": ", ".join(dict.fromkeys(map(_model_name, models))),
        "settings": fingerprint([getattr(each, "settings", None) for each in models]),
        "prompt": fingerprint([leaf for leaf in leaves if not isinstance(leaf, Scale)]),
        "scale": fingerprint(scales),
    }


def _leaves(thing: Any) -> Iterator[Any]:
    """Yield the parts of a criterion's identity; those of its own criteria one by one."""
    if isinstance(thing, Criterion) and thing.identity:
        thing = thing.identity
    if isinstance(thing, tuple | list):
        for item in thing:
            yield from _leaves(item)
    else:
        yield thing


def _model_name(adapter: Any) -> str:
    """Return the name of the model behind an adapter, or of the adapter's class."""
    model = getattr(adapter, "model", None)
    if not isinstance(model, str):
        return type(adapter).__name__ if adapter is not None else ""
    provider = getattr(adapter, "name", None)
    return f"{provider}/{model}" if isinstance(provider, str) and provider else model


def packages() -> dict[str, str]:
    """Return the versions of Python, of this package and of the SDKs that are in use."""
    versions = {"python": platform.python_version()}
    if used := [name for name in _SDKS if name in sys.modules]:
        from importlib import metadata  # here: importing it takes 10 ms

        for name in used:
            with suppress(metadata.PackageNotFoundError):  # such as when run from source
                versions[name] = metadata.version(name)
    versions["weakincentives-evals"] = __version__
    return versions


def git_commit() -> str | None:
    """Return the commit that is checked out here, with `+changes` if files differ from it."""
    # Not `git describe --dirty`, which refreshes the index even if it is told not to.
    command = ("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--untracked-files=no")
    try:
        if not _in_repository(Path.cwd()):  # starting git to learn this takes longer
            return None
        done = run_git(*command, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode or not (found := _COMMIT.match(done.stdout)):
        return None
    changes = any(not line.startswith("# ") for line in done.stdout.splitlines())
    return found[1] + "+changes" * changes


def _in_repository(folder: Path) -> bool:
    """Return whether git may find a repository from this folder."""
    return any((each / ".git").exists() for each in (folder, *folder.parents))
