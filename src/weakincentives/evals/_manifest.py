"""What a run is: written down before its first sample, so that it can be understood and resumed."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any
from uuid import uuid4

from .. import serde
from ..clock import SYSTEM_CLOCK
from ._agents import Agent
from ._config import EvalConfig
from ._criterion import Criterion
from ._fingerprint import fingerprint
from ._store import CriterionInfo, RunManifest
from ._tasks import count_of
from ._types import Dataset

__all__ = ["described_run", "git_commit", "infos", "new_run_id", "packages"]

_WATCHED = ("openai", "anthropic", "weakincentives-evals")


def new_run_id() -> str:
    """Ids sort by time, so that a list of them reads as a history."""
    return f"{SYSTEM_CLOCK.now():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


def described_run(
    run_id: str,
    agent: Agent,
    criterion: Criterion,
    config: EvalConfig,
    samples: Any,
    *,
    name: str = "",
    model: str | None = None,
    tags: Mapping[str, str] | None = None,
    command: tuple[str, ...] = (),
) -> RunManifest:
    """The manifest. It reads the git repository, so it is made off the event loop."""
    whole = isinstance(samples, Dataset)
    count = count_of(samples, config)
    return RunManifest(
        run_id=run_id,
        created_at=SYSTEM_CLOCK.now(),
        dataset_name=name or (samples.name if whole else ""),
        dataset_digest=samples.digest if whole else None,
        planned=None if count is None else count * config.epochs,
        agent=getattr(agent, "agent_name", ""),
        agent_version=getattr(agent, "agent_version", ""),
        model=model or getattr(agent, "agent_model", None),
        criteria=tuple(infos(criterion)),
        config=serde.plain(config.stored()),
        tags=dict(tags or {}),
        git_commit=git_commit(),
        packages=packages(),
        command=command,
    )


def infos(criterion: Criterion) -> Iterator[CriterionInfo]:
    """Name and version of each criterion that it is made of."""
    for part in criterion.parts or (criterion,):
        yield CriterionInfo(name=part.name, version=fingerprint(part))


def packages() -> dict[str, str]:
    """The versions that may matter: Python's, ours, and those of the SDKs that are in use."""
    found = {"python": platform.python_version()}
    for name in _WATCHED:
        if name in sys.modules or name == "weakincentives-evals":
            with suppress(metadata.PackageNotFoundError):  # run from its source, say
                found[name] = metadata.version(name)
    return found


def git_commit() -> str | None:
    """The commit that is checked out here, with `+changes` where files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+changes", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
