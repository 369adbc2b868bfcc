"""Run git so that it acts on the repository of the working directory, and changes nothing in it."""

from __future__ import annotations

import os
import subprocess

# As `git rev-parse --local-env-vars` prints them. Inside a hook git sets some of them, for the
# repository and the index of the commit that is being made.
LOCAL_VARIABLES = frozenset((
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_COUNT"),
    *("GIT_CONFIG_PARAMETERS", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE"),
    *("GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NO_REPLACE_OBJECTS"),
    *("GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE"),
    "GIT_WORK_TREE",
))  # fmt: skip
_OPTIONS = (
    "--no-optional-locks",  # do not refresh the index
    *("-c", "core.fsmonitor="),
    *("-c", f"core.hooksPath={os.devnull}"),  # hooks are for the user's own commands
)


def run_git(*words: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a git command, in English, and return what it printed."""
    return subprocess.run(
        ["git", *_OPTIONS, *words],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=timeout,
        check=False,
        env={**local_environment(), "LC_ALL": "C"},
    )


def local_environment() -> dict[str, str]:
    """Return the environment without what names another repository."""
    return {name: value for name, value in os.environ.items() if name not in LOCAL_VARIABLES}
