"""The commit and the versions in a run's manifest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import weakincentives
from weakincentives.evals.engine.manifest import git_commit, packages


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GIT_DIR", raising=False)
    folder = tmp_path / "repository"
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    commit = ["git", *author, "commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(commit, cwd=folder, check=True)
    return folder


def test_the_commit_is_found_from_a_folder_of_the_repository_and_by_git_dir(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inner := repository / "inner").mkdir()
    monkeypatch.chdir(inner)
    commit = git_commit()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))

    assert len(commit or "") == 12
    assert git_commit() == commit


def test_outside_of_a_repository_git_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (git := tmp_path / "git").write_text("#!/bin/sh\necho started\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GIT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    assert git_commit() is None
    (tmp_path / ".git").mkdir()
    assert git_commit() == "started"


def test_the_versions_are_those_of_python_of_this_package_and_of_the_sdks_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openai", sys)
    monkeypatch.delitem(sys.modules, "anthropic", raising=False)

    assert set(found := packages()) == {"python", "weakincentives-evals", "openai"}
    assert found["weakincentives-evals"] == weakincentives.__version__
