"""`wink eval bisect` in a real git repository, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weakincentives.cli import main
from weakincentives.cli.bisect import Commit, CommitResult, search

EVAL = """
import pathlib, sys
from weakincentives.evals import Dataset, EvalSuite, Sample, exact_match
from agent import answer
dataset = Dataset([Sample(f"s{n:03}", n, "ok") for n in range(120)], name="coins")
suite = EvalSuite(answer, dataset, exact_match)
"""
AGENT = "def answer(n):\n    return 'no' if n % {step} == 0 else 'ok'\n# {note}\n"
ENVIRONMENT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
               "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull}  # fmt: skip


def git(*args: str) -> str:
    done = subprocess.run(["git", *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository with commits v0 to v6: v4 makes the agent worse, v2 is broken."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    git("init", "-q", "-b", "main")
    Path("coins.py").write_text(EVAL)
    for number, step in enumerate([20, 20, 20, 20, 3, 3, 3]):
        broken = "import nothing_there\n" if number == 2 else ""
        Path("agent.py").write_text(broken + AGENT.format(step=step, note=number))
        git("add", "-A")
        git("commit", "-q", "-m", f"change {number}")
        git("tag", f"v{number}")
    (folder / "agent.py").write_text("uncommitted work")
    return folder


def test_it_finds_the_first_bad_commit_and_leaves_the_repository_unchanged(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "bisect", "--format", "json", "v0", "v6", "coins.py"]) == 0
    out = capfd.readouterr().out
    data = json.loads(out)
    assert data["first_bad"] == git("rev-parse", "v4")
    verdicts = {git("describe", "--tags", step["commit"]): step["verdict"]
                for step in data["steps"]}  # fmt: skip
    assert (verdicts["v6"], verdicts["v4"], verdicts["v3"]) == ("bad", "bad", "good")
    assert (repository / "agent.py").read_text() == "uncommitted work"
    assert git("status", "--short") == "M agent.py"
    assert git("branch", "--show-current") == "main"
    assert len(git("worktree", "list").splitlines()) == 1


def test_it_reports_when_it_cannot_decide(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "bisect", "v4", "v6", "coins.py"]) == 3
    output = capfd.readouterr().out
    assert output.startswith("cannot tell: BAD is not shown to be worse than GOOD: no difference")

    assert main(["eval", "bisect", "v1", "v2", "coins.py"]) == 3
    assert " change 2: its run failed with exit code 2" in capfd.readouterr().out
    assert len(git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["v6", "v0", "coins.py"], "expected GOOD to be an ancestor of BAD"),
        (["v0", "nowhere", "coins.py"], "expected a commit of this repository, got 'nowhere'"),
        (["v0", "v0", "coins.py"], "expected two commits, got one"),
        (["v0", "v6"], "expected FILE.py"),
        (["v0", "v6", "coins.py", "--store", "x"], "expected no --store after BAD"),
    ],
)
def test_invalid_arguments_are_refused(
    repository: Path, args: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "bisect", *args]) == 2
    assert problem in capsys.readouterr().err


def test_outside_a_repository_the_error_says_to_change_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    assert main(["eval", "bisect", "v0", "v6", "coins.py"]) == 2
    output = capsys.readouterr().err
    assert f"expected to be in a git repository, got the folder {tmp_path} - go to" in output
    assert "fatal" not in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_removes_its_worktrees(repository: Path, number: int) -> None:
    git("checkout", "-q", "agent.py")
    Path("coins.py").write_text(EVAL + "import time; print('READY', flush=True); time.sleep(60)\n")
    git("add", "-A")
    git("commit", "-q", "-m", "slow")
    process = subprocess.Popen(
        [sys.executable, "-m", "weakincentives", "eval", "bisect", "HEAD~1", "HEAD", "coins.py",
         "--limit", "1"],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "READY" not in (line := process.stderr.readline()):
        assert line or process.poll() is None
    assert len(git("worktree", "list").splitlines()) > 1
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode in (130, 143)
    assert len(git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("unknown", [set(), {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7}])
def test_the_search_ends_at_the_first_bad_commit_or_its_neighbours(
    first: int, unknown: set[int]
) -> None:
    commits = [Commit(str(n), "") for n in range(9)]
    tested = []

    def run_commit(commit: Commit) -> CommitResult:
        tested.append(number := int(commit.sha))
        if number in unknown:
            return CommitResult("unknown", "")
        return CommitResult("bad" if number >= first else "good", "")

    candidates = {int(commit.sha) for commit in search(commits, run_commit)}
    assert first in candidates
    assert len(tested) == len(set(tested))
    if not unknown:
        assert candidates == {first}
        assert len(tested) <= 4
