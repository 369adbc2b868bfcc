"""The commit and the versions in a run's manifest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weakincentives
from weakincentives.evals.engine.run_manifest import git_commit, packages
from weakincentives.internal.git import LOCAL_VARIABLES


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in LOCAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b.c")
    return new_repository(tmp_path / "repository", "first")


def new_repository(folder: Path, text: str) -> Path:
    git("init", "-q", str(folder))
    (folder / "file").write_text(text)
    git("add", "-A", folder=folder)
    git("commit", "-q", "-m", text, folder=folder)
    return folder


def git(*words: str, folder: Path | None = None) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write_hook(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_commit_is_found_from_a_folder_of_the_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inner := repository / "inner").mkdir()
    monkeypatch.chdir(inner)

    assert git_commit() == git("rev-parse", "HEAD")[:12]
    (repository / "file").write_text("other")
    assert git_commit() == git("rev-parse", "HEAD")[:12] + "+changes"


def test_a_repository_without_a_commit_has_none(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "-q", str(empty := tmp_path / "empty"))
    monkeypatch.chdir(empty)

    assert git_commit() is None


def test_every_variable_that_names_another_repository_is_known() -> None:
    assert set(git("rev-parse", "--local-env-vars").split()) <= LOCAL_VARIABLES


def test_in_a_hook_the_commit_is_that_of_the_folder_and_the_index_stays_as_it_is(
    repository: Path, tmp_path: Path
) -> None:
    other = new_repository(tmp_path / "other", "second")
    os.utime(other / "file", (1, 1))  # a refresh of the index would store the new time
    write_hook(other / ".git/hooks/post-index-change", f"touch '{tmp_path}/hook-ran'")
    write_hook(tmp_path / "fsmonitor", f"touch '{tmp_path}/hook-ran'")
    git("config", "core.fsmonitor", str(tmp_path / "fsmonitor"), folder=other)
    index = (other / ".git/index").read_bytes()
    ask = "from weakincentives.evals.engine.run_manifest import git_commit; print(git_commit())"
    write_hook(
        repository / ".git/hooks/pre-commit",
        f"env > '{tmp_path}/seen'\ncp \"$GIT_INDEX_FILE\" '{tmp_path}/before'\n"
        f"'{sys.executable}' -c '{ask}' > '{tmp_path}/here'\n"
        f"cmp \"$GIT_INDEX_FILE\" '{tmp_path}/before' || exit 1\n"
        f"cd '{other}' && GIT_DIR='{repository}/.git' '{sys.executable}' -c '{ask}' "
        f"> '{tmp_path}/there'",
    )
    first = git("rev-parse", "HEAD", folder=repository)
    (repository / "file").write_text("changed")

    git("commit", "-q", "-a", "-m", "next", folder=repository)

    assert "GIT_INDEX_FILE=" in (tmp_path / "seen").read_text()
    assert (tmp_path / "here").read_text().strip() == f"{first[:12]}+changes"
    commit = git("rev-parse", "HEAD", folder=other)[:12]
    assert (tmp_path / "there").read_text().strip() == commit
    assert (other / ".git/index").read_bytes() == index
    assert not (tmp_path / "hook-ran").exists()


def test_outside_of_a_repository_git_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (git := tmp_path / "git").write_text("#!/bin/sh\necho '# branch.oid 0123456789abcdef'\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert git_commit() is None
    (tmp_path / ".git").mkdir()
    assert git_commit() == "0123456789ab"


def test_the_versions_are_those_of_python_of_this_package_and_of_the_sdks_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openai", sys)
    monkeypatch.delitem(sys.modules, "anthropic", raising=False)

    assert set(found := packages()) == {"python", "weakincentives-evals", "openai"}
    assert found["weakincentives-evals"] == weakincentives.__version__
